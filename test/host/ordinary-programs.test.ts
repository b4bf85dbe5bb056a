// What ordinary programs take for granted: /tmp, /dev/shm, /dev/stdin and its kind, /proc. All of it a command's own, gone
// with it, and no way out.

import { execFile } from "node:child_process";
import { closeSync, existsSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CmdRunResult } from "../../src/host/index.js";
import { has, missingPrograms } from "../setup/programs.js";
import { asOrdinaryUser } from "./support/as-user.js";
import { compiled } from "./support/compiled.js";
import { isRoot, unreachableForOthers } from "./support/machine.js";
import { makeWorld, ok, SECRET, type World } from "./support/world.js";

const run = promisify(execFile);

/** Scripts and what each prints. `$1` is a directory outside. */
const NEEDED: Record<string, [script: string, expected: RegExp]> = {
  "a file in /tmp": ["echo x > /tmp/f && cat /tmp/f", /^x\n$/],
  "temporary files of mktemp": ["f=$(mktemp) && g=$(mktemp -p /tmp) && echo made", /^made\n$/],
  "/dev/stdout and /dev/stderr": ["echo a > /dev/stdout; echo b > /dev/stderr", /^a\n$/],
  "/dev/fd": ["echo a | cat /dev/fd/0", /^a\n$/],
  "substituted processes": ["bash -c 'cat <(echo a)'", /^a\n$/],
  "its own program's name": ["readlink /proc/self/exe", /readlink|coreutils|busybox/],
  "its own memory": ["grep -c VmRSS /proc/self/status", /^1\n$/],
  "the machine's memory and processors": ["grep -c MemTotal /proc/meminfo; grep -c . /proc/cpuinfo", /^1\n[1-9]/],
  "shared memory": ["echo x > /dev/shm/f && cat /dev/shm/f", /^x\n$/],
  ...(has("python3")
    ? { "Python's locks": ["/usr/bin/python3 -c 'import multiprocessing; multiprocessing.Lock(); print(1)'", /^1\n$/] }
    : {}),
};

/** None may print the secret or `open`. */
const WAYS_OUT: Record<string, string> = {
  "roots and folders of processes":
    'for p in /proc/[0-9]* /proc/self /proc/1; do cat $p/root$1/secret.txt $p/cwd/../outside/secret.txt; done; cd /proc/self/cwd/.. && cat outside/secret.txt; cat "/proc/self/root$1/secret.txt"',
  "descriptors of processes":
    'for f in /proc/[0-9]*/fd/* /proc/1/fd/*; do cat "$f/secret.txt"; cat "$f$1/secret.txt"; done < /dev/null',
  "the supervisor":
    "ls /proc/1 /proc/1/fd /proc/1/root && echo open; cat /proc/1/environ && echo open; cat /proc/1/cmdline && echo open",
  "settings of the kernel":
    "for f in /proc/sys/kernel/hostname /proc/sys/vm/drop_caches /proc/sysrq-trigger /proc/self/oom_score_adj; do (echo 1 > $f) && echo open; done",
  "secrets of the kernel":
    "cat /proc/kcore /proc/keys /proc/cmdline /proc/kallsyms /proc/modules /proc/config.gz | head -c 1 | grep -q . && echo open",
  "a namespace of others": "nsenter -t 1 -m true && echo open; nsenter -m/proc/1/ns/mnt true && echo open",
};

const CATALOG = `
  - { id: sh, exec: /bin/sh, args: { allow: [-c, x], patterns: [{ value: "[^]*" }] }, limits: { maxMemoryBytes: 1_000_000_000 } }`;

interface Said {
  readonly stdout: string;
  readonly stderr: string;
}

function judge(needed: Record<string, Said>, ways: Record<string, Said>): void {
  for (const [name, [, expected]] of Object.entries(NEEDED)) {
    expect(needed[name]?.stdout, `${name}: ${needed[name]?.stderr}`).toMatch(expected);
  }
  for (const name of Object.keys(WAYS_OUT)) {
    expect(ways[name]?.stdout, name).not.toMatch(/open/);
    expect(JSON.stringify(ways[name]), name).not.toContain(SECRET);
  }
}

const isLinux = process.platform === "linux";

describe.skipIf(!isLinux)("a command", () => {
  let world: World;
  const sh = async (script: string, more: object = {}) =>
    ok(await world.run("sh", ["-c", script, "x", world.outside], more));

  beforeAll(() => {
    world = makeWorld(CATALOG);
  });
  afterAll(() => world.close());

  test("a command has what ordinary programs need, and cannot escape by it [M12]", async ({ skip }) => {
    const { protections } = await sh("true");
    if (protections.gaps.length > 0) skip(`this machine cannot give it: ${protections.gaps.join("; ")}`);
    const play = async (scripts: Record<string, string>): Promise<Record<string, Said>> => {
      const said: Record<string, Said> = {};
      for (const [name, script] of Object.entries(scripts)) said[name] = await sh(script);
      return said;
    };
    const scripts = Object.fromEntries(Object.entries(NEEDED).map(([name, [script]]) => [name, script]));
    judge(await play(scripts), await play(WAYS_OUT));
    expect((await sh("cat /dev/stdin", { stdin: "hello" })).stdout).toBe("hello");
  });

  test("a command sees its own processes in /proc, and no others", async ({ skip }) => {
    const { protections, stdout } = await sh(
      "sleep 1 & ls /proc | grep -c '^[0-9]'; cat /proc/[0-9]*/cmdline | tr '\\\\0' ' '",
    );
    if (protections.gaps.length > 0) skip(`this machine cannot give it: ${protections.gaps.join("; ")}`);
    expect(Number(stdout.split("\\n")[0]?.split("\n")[0])).toBeLessThan(6);
    expect(stdout).toContain("sleep 1");
    expect(stdout).not.toMatch(/supervisor|node /);
  });

  test("a command leaves no temporary file for the next, and the policy's directories below /tmp are kept", async () => {
    writeFileSync(join(world.writableRoot, "kept"), "kept");
    const traces =
      "echo x > /tmp/f; mkdir -p /tmp/d/e; ln -s / /tmp/l; echo x > /dev/shm/f; for d in /tmp/*/; do echo x > $d/f; done";
    await sh(`${traces}; for d in "$TMPDIR" /portcullis-tmp; do for e in $d/*/; do echo x > $e/f; done; done`);
    // The policy's own directories are seen there, as far as the tests keep theirs below /tmp.
    const own = world.base.split("/")[2];
    const left = await sh(
      `ls -A /tmp /dev/shm /portcullis-tmp/* | grep -vE '^(world-.*|${own})$'; find /tmp /dev/shm -name f`,
    );
    expect(left.stdout.replace(/^\/.*:$|^$|^total.*$/gm, "").trim()).toBe("");
    expect(readFileSync(join(world.writableRoot, "kept"), "utf8")).toBe("kept");
    expect(readdirSync(world.root).sort()).toEqual(["out", "readme.md", "src"]);
    expect(existsSync(join(world.outside, "secret.txt"))).toBe(true);
  });

  test("a command cannot fill the machine's memory by /tmp", async () => {
    const { stdout, protections } = await sh("df --output=size -B1 /tmp /dev/shm | tail -2");
    if (protections.files.startsWith("view"))
      for (const size of stdout.trim().split("\n")) expect(Number(size)).toBeLessThan(300_000_000);
  });

  test("a command inherits no descriptor that was left open for the host [M6]", async () => {
    const secret = openSync(join(world.outside, "secret.txt"), "r");
    const script = `
      import { makeWorld } from ${JSON.stringify(compiled("test/host/support/world.js"))};
      for (const [mode, without] of [["off", { native: true }], ["off", {}], ["preferred", {}]]) {
        const world = makeWorld(${JSON.stringify(CATALOG)}, "sandbox: " + mode, without);
        const { result } = await world.run("sh", ["-c", "bash -c 'cat <&99'"]);
        console.log(result.stdout);
        await world.close();
      }`;
    // Node itself closes the first few to its children, no others.
    const child = run("/bin/bash", [
      "-c",
      `exec "$@" 99<&0`,
      "bash",
      process.execPath,
      "--input-type=module",
      "-e",
      script,
    ]);
    child.child.stdin?.end(readFileSync(secret));
    closeSync(secret);
    expect((await child).stdout.trim()).toBe("");
  });
});

const closed = isLinux ? (isRoot ? unreachableForOthers() : "the tests above ran as one") : "Linux only";

test.skipIf(closed !== undefined)(
  `the same for an ordinary user's host${closed === undefined ? "" : ` [${closed}]`}`,
  async ({ skip }) => {
    const report = await asOrdinaryUser<{ gaps: string[]; said: Record<string, Said> }>(`
    const world = makeWorld(${JSON.stringify(CATALOG)});
    const said = {};
    let gaps = [];
    for (const [name, script] of ${JSON.stringify([...Object.entries(NEEDED).map(([name, [script]]) => [name, script]), ...Object.entries(WAYS_OUT)])}) {
      const outcome = await world.run("sh", ["-c", script, "x", world.outside]);
      said[name] = outcome.ok ? { stdout: outcome.result.stdout, stderr: outcome.result.stderr } : { stdout: JSON.stringify(outcome.denial), stderr: "" };
      gaps = outcome.ok ? outcome.result.protections.gaps : gaps;
    }
    await world.close();
    return { gaps, said };`);
    if (report.gaps.length > 0) skip(`this machine cannot give it: ${report.gaps.join("; ")}`);
    judge(report.said, report.said);
  },
);

test.skipIf(closed !== undefined)(
  `where the machine covers parts of /proc, a command goes without it, and the answer says so${closed === undefined ? "" : ` [${closed}]`}`,
  async ({ skip }) => {
    const missing = missingPrograms("setpriv", "unshare");
    if (missing !== undefined) skip(missing);
    const body = `
      const world = makeWorld(${JSON.stringify(CATALOG)});
      const outcome = await world.run("sh", ["-c", "ls /proc; echo x > /tmp/f && cat /tmp/f"]);
      await world.close();
      return outcome;`;
    const { result } = await asOrdinaryUser<{ result: CmdRunResult }>(body, "covered /proc");
    if (!result.protections.files.startsWith("view")) skip("this machine gives ordinary users no view");
    expect(result.stdout).toBe("x\n");
    expect(result.protections.notes).toEqual(["/proc: EPERM"]);
    expect(result.protections.gaps.join()).toContain("no /proc");
  },
);

test.skipIf(!isRoot || !has("bwrap"))("bubblewrap gives the same, with the same filter", async () => {
  const world = makeWorld(CATALOG, "", { native: true });
  for (const [name, [script, expected]] of Object.entries(NEEDED)) {
    const { stdout, stderr, protections } = ok(await world.run("sh", ["-c", script, "x", world.outside]));
    expect(protections).toMatchObject({ files: "bubblewrap", network: "namespace+seccomp", seccomp: true });
    expect(stdout, `${name}: ${stderr}`).toMatch(expected);
  }
  const closed =
    "ls /proc/self/fd | grep -c .; (: <&3) && echo open; unshare -U true && echo open; prlimit -p 1 --cpu=9 && echo open";
  expect(ok(await world.run("sh", ["-c", closed])).stdout).toBe("4\n");
  await world.close();
});
