import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { loadPolicyFiles } from "./load.js";
import { PolicyInvalid } from "./types.js";

let folder = "";
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "policy-"));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

const PERMIT = "permit (principal, action, resource);";

async function problems(paths: string[], limits = {}): Promise<string> {
  return loadPolicyFiles(paths, [], limits).then(
    () => "",
    (error: unknown) => (error instanceof PolicyInvalid ? error.message : Promise.reject(error as Error)),
  );
}

test("folders are read in order of name, and other files left alone", async () => {
  await writeFile(join(folder, "20.cedar"), PERMIT);
  await writeFile(join(folder, "10.cedar"), `${PERMIT}\n${PERMIT}`);
  await writeFile(join(folder, "notes.txt"), "not a policy");
  await writeFile(join(folder, ".10.cedar.swp.cedar"), "half saved");
  await mkdir(join(folder, "deeper"));
  const set = await loadPolicyFiles([folder, join(folder, "20.cedar")], []);
  expect(set.rules.map((rule) => rule.id)).toEqual(["10.cedar#1", "10.cedar#2", "20.cedar#1"]);
  expect(set.rules[0]?.file).toBe(join(folder, "10.cedar"));
});

test("what cannot be read is a problem, never an empty policy", async () => {
  expect(await problems([join(folder, "missing.cedar")])).toContain("missing.cedar: cannot be read: ENOENT");
  await writeFile(join(folder, "policy.txt"), PERMIT);
  expect(await problems([join(folder, "policy.txt")])).toContain("is not a .cedar file");
  await writeFile(join(folder, "bad.cedar"), Buffer.from([0x2f, 0x2f, 0xff, 0x0a]));
  expect(await problems([join(folder, "bad.cedar")])).toContain("not valid UTF-8");
});

test("too many files and too many bytes are refused", async () => {
  for (const name of ["a", "b", "c"]) await writeFile(join(folder, `${name}.cedar`), PERMIT);
  expect(await problems([folder], { maxFiles: 2 })).toContain("more than 2 policy files");
  expect(await problems([folder], { maxBytes: 50 })).toContain(
    "b.cedar: cannot be read: the policy files together are too large",
  );
  expect(await problems([folder])).toBe("");
});
