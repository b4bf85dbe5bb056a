// Commands that do not want to go: gone within the limit, nothing left. Seen in the process table and in the cgroup.

import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Without } from "../../src/host/sandbox/confinement.js";
import { has } from "../setup/programs.js";
import { compiled } from "./support/compiled.js";
import { commandLinesWith, isRoot, unreachableForOthers } from "./support/machine.js";
import { judgeScenarios, runScenariosAsUser } from "./support/scenario-checks.js";
import { runScenarios } from "./support/scenarios.js";
import { code, makeWorld, ok, rule, type World } from "./support/world.js";

const run = promisify(execFile);
describe.skipIf(!isRoot)("commands that do not want to go", () => {
  test("processes that resist their end leave nothing, as root in a PID namespace [M6]", async () => {
    judgeScenarios(await runScenarios({}), "pid-namespace");
  });

  test("processes that resist their end leave nothing, as an ordinary user with Landlock alone", async ({ skip }) => {
    const closed = unreachableForOthers();
    if (closed !== undefined) skip(closed);
    const reports = await runScenariosAsUser({ userNamespace: true });
    judgeScenarios(reports, "subreaper");
    expect(reports[0]?.protections).toMatchObject({ user: "same", files: "landlock" });
  });
});

test.each([
  ["", {}],
  [
    ", daemons too where only adoption finds them",
    { view: true, pidNamespace: true, userNamespace: true, cgroup: true },
  ],
] as [string, Without][])("a host that is killed takes its commands with it%s", async (_, without) => {
  const host = compiled("test/host/support/world.js");
  const mark = `mark-${randomUUID()}`;
  const script = `
    import { makeWorld } from ${JSON.stringify(host)};
    const world = makeWorld('  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, timeoutMs: 60_000 }', "", ${JSON.stringify(without)});
    world.run("sh", ["-c", "setsid sh -c 'sleep 271; :' ${mark} & sleep 0.3; echo up; sleep 271", "${mark}"], {}, { onOutput: () => console.log("up") });`;
  const directory = mkdtempSync(join(tmpdir(), "killed-host-"));
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, TMPDIR: directory },
  });
  await once(child.stdout, "data");
  expect(commandLinesWith(mark).filter((line) => !line.includes("makeWorld")).length).toBeGreaterThan(0);
  child.kill("SIGKILL");
  await once(child, "exit");
  for (let i = 0; i < 600 && commandLinesWith(mark).length > 0; i++) await sleep(50);
  expect(commandLinesWith(mark)).toEqual([]);
  rmSync(directory, { recursive: true, force: true });
});

describe("what a command can and cannot do", () => {
  let world: World;
  const sh = (script: string, id = "sh") => world.run(id, ["-c", script]);

  beforeAll(() => {
    world = makeWorld(
      `
  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, limits: { maxMemoryBytes: 100_000_000, maxOpenFiles: 64 } }
  - { id: bash, exec: /bin/bash, args: { allow: [-c], patterns: [{ value: ".*" }] } }
  - { id: net, exec: /bin/bash, args: { allow: [-c], patterns: [{ value: ".*" }] }, network: true }
  - { id: build, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, execFromRoots: true }
  - { id: sleep, exec: sleep, args: { patterns: [{ value: "[0-9.]+" }] }, cwdPolicy: none }
`,
      "limits: { maxCmdConcurrency: 2, maxCmdQueue: 3 }",
    );
  });
  afterAll(() => world.close());

  test("the result of a command names the protections in force", async () => {
    const { protections } = ok(await sh("true"));
    expect(protections).toMatchObject({
      noNewPrivileges: true,
      seccomp: true,
      rlimits: true,
      parentDeathSignal: has("setpriv"),
      // Nothing was refused, or the answer says what.
      notes: protections.files === "view+landlock" ? [] : expect.arrayContaining(["namespaces: EPERM"]),
    });
    expect(["view+landlock", "landlock"]).toContain(protections.files);
    expect(protections.user).toBe(isRoot ? 61_953 : "same");
  });

  test("a command has no rights of root", async () => {
    const { stdout } = ok(
      await sh("id -u; cat /etc/shadow; mknod out/n c 1 3; chown 0 readme.md; mount -t tmpfs x out; chroot /"),
    );
    expect(stdout.trim()).toBe(String(isRoot ? 61_953 : process.getuid?.()));
    expect(readdirSync(world.writableRoot)).toEqual([]);
  });

  test("a command reads the roots, writes the zones, and nothing else", async () => {
    const { stdout, stderr } = ok(
      await sh(
        `cat readme.md; echo x > out/f && echo wrote; echo y > src/f; cat ${world.outside}/secret.txt; ls ${world.base}; ls /proc /sys /home /root`,
      ),
    );
    expect(stdout).toContain("hello\nwrote\n");
    expect(stdout).not.toContain("secret.txt");
    expect(stderr).toMatch(/src\/f: (Read-only file system|Permission denied)/);
    expect(readdirSync(join(world.root, "src"))).toEqual(["app.ts"]);
  });

  test("files made by one command are gone for the next, except in the writable roots", async () => {
    ok(await sh('echo leak > "$TMPDIR/leak"; mkdir -p "$TMPDIR/a/b"; ln -s / "$TMPDIR/l"'));
    const { stdout } = ok(await sh('ls -A "$TMPDIR"; ls -A "$HOME"'));
    expect(stdout).toBe("");
    expect(existsSync(join(world.root, "readme.md"))).toBe(true);
  });

  test("memory, open files and file size of a command are limited [M6]", async () => {
    expect(ok(await sh("dd if=/dev/zero of=/dev/null bs=300M count=1")).stderr).toMatch(
      /memory exhausted|Cannot allocate/,
    );
    expect(ok(await sh("ulimit -n")).stdout).toBe("64\n");
    expect(
      ok(await sh('dd if=/dev/zero of="$TMPDIR/big" bs=1M count=400 2>&1; ls -s "$TMPDIR/big" | cut -d" " -f1')).stdout,
    ).toMatch(/File too large|No space left|limit/);
  });

  test("memory and processor time of all processes of a command together are limited by a cgroup [M6]", async ({
    skip,
  }) => {
    const { protections } = ok(await sh("true"));
    const controllers = ["memory", "pids", "cpu"].filter((name) => !protections.cgroup.includes(name));
    if (controllers.length > 0) {
      skip(
        `this machine gives no cgroup v2 with ${controllers.join(", ")} (see cgroup.controllers at the host's place)`,
      );
    }
    // Each stays below its own limit of 100 MB; together they hold more than the sum that one command may have.
    const each = "{ head -c 70000000 /dev/zero; sleep 2; } | tail -c 70000000 | wc -c";
    const { stdout } = ok(await sh(`for i in 1 2 3 4 5 6 7 8; do (${each}) & done; wait`));
    expect(stdout.split("\n").filter((line) => line === "70000000").length).toBeLessThan(8);
  });

  test("a command inherits no handle of the host [M6]", async () => {
    openSync(join(world.outside, "secret.txt"), "r");
    const { stdout } = ok(await sh("for i in 3 4 5 6 7 8 9; do (: <&$i) 2>/dev/null && echo open $i; done; echo done"));
    expect(stdout).toBe("done\n");
  });

  test("a command without network reaches not even loopback, and with network reaches it [M12]", async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections++;
      socket.end("hi\n");
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as { port: number };
    const connect = `exec 3<>/dev/tcp/127.0.0.1/${port} && head -1 <&3`;
    expect(ok(await sh(connect, "bash")).exitCode).not.toBe(0);
    expect(connections).toBe(0);
    expect(ok(await sh(connect, "net")).stdout).toBe("hi\n");
    expect(connections).toBe(1);
    server.close();
  });

  test("programs in the roots are started only where the entry says so", async () => {
    writeFileSync(join(world.root, "tool.sh"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
    expect(ok(await sh("./tool.sh")).exitCode).toBe(126);
    expect(ok(await sh("./tool.sh", "build")).stdout).toBe("ran\n");
  });

  test("the policy bounds the commands that run at once and those that wait", async () => {
    const go = join(world.writableRoot, "go");
    const script = "echo x > out/started-$$-$(date +%N); while [ ! -e out/go ]; do sleep 0.05; done";
    const started = (): number => readdirSync(world.writableRoot).filter((name) => name.startsWith("started")).length;
    let settled = 0;
    const running = Array.from({ length: 7 }, () => sh(script).finally(() => settled++));
    try {
      // Two that run and two that found no place to wait: the rest waits.
      await expect.poll(() => [started(), settled], { timeout: 60_000 }).toEqual([2, 2]);
    } finally {
      writeFileSync(go, "");
    }
    const outcomes = await Promise.all(running);
    expect(started()).toBe(5);
    for (const name of readdirSync(world.writableRoot)) rmSync(join(world.writableRoot, name));
    expect(outcomes.map(rule).sort()).toEqual([
      "allowed",
      "allowed",
      "allowed",
      "allowed",
      "allowed",
      "maxCmdConcurrency",
      "maxCmdConcurrency",
    ]);
  });

  test("a directory that was replaced is resolved again", async () => {
    const other = makeWorld("  - { id: cat, exec: cat, args: { allow: [f] } }");
    const file = join(other.root, "f");
    writeFileSync(file, "one\n");
    expect(ok(await other.run("cat", ["f"])).stdout).toBe("one\n");
    await run("mv", [other.root, `${other.root}-old`]);
    await run("mkdir", ["-p", other.writableRoot]);
    writeFileSync(file, "two\n");
    expect(ok(await other.run("cat", ["f"])).stdout).toBe("two\n");
    await other.close();
  });
});

describe.skipIf(!isRoot)("started by root, in the policy's directories a command acts as their owner", () => {
  const catalog = `
  - { id: sh, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, mounts: ["\${ROOT}/../tools"] }`;
  const script = "cat readme.md; echo x > out/made; cat ../tools/open; cat ../tools/closed; id -u";

  test.each([
    ["by mapping ids, and has no rights beyond", {}, "", 0],
    ["by passing over modes where ids cannot be mapped", { ownerMapping: true }, "closed", 61_953],
  ] as const)("%s", async (_, without, closed, owner) => {
    const world = makeToolsWorld(catalog, without);
    const { stdout } = ok(await world.run("sh", ["-c", script]));
    expect(stdout).toBe(`hello\nopen\n${closed === "" ? "" : `${closed}\n`}61953\n`);
    expect(statSync(join(world.writableRoot, "made")).uid).toBe(owner);
    await world.close();
  });

  test("a command runs as the user that the operator chose", async () => {
    const world = makeToolsWorld(catalog, {}, "runAs: { uid: 12_321, gid: 12_321 }");
    const outcome = await world.run("sh", ["-c", script]);
    expect(outcome.ok ? "" : outcome.denial.reason).toContain("may not enter the working directory");
    chmodSync(world.root, 0o755);
    const { stdout } = ok(await world.run("sh", ["-c", script]));
    expect(stdout).toBe("open\n12321\n");
    await world.close();
  });

  /** Root's own directory, closed to everyone else, and a tool chain with a file that is root's alone. */
  function makeToolsWorld(commands: string, without: Without, more = ""): World {
    const world = makeWorld(commands, more, without);
    mkdirSync(join(world.base, "tools"));
    writeFileSync(join(world.base, "tools/open"), "open\n");
    writeFileSync(join(world.base, "tools/closed"), "closed\n", { mode: 0o600 });
    chmodSync(join(world.root, "readme.md"), 0o600);
    chmodSync(world.root, 0o700);
    return world;
  }
});

describe("where a sandbox cannot be had", () => {
  const nothing: Without = { native: true, bubblewrap: true };
  const catalog = "  - { id: cat, exec: cat, args: { patterns: [{ value: '[a-z./]+' }] } }";

  test("sandbox: required refuses to run without a sandbox, and names what is missing [M12]", async () => {
    const world = makeWorld(catalog, "sandbox: required", nothing);
    const outcome = await world.run("cat", ["readme.md"]);
    expect(rule(outcome)).toBe("sandboxRequired");
    expect(outcome.ok ? "" : outcome.denial.reason).toContain("file-system confinement");
    await world.close();
  });

  test("sandbox: preferred runs with the protections that exist, and names them", async () => {
    const world = makeWorld(catalog, "sandbox: preferred", nothing);
    const result = ok(await world.run("cat", ["readme.md"]));
    expect(result.stdout).toBe("hello\n");
    expect(result.protections).toMatchObject({ files: "none", network: "not restricted" });
    await world.close();
  });

  test("without a sandbox, a link leads outside, so an escape would be detected", async () => {
    const world = makeWorld(catalog, "sandbox: off");
    const { symlinkSync } = await import("node:fs");
    symlinkSync(join(world.outside, "secret.txt"), join(world.root, "l"));
    expect(ok(await world.run("cat", ["l"])).stdout).toContain("CANARY");
    await world.close();
  });

  test.skipIf(!isRoot)("each way of confining files holds by itself", async () => {
    const { symlinkSync } = await import("node:fs");
    for (const [without, files] of [
      [{}, "view+landlock"],
      [{ view: true }, "landlock"],
      [{ landlock: true }, "view"],
      ...(has("bwrap") ? [[{ native: true }, "bubblewrap"]] : []),
    ] as [Without, string][]) {
      const world = makeWorld(catalog, "", without);
      symlinkSync(join(world.outside, "secret.txt"), join(world.root, "l"));
      const good = ok(await world.run("cat", ["readme.md"]));
      expect(good).toMatchObject({ stdout: "hello\n", protections: { files } });
      const bad = ok(await world.run("cat", ["l"]));
      expect(bad.exitCode).toBe(1);
      expect(JSON.stringify(bad)).not.toContain("CANARY");
      expect(code(await world.run("cat", ["nope"]))).toBe("allowed");
      await world.close();
    }
  });
});
