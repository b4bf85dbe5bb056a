import { linkSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { parsePolicy } from "../../../host/index.js";
import { hardLinks } from "./files.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "hard-links-")));
const zone = join(base, "root/zone");
mkdirSync(join(zone, "deep"), { recursive: true });
writeFileSync(join(base, "outside"), "x");
symlinkSync(base, join(zone, "loop"));
afterAll(() => rmSync(base, { recursive: true, force: true }));

function look(more = "") {
  const text = `version: 1
allowedRoots: ["${base}/root"]
writeRules: [{ path: "${zone}", recursive: true, createIfMissing: true }]
commands: [{ id: "true", exec: "true" }]
${more}`;
  const loaded = parsePolicy(text, "policy.yaml");
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return hardLinks(loaded.policy);
}

describe.skipIf(process.platform !== "linux")("hard links in writable directories", () => {
  test("finds hard links in writable directories and follows no symbolic link", () => {
    expect(look()[0]?.detail).toBe("none in the writable directories");
    linkSync(join(base, "outside"), join(zone, "deep/inside"));
    expect(look()[0]?.detail).toBe(`1 in the writable directories, first ${join(zone, "deep/inside")}`);
    expect(look()[0]?.hint).toContain("changes it under its other names");
  });

  test("skips hard links where the policy allows them", () => expect(look("hardLinks: allow")).toEqual([]));
});
