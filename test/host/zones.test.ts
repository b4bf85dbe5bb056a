// What write rules mean for commands: where they can stand, what they can write, and what stays closed inside a writable root.

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  executeCmdRun,
  loadYamlPolicy,
  type Policy,
  problemText,
  reachInSandbox,
  Sandbox,
} from "../../src/host/index.js";
import type { Without } from "../../src/host/sandbox/confinement.js";
import { has } from "../setup/programs.js";
import { isRoot } from "./support/machine.js";
import { ok, rule } from "./support/world.js";

let base = "";
let sandboxes: Sandbox[] = [];

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), "zones-")));
  mkdirSync(join(base, "root/zone/deep"), { recursive: true });
  mkdirSync(join(base, "root/src"));
});
afterEach(async () => {
  await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
  sandboxes = [];
  rmSync(base, { recursive: true, force: true });
});

const COMMANDS = `
commands:
  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] } }
  - { id: pwd, exec: pwd }
`;

function policyOf(rules: string, more = COMMANDS): Policy {
  const file = join(base, "policy.yaml");
  const text = `version: 1\nallowedRoots: ["ROOT"]\nwriteRules:\n${rules}\n${more}`;
  writeFileSync(file, text.replaceAll("ROOT", join(base, "root")));
  const loaded = loadYamlPolicy(file);
  if (!loaded.ok) throw new Error(loaded.problems.map(problemText).join("\n"));
  return loaded.policy;
}

function runner(policy: Policy, without: Without = {}) {
  const sandbox = new Sandbox(without);
  sandboxes.push(sandbox);
  const run = (commandId: string, args: string[], cwd?: string) =>
    executeCmdRun(policy, { commandId, args, ...(cwd === undefined ? {} : { cwd }) }, { sandbox });
  return { sandbox, run, sh: (script: string, cwd?: string) => run("sh", ["-c", script], cwd) };
}

const OPEN = "  - { path: ROOT/zone, recursive: true, createIfMissing: true }";

/** Each way to hold a command, as far as the machine has it. */
const WAYS: [string, Without, string, boolean][] = [
  ["a view", {}, "", true],
  ["a view without owner mapping", { ownerMapping: true }, "", true],
  ["Landlock alone", { view: true, userNamespace: true }, "", true],
  ["bubblewrap", { view: true, landlock: true, userNamespace: true }, "", has("bwrap")],
  ["nothing", { native: true, bubblewrap: true }, "sandbox: preferred", true],
];

describe("a working directory inside a zone that lies in a root", () => {
  test.each(WAYS)(
    "a working directory inside a zone that lies in a root works, confined by %s",
    async (_, without, more, isHere) => {
      if (!isHere) return;
      mkdirSync(join(base, "root/zone/inner"));
      mkdirSync(join(base, "root/tool/lib"), { recursive: true });
      symlinkSync("zone/deep", join(base, "root/link"));
      const rules = `${OPEN}\n  - { path: ROOT/zone/inner, recursive: true, createIfMissing: true }\n  - { path: ROOT/src }`;
      const mounted = "\n  - { id: tooled, exec: pwd, mounts: [ROOT/tool] }\n";
      const { run, sh } = runner(policyOf(rules, `${more}${COMMANDS}${mounted}`), without);
      for (const cwd of ["", "/zone", "/zone/deep", "/zone/inner", "/src"]) {
        expect(ok(await run("pwd", [], join(base, "root", cwd))).stdout.trim()).toBe(join(base, "root", cwd));
      }
      expect(ok(await run("pwd", [], join(base, "root/link"))).stdout.trim()).toBe(join(base, "root/zone/deep"));
      expect(ok(await run("tooled", [], join(base, "root/tool/lib"))).stdout.trim()).toBe(join(base, "root/tool/lib"));
      const { stdout, protections } = ok(await sh("echo x > f && cat f", join(base, "root/zone/deep")));
      // The user that commands of root have is a stranger to root's folders where nothing but Landlock can be had.
      const isStranger = isRoot && protections.files === "landlock";
      expect(stdout).toBe(isStranger ? "" : "x\n");
      expect(existsSync(join(base, "root/zone/deep/f"))).toBe(!isStranger);
    },
  );

  test("a working directory inside a zone is checked when only the reach of a command is asked", async () => {
    const policy = policyOf(OPEN);
    const { sandbox } = runner(policy);
    const command = policy.commands.get("pwd");
    if (command === undefined) throw new Error("the catalog has pwd");
    const reach = (directory: string) => reachInSandbox(policy, command, sandbox, join(base, "root/zone", directory));
    expect(await reach("deep")).toBeUndefined();
    expect(await reach("gone")).toMatch(/working directory/);
  });

  test("a symbolic link in place of the working directory is not entered [M12]", async () => {
    mkdirSync(join(base, "outside"));
    const policy = policyOf(OPEN);
    const { sandbox } = runner(policy);
    const command = policy.commands.get("pwd");
    if (command === undefined) throw new Error("the catalog has pwd");
    symlinkSync(join(base, "outside"), join(base, "root/zone/way"));
    expect(await reachInSandbox(policy, command, sandbox, join(base, "root/zone/way"))).toMatch(/^changed:/);
  });
});

describe("what of a write rule holds for commands", () => {
  test.each([
    ["recursive: false", "recursive: false, createIfMissing: true"],
    ["createIfMissing: false", "recursive: true, createIfMissing: false"],
  ])("a zone with %s is read-only for commands, and the policy says so", async (_, fields) => {
    const policy = policyOf(`  - { path: ROOT/zone, ${fields} }`);
    expect(policy.notices.join()).toContain("commands cannot write there");
    const { sh } = runner(policy);
    ok(await sh("echo x > zone/f; mkdir zone/d; echo x > zone/deep/f"));
    expect([existsSync(join(base, "root/zone/f")), existsSync(join(base, "root/zone/d"))]).toEqual([false, false]);
    expect(existsSync(join(base, "root/zone/deep/f"))).toBe(false);
  });

  test.each(WAYS.slice(0, 4))(
    "a stricter zone inside an open one stays closed to commands, confined by %s",
    async (_, without, __, isHere) => {
      if (!isHere) return;
      const { sh } = runner(policyOf(`${OPEN}\n  - { path: ROOT/zone/deep }`), without);
      const { protections } = ok(
        await sh("echo x > zone/f; echo x > zone/deep/f; mv zone/deep zone/d; mkdir zone/deep; echo x > zone/deep/f"),
      );
      expect(existsSync(join(base, "root/zone/deep/f"))).toBe(false);
      // Landlock cannot close a part of a writable root, so all of it is closed, and the answer says so.
      const closesAll = protections.files === "landlock";
      expect(existsSync(join(base, "root/zone/f"))).toBe(!closesAll);
      if (closesAll) expect(protections.notes.join()).toContain("is read-only");
    },
  );

  test("no file grows past the smallest maxFileBytes of the zones that a command can write [M12]", async () => {
    const policy = policyOf(
      "  - { path: ROOT/zone, recursive: true, createIfMissing: true, maxFileBytes: 5000 }\n" +
        "  - { path: ROOT/src, recursive: true, createIfMissing: true, maxFileBytes: 9000 }",
    );
    expect(policy.notices.join()).toContain("at most 5000 bytes");
    const { sh } = runner(policy);
    ok(
      await sh(
        "head -c 4000 /dev/zero > zone/small; head -c 20000 /dev/zero > zone/large; truncate -s 1000000 src/sparse",
      ),
    );
    expect(statSync(join(base, "root/zone/small")).size).toBe(4000);
    expect(statSync(join(base, "root/zone/large")).size).toBeLessThanOrEqual(5000);
    expect(statSync(join(base, "root/src/sparse")).size).toBeLessThanOrEqual(5000);
  });

  test("a root inside an open writable root can be written by commands as by fs.write", async () => {
    const policy = policyOf(OPEN, `profiles: []${COMMANDS}`);
    const nested = {
      ...policy,
      readableRoots: [...policy.readableRoots, { path: join(base, "root/zone/deep"), written: "deep" }],
    };
    ok(await runner(nested).sh("echo x > zone/deep/f"));
    expect(existsSync(join(base, "root/zone/deep/f"))).toBe(true);
  });
});

describe("a repository in a writable root", () => {
  beforeEach(() => {
    mkdirSync(join(base, "root/zone/.git/hooks"), { recursive: true });
    writeFileSync(join(base, "root/zone/.git/config"), "[core]\n");
  });

  test.each(WAYS.slice(0, 3))(
    "the internals of a repository in a zone are closed to commands, confined by %s",
    async (_, without) => {
      mkdirSync(join(base, "root/zone/deep/.git"));
      writeFileSync(join(base, "root/zone/deep/.git/config"), "[core]\n");
      const { sh } = runner(policyOf(OPEN), without);
      const script =
        "echo x > .git/hooks/pre-commit; echo x > .git/config; mv .git g; mkdir .git; echo x > .git/config; echo y > f";
      for (const directory of [join(base, "root/zone"), join(base, "root/zone/deep")]) {
        const { protections } = ok(await sh(script, directory));
        expect(existsSync(join(directory, ".git/hooks/pre-commit"))).toBe(false);
        expect(readFileSync(join(directory, ".git/config"), "utf8")).toBe("[core]\n");
        expect(existsSync(join(directory, "f"))).toBe(protections.files !== "landlock");
      }
    },
  );

  test("a rule can open the internals of a repository in a zone to commands", async () => {
    const { sh } = runner(policyOf(OPEN.replace(" }", ", repositoryInternals: true }")));
    ok(await sh("echo '#!/bin/sh' > zone/.git/hooks/pre-commit"));
    expect(existsSync(join(base, "root/zone/.git/hooks/pre-commit"))).toBe(true);
  });
});

test("a zone that has become a link is not used as the working directory of a command", async () => {
  const policy = policyOf(OPEN);
  mkdirSync(join(base, "outside"));
  rmSync(join(base, "root/zone"), { recursive: true });
  symlinkSync(join(base, "outside"), join(base, "root/zone"));
  expect(rule(await runner(policy).run("pwd", [], join(base, "root/zone")))).toBe("outsideAllowedRoots");
});
