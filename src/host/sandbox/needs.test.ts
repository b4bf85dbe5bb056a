import { chmodSync, cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Executable, findExecutable } from "../policy/executable.js";
import { parsePolicy } from "../policy/load.js";
import { problemText } from "../policy/yaml.js";
import { executeCmdRun } from "../tools/cmd-run.js";
import { needsOf } from "./reach.js";
import { Sandbox } from "./sandbox.js";

const base = realpathSync(mkdtempSync(join(tmpdir(), "needs-")));
const bin = join(base, "node/bin");
const tool = join(base, "node/lib/tool");

/** A tool as version managers install it: a link beside its interpreter, the package in another directory. */
beforeAll(() => {
  mkdirSync(bin, { recursive: true });
  mkdirSync(join(tool, "bin"), { recursive: true });
  mkdirSync(join(base, "code"));
  writeFileSync(join(tool, "package.json"), "{}");
  writeFileSync(join(tool, "answer.js"), "module.exports = 42;");
  writeFileSync(join(tool, "bin/cli.js"), "#!/usr/bin/env node\nconsole.log(require('../answer.js'));\n", {
    mode: 0o755,
  });
  symlinkSync("../lib/tool/bin/cli.js", join(bin, "tool"));
  writeFileSync(join(bin, "plain"), "#!/bin/sh\necho plain\n", { mode: 0o755 });
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

function program(path: string): Executable {
  const found = findExecutable(path, []);
  if ("error" in found) throw new Error(found.error);
  return found;
}

describe("what a script needs beside itself", () => {
  test("its interpreter, found as env would find it, and a Node program its package", () => {
    writeFileSync(join(bin, "node"), "", { mode: 0o755 });
    expect(needsOf(program(join(bin, "tool")), [bin, "/usr/bin"])).toEqual([
      join(bin, "node"),
      join(tool, "package.json"),
    ]);
    expect(needsOf(program(join(bin, "tool")), ["/nowhere"])[0]).toBe("node");
    expect(needsOf(program(join(bin, "plain")), [])).toEqual(["/bin/sh"]);
    expect(needsOf(program(realpathSync("/bin/sh")), [])).toEqual([]);
  });
});

describe.runIf(process.platform === "linux")("a tool of a version manager", () => {
  let sandbox: Sandbox;
  beforeAll(() => {
    sandbox = new Sandbox();
    cpSync(process.execPath, join(bin, "node"), { dereference: true });
    chmodSync(join(bin, "node"), 0o755);
  });
  afterAll(() => sandbox.close());

  async function run(entry: string) {
    const text = `allowedRoots: ["${base}/code"]\ncommands: [{ id: tool, exec: "${bin}/tool", timeoutMs: 60000, limits: { maxMemoryBytes: 64_000_000_000 }, ${entry} }]\nsandbox: preferred\n`;
    const loaded = parsePolicy(text, "policy.yaml");
    if (!loaded.ok) throw new Error(loaded.problems.map(problemText).join("\n"));
    return executeCmdRun(loaded.policy, { commandId: "tool" }, { sandbox });
  }

  test("a tool of a version manager is refused with what is missing and where to list it", async () => {
    const outcome = await run("mounts: []");
    // Without a sandbox nothing is hidden, and inside bubblewrap's nothing can be checked first.
    if (outcome.ok) return expect(["none", "bubblewrap"]).toContain(outcome.result.protections.files);
    expect(outcome.denial).toMatchObject({ code: "IO_ERROR", rule: "spawn" });
    expect(outcome.denial.reason).toContain(`needs ${bin}/node`);
    expect(outcome.denial.reason).toContain("mounts");
  });

  test("a tool of a version manager runs when its directory is listed under mounts", async () => {
    expect(await run(`mounts: ["${base}/node"]`)).toMatchObject({ ok: true, result: { exitCode: 0, stdout: "42\n" } });
  });
});
