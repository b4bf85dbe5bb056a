// fs.write and the writable roots it may write: those that do not exist yet, and what stays closed inside them.

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { decideFsWrite, executeFsWrite, type Policy, parsePolicy } from "../../src/host/index.js";
import { useOpeningMethod } from "../../src/host/paths/locate.js";
import { makeWorld, ok, rule, type World } from "./support/world.js";

let world: World;
beforeAll(() => {
  world = makeWorld();
});
afterAll(() => world.close());

function policyOf(writeRules: string): Policy {
  const loaded = parsePolicy(`version: 1\nwriteRules: [${writeRules}]\n`, "policy.yaml");
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return loaded.policy;
}

test.each(["openat2", "o_path"] as const)(
  "a zone that does not exist yet is not made through a link that came meanwhile (%s)",
  async (method) => {
    const name = `gen-${method}`;
    const rules = [`${name}/a/out`, ""].map(
      (path) => `{ path: "${join(world.writableRoot, path)}", recursive: true, createIfMissing: true }`,
    );
    const lone = rules.slice(0, 1);
    useOpeningMethod(method);
    try {
      for (const list of [rules, lone]) {
        const policy = policyOf(list.join());
        const before = readdirSync(world.outside);
        symlinkSync(world.outside, join(world.writableRoot, name));
        const args = { path: join(world.writableRoot, name, "a/out/x.txt"), data: "x" };
        expect(decideFsWrite(policy, args).effect).toBe("deny");
        expect(rule(await executeFsWrite(policy, args))).not.toBe("allowed");
        expect(readdirSync(world.outside)).toEqual(before);
        rmSync(join(world.writableRoot, name));
        expect(decideFsWrite(policy, args).effect).toBe("permit");
        expect(existsSync(join(world.writableRoot, name))).toBe(false);
        ok(await executeFsWrite(policy, args));
        expect(statSync(join(world.writableRoot, name, "a/out")).mode & 0o777).toBe(0o700);
        rmSync(join(world.writableRoot, name), { recursive: true });
      }
    } finally {
      useOpeningMethod(undefined);
    }
  },
);

test("an absent zone named through a link is made where the link led when the policy was loaded [M3]", async () => {
  mkdirSync(join(world.base, "real"));
  symlinkSync(join(world.base, "real"), join(world.base, "alias"));
  const writableRoot = join(world.base, "alias/zone");
  const policy = policyOf(`{ path: "${writableRoot}", createIfMissing: true }`);
  ok(await executeFsWrite(policy, { path: join(writableRoot, "a"), data: "x" }));
  expect(readdirSync(join(world.base, "real/zone"))).toEqual(["a"]);
});

test.each([
  ".git/hooks/pre-commit",
  ".git/config",
  "sub/.git/config",
  ".GIT/config",
  ".git",
  "sub/.Git",
  "git~1/config",
  ".hg/hgrc",
  ".jj/repo/config.toml",
  ".sl/config",
  ".pijul/config",
  "_darcs/prefs/defaults",
  "into/hooks/post-checkout",
])("%s inside a zone is neither written nor replaced, unless the rule says so", async (name) => {
  const writableRoot = join(world.base, "repo");
  mkdirSync(join(writableRoot, ".git/hooks"), { recursive: true });
  writeFileSync(join(writableRoot, ".git/config"), "[core]\n");
  symlinkSync(".git", join(writableRoot, "into"));
  const open = (more: string) => policyOf(`{ path: "${writableRoot}", recursive: true, createIfMissing: true${more} }`);
  const args = { path: join(writableRoot, name), data: "x", overwrite: true };
  try {
    expect(rule(await executeFsWrite(open(""), args))).toBe(
      name === ".git" ? "notAFile" : "writeRules.repositoryInternals",
    );
    expect(readdirSync(writableRoot).sort()).toEqual([".git", "into"]);
    expect(readFileSync(join(writableRoot, ".git/config"), "utf8")).toBe("[core]\n");
    expect(readdirSync(join(writableRoot, ".git/hooks"))).toEqual([]);
    if (name !== ".git") ok(await executeFsWrite(open(", repositoryInternals: true"), args));
    for (const beside of [".gitignore", ".github/workflows/ci.yml", "git/config"]) {
      ok(await executeFsWrite(open(""), { path: join(writableRoot, beside), data: "x" }));
    }
  } finally {
    rmSync(writableRoot, { recursive: true });
  }
});
