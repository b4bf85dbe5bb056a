// The unit and end-to-end cases that the host document lists by name (its sections 15 and 14), through the real tools.

import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  decideCmdRun,
  decideFsRead,
  decideFsWrite,
  executeCmdRun,
  executeFsWrite,
  hostTools,
  parsePolicy,
} from "../../src/host/index.js";
import { isNetworkType, mountsBetween } from "../../src/host/paths/mounts.js";
import { missingPrograms } from "../setup/programs.js";
import { code, makeWorld, ok, rule, type World } from "./support/world.js";

/** The example's policy names both programs by their path. */
const withoutExample = missingPrograms("rg", "git");
let world: World;

beforeAll(() => {
  world = makeWorld(
    `
  - { id: ls, exec: /bin/ls, args: { allow: [-l, -la, -a, -h], patterns: [{ type: regex, value: "[\\\\w./-]+" }] } }
  - { id: echo, exec: echo, args: { patterns: [{ value: "[a-z]+" }] }, cwdPolicy: none }
  - { id: sleep, exec: sleep, args: { patterns: [{ value: "[0-9.]+" }] }, cwdPolicy: none, timeoutMs: 500 }
  - { id: seq, exec: seq, args: { patterns: [{ value: "[0-9]+" }] }, cwdPolicy: none, maxOutputBytes: 1000 }
  - { id: env, exec: env, envAllowlist: [GREETING], cwdPolicy: none }
  - { id: pwd, exec: pwd }
  - { id: here, exec: pwd, cwdPolicy: fixed, cwd: "\${ROOT}/src" }
  - { id: cat, exec: cat, cwdPolicy: none }
  - { id: dir, exec: "C:/Windows/System32/cmd.exe", args: { fixed: [/c, dir] }, platform: [windows] }
`,
    "limits: { maxReadBytes: 1000, maxCmdConcurrency: 2, maxStdinBytes: 100 }",
  );
});
afterAll(() => world.close());

describe("15 Unit: path normalization", () => {
  test("`~/x/../y` is canonical beneath the root", async () => {
    const directory = mkdtempSync(join(homedir(), ".portcullis-test-"));
    try {
      mkdirSync(join(directory, "x"));
      writeFileSync(join(directory, "y"), "found");
      const name = directory.slice(homedir().length + 1);
      const loaded = parsePolicy(`version: 1\nallowedRoots: ["~/${name}"]\n`, "policy.yaml");
      if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
      expect(decideFsRead(loaded.policy, { path: `~/${name}/x/../y` }).effect).toBe("permit");
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  test("a symbolic link that leaves the root is rejected [M2]", async () => {
    symlinkSync(join(world.outside, "secret.txt"), join(world.root, "escape"));
    expect(rule(await world.read({ path: join(world.root, "escape") }))).toBe("outsideAllowedRoots");
  });
});

describe("15 Unit: network FS", () => {
  test("a network mount below the root is found from the mount table alone", () => {
    const mounts = [
      { path: "/", type: "ext4" },
      { path: "/r/net", type: "nfs4" },
    ];
    const [crossed] = mountsBetween("/r", "/r/net/file", mounts);
    expect(crossed !== undefined && isNetworkType(crossed.type)).toBe(true);
  });
  // The real mounts are in mounts.test.ts.
});

describe("15 Unit: policy parsing", () => {
  test.each([
    [
      "invalid regex",
      'commands: [{ id: a, exec: ls, args: { patterns: [{ value: "(" }] } }]',
      "Invalid regular expression",
    ],
    ["duplicate command id", "commands: [{ id: a, exec: ls }, { id: a, exec: ls }]", "duplicate command id a"],
    ["missing exec", "commands: [{ id: a }]", "field `exec` is missing"],
  ])("a policy with %s is an error", (_, text, message) => {
    const loaded = parsePolicy(`version: 1\n${text}\n`, "policy.yaml");
    expect(loaded.ok ? "" : loaded.problems.map((p) => p.message).join()).toContain(message);
  });

  test("the example policy loads, with both platforms in one file", ({ skip }) => {
    if (withoutExample !== undefined) skip(withoutExample);
    const document = readFileSync(new URL("./fixtures/document-policy.yaml", import.meta.url), "utf8");
    const home = join(world.base, "home");
    mkdirSync(join(home, "code"), { recursive: true });
    const loaded = parsePolicy(document, "policy.yaml", { home });
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    expect([...loaded.policy.commands.keys()]).toEqual(["ls", "rg", "git"]);
    expect(loaded.policy.otherPlatforms.get("dir")).toBe("windows");
    expect(loaded.policy.writableRoots[0]).toMatchObject({
      recursive: true,
      maxFileBytes: 10_000_000,
      createIfMissing: true,
    });
    expect(loaded.policy.logging).toMatchObject({ level: "info", redact: ["env"] });
    expect(loaded.policy.limits).toMatchObject({ maxReadBytes: 5_000_000, maxCmdConcurrency: 2 });
  });

  test("with the example policy a write creates the zone, and a command runs in it", async ({ skip }) => {
    if (withoutExample !== undefined) skip(withoutExample);
    const document = readFileSync(new URL("./fixtures/document-policy.yaml", import.meta.url), "utf8");
    const home = join(world.base, "at-work");
    mkdirSync(join(home, "code"), { recursive: true });
    const loaded = parsePolicy(document, "policy.yaml", { home });
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    const { policy } = loaded;
    ok(
      await executeFsWrite(policy, {
        path: "~/code/scratch/out.txt",
        data: "SGVsbG8=",
        encoding: "base64",
        create: true,
      }),
    );
    const listing = { commandId: "ls", args: ["-a"], cwd: "~/code/scratch" };
    expect(ok(await executeCmdRun(policy, listing, { sandbox: world.sandbox })).stdout).toBe(".\n..\nout.txt\n");
  });
});

describe("15 Unit: arg filtering", () => {
  test("an unknown argument of a command is rejected [M4]", () => {
    expect(decideCmdRun(world.policy, { commandId: "ls", args: ["--color=always"] })).toMatchObject({
      effect: "deny",
      rule: "args",
      denial: { code: "POLICY_DENY", field: "args[0]" },
    });
  });
  test("an argument is matched by a regular expression", () => {
    expect(decideCmdRun(world.policy, { commandId: "ls", args: ["-la", "src/app.ts"] }).effect).toBe("permit");
    expect(decideCmdRun(world.policy, { commandId: "ls", args: ["a b"] }).effect).toBe("deny");
  });
});

describe("15 E2E: read", () => {
  test("fs.read within a root succeeds", async () => {
    const result = ok(
      await world.read({ path: join(world.root, "readme.md"), offset: 0, length: 1_048_576, encoding: "utf8" }),
    );
    expect(result).toEqual({
      data: "hello\n",
      bytesRead: 6,
      size: 6,
      sha256: createHash("sha256").update("hello\n").digest("hex"),
    });
  });
  test("fs.read outside every root is denied (`POLICY_DENY`)", async () => {
    const outcome = await world.read({ path: join(world.outside, "secret.txt") });
    expect(code(outcome)).toBe("POLICY_DENY");
    expect(outcome.audit).toMatchObject({
      tool: "fs.read",
      decision: "deny",
      policyHash: world.policy.hash,
      rule: "outsideAllowedRoots",
    });
  });
});

describe("15 E2E: write", () => {
  test("fs.write in a write zone succeeds", async () => {
    const args = {
      path: join(world.writableRoot, "out.txt"),
      data: "SGVsbG8=",
      encoding: "base64",
      create: true,
      overwrite: true,
    };
    const outcome = await world.write(args);
    expect(ok(outcome)).toEqual({ bytesWritten: 5, sha256: createHash("sha256").update("Hello").digest("hex") });
    expect(readFileSync(join(world.writableRoot, "out.txt"), "utf8")).toBe("Hello");
    expect(outcome.audit).toMatchObject({ decision: "allow", bytes: 5, path: join(world.writableRoot, "out.txt") });
    expect(JSON.stringify(outcome.audit)).not.toContain("SGVsbG8");
  });
  test("fs.write outside every zone is denied [M3]", async () => {
    expect(rule(await world.write({ path: join(world.root, "readme.md"), data: "x", overwrite: true }))).toBe(
      "outsideWriteZones",
    );
    expect(rule(await world.write({ path: join(world.outside, "new"), data: "x" }))).toBe("outsideWriteZones");
  });
});

describe("15 E2E: `cmd.run`", () => {
  test("cmd.run with an allowed command and arguments succeeds", async () => {
    const outcome = await world.run("ls", ["-a", "src"], { cwd: world.root });
    expect(ok(outcome)).toMatchObject({ exitCode: 0, stderr: "", timedOut: false, truncated: false });
    expect(ok(outcome).stdout).toContain("app.ts");
    expect(outcome.audit).toMatchObject({
      tool: "cmd.run",
      decision: "allow",
      cwd: world.root,
      exitCode: 0,
      timedOut: false,
    });
  });
  test("cmd.run with a disallowed argument is denied (`POLICY_DENY`)", async () => {
    const outcome = await world.run("ls", ["--help"]);
    expect(code(outcome)).toBe("POLICY_DENY");
    expect(outcome.ok ? "" : outcome.denial.reason).toContain(
      "command `ls` does not allow argument `--help` (policy.yaml:",
    );
  });
  test("cmd.run of `sleep 2` with `timeoutMs=500` ends with `TIMEOUT` [M4]", async () => {
    const outcome = await world.run("sleep", ["2"]);
    expect(code(outcome)).toBe("TIMEOUT");
    expect(outcome.ok ? undefined : outcome.partial).toMatchObject({ timedOut: true });
    expect(outcome.ok ? undefined : outcome.denial).toMatchObject({
      timeoutMs: 500,
      suggestions: ["ask for less at once", expect.stringContaining("timeoutMs")],
    });
    expect(outcome.audit).toMatchObject({ decision: "allow", timedOut: true, code: "TIMEOUT" });
  });
  test("a command that produces more than the cap is marked `truncated:true` [M4]", async () => {
    const outcome = await world.run("seq", ["100000"]);
    const result = ok(outcome);
    expect(result).toMatchObject({ exitCode: 0, truncated: true, warnings: ["OUTPUT_TRUNCATED"] });
    expect(result.stdout.length + result.stderr.length).toBe(1000);
    expect(result.stdout.startsWith("1\n2\n3\n")).toBe(true);
    expect(outcome.audit.warning).toBe("OUTPUT_TRUNCATED");
  });
  test("a request can only shorten the timeout", async () => {
    expect(code(await world.run("sleep", ["2"], { timeoutMs: 60_000 }))).toBe("TIMEOUT");
    expect(code(await world.run("sleep", ["0.3"], { timeoutMs: 50 }))).toBe("TIMEOUT");
  });
});

describe("14 Definition of done", () => {
  test("the host exposes only `fs.read`, `fs.write` and `cmd.run` [M1]", () => {
    expect(hostTools.map((tool) => tool.name)).toEqual(["fs.read", "fs.write", "cmd.run"]);
    for (const tool of hostTools)
      expect(tool.inputSchema).toMatchObject({ type: "object", additionalProperties: false });
  });

  test("a decision can be asked for alone and has no effect", () => {
    const path = join(world.writableRoot, "only-asked.txt");
    expect(decideFsWrite(world.policy, { path, data: "x" })).toMatchObject({ effect: "permit" });
    expect(decideFsRead(world.policy, { path })).toMatchObject({ effect: "deny", rule: "notFound" });
    expect(decideFsWrite(world.policy, { path, data: "x".repeat(70_000) })).toMatchObject({
      effect: "deny",
      rule: "maxFileBytes",
    });
  });

  test("a command gets only the listed variables, and none of the host's [M4]", async () => {
    process.env.HOST_SECRET = "do not pass";
    const result = ok(await world.run("env", [], { env: { GREETING: "hello" } }));
    delete process.env.HOST_SECRET;
    expect(result.stdout).toContain("GREETING=hello\n");
    const names = result.stdout.split("\n").flatMap((line) => line.split("=")[0] || []);
    expect(new Set(names)).toEqual(new Set(["GREETING", "HOME", "LANG", "PATH", "TMPDIR"]));
    const outcome = await world.run("env", [], { env: { GREETING: "a", OTHER: "b" } });
    expect(rule(outcome)).toBe("envAllowlist");
    const audited = await world.run("env", [], { env: { GREETING: "secret value" } });
    expect(audited.audit.env).toEqual({ GREETING: "[redacted]" });
  });

  test("the working directory of a command is within a root, fixed, or none", async () => {
    expect(ok(await world.run("pwd", [], { cwd: join(world.root, "src") })).stdout).toBe(`${world.root}/src\n`);
    expect(ok(await world.run("pwd")).stdout).toBe(`${world.root}\n`);
    expect(ok(await world.run("here")).stdout).toBe(`${world.root}/src\n`);
    expect(rule(await world.run("here", [], { cwd: world.root }))).toBe("outsideAllowedRoots");
    expect(rule(await world.run("pwd", [], { cwd: world.outside }))).toBe("outsideAllowedRoots");
    expect(rule(await world.run("pwd", [], { cwd: join(world.root, "readme.md") }))).toBe("notAFolder");
    expect(rule(await world.run("echo", ["a"], { cwd: world.root }))).toBe("cwdPolicy");
  });

  test("stdin reaches the command up to its cap", async () => {
    expect(ok(await world.run("cat", [], { stdin: "from the caller\0\n" })).stdout).toBe("from the caller\0\n");
    expect(rule(await world.run("cat", [], { stdin: "x".repeat(101) }))).toBe("maxStdinBytes");
  });

  test("a command of another platform is distinguished from an unknown one", async () => {
    expect(rule(await world.run("dir"))).toBe("platform");
    const outcome = await world.run("sl");
    expect(outcome.ok ? undefined : outcome.denial).toMatchObject({
      rule: "unknownCommand",
      suggestions: ["did you mean ls?"],
    });
  });

  test("output arrives while the command runs, within the cap", async () => {
    const chunks: string[] = [];
    const result = ok(
      await world.run("seq", ["100000"], {}, { onOutput: (stream, chunk) => chunks.push(`${stream}:${chunk.length}`) }),
    );
    const total = chunks.reduce((sum, chunk) => sum + Number(chunk.split(":")[1]), 0);
    expect(total).toBe(result.stdout.length);
  });

  test("a cancelled call ends the command", async () => {
    const abort = new AbortController();
    const running = world.run("sleep", ["0.4"], {}, { signal: abort.signal });
    setTimeout(() => abort.abort(), 50);
    expect(rule(await running)).toBe("cancelled");
    expect(rule(await world.run("sleep", ["0"], {}, { signal: AbortSignal.abort() }))).toBe("cancelled");
  });

  test("a program replaced since the policy was loaded is not run", async () => {
    const program = join(world.base, "tool");
    writeFileSync(program, "#!/bin/sh\necho one\n", { mode: 0o755 });
    const loaded = parsePolicy(
      `version: 1\nallowedRoots: ["${world.root}"]\ncommands: [{ id: tool, exec: ${program} }]\n`,
      "policy.yaml",
    );
    if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
    const { executeCmdRun } = await import("../../src/host/index.js");
    expect(ok(await executeCmdRun(loaded.policy, { commandId: "tool" }, { sandbox: world.sandbox })).stdout).toBe(
      "one\n",
    );
    writeFileSync(program, "#!/bin/sh\necho two\n", { mode: 0o755 });
    expect(rule(await executeCmdRun(loaded.policy, { commandId: "tool" }, { sandbox: world.sandbox }))).toBe(
      "executableChanged",
    );
  });
});
