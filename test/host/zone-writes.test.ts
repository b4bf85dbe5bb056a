// fs.write and the zones it may write: those that do not exist yet, and what stays closed inside them.

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
import { decideFsWrite, fsWrite, parsePolicy, type Policy } from "../../src/host/index.js";
import { useOpeningMethod } from "../../src/host/paths/index.js";
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
      (path) => `{ path: "${join(world.zone, path)}", recursive: true, createIfMissing: true }`,
    );
    const lone = rules.slice(0, 1);
    useOpeningMethod(method);
    try {
      for (const list of [rules, lone]) {
        const policy = policyOf(list.join());
        const before = readdirSync(world.outside);
        symlinkSync(world.outside, join(world.zone, name));
        const args = { path: join(world.zone, name, "a/out/x.txt"), data: "x" };
        expect(decideFsWrite(policy, args).effect).toBe("deny");
        expect(rule(await fsWrite(policy, args))).not.toBe("allowed");
        expect(readdirSync(world.outside)).toEqual(before);
        rmSync(join(world.zone, name));
        expect(decideFsWrite(policy, args).effect).toBe("permit");
        expect(existsSync(join(world.zone, name))).toBe(false);
        ok(await fsWrite(policy, args));
        expect(statSync(join(world.zone, name, "a/out")).mode & 0o777).toBe(0o700);
        rmSync(join(world.zone, name), { recursive: true });
      }
    } finally {
      useOpeningMethod(undefined);
    }
  },
);

test("an absent zone named through a link is made where the link led when the policy was loaded", async () => {
  mkdirSync(join(world.base, "real"));
  symlinkSync(join(world.base, "real"), join(world.base, "alias"));
  const zone = join(world.base, "alias/zone");
  const policy = policyOf(`{ path: "${zone}", createIfMissing: true }`);
  ok(await fsWrite(policy, { path: join(zone, "a"), data: "x" }));
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
])("%s inside a zone is not written, replaced or not, unless the rule says so", async (name) => {
  const zone = join(world.base, "repo");
  mkdirSync(join(zone, ".git/hooks"), { recursive: true });
  writeFileSync(join(zone, ".git/config"), "[core]\n");
  symlinkSync(".git", join(zone, "into"));
  const open = (more: string) => policyOf(`{ path: "${zone}", recursive: true, createIfMissing: true${more} }`);
  const args = { path: join(zone, name), data: "x", overwrite: true };
  try {
    expect(rule(await fsWrite(open(""), args))).toBe(name === ".git" ? "notAFile" : "writeRules.repositoryInternals");
    expect(readdirSync(zone).sort()).toEqual([".git", "into"]);
    expect(readFileSync(join(zone, ".git/config"), "utf8")).toBe("[core]\n");
    expect(readdirSync(join(zone, ".git/hooks"))).toEqual([]);
    if (name !== ".git") ok(await fsWrite(open(", repositoryInternals: true"), args));
    for (const beside of [".gitignore", ".github/workflows/ci.yml", "git/config"]) {
      ok(await fsWrite(open(""), { path: join(zone, beside), data: "x" }));
    }
  } finally {
    rmSync(zone, { recursive: true });
  }
});
