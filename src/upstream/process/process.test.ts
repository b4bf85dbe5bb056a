import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { type Containment, makeContainer } from "../../host/index.js";
import { ownCgroupDirectory } from "../../host/sandbox/cgroup.js";
import { loadKoffi } from "../../lib/index.js";
import type { StdioTarget } from "../types.js";
import { ServerProcess, StderrTail } from "./server-process.js";

const SERVER = join(import.meta.dirname, "../fixtures/server.mjs");
const OPTIONS = { leaveMs: 1_000, graceMs: 300, stderrBytes: 4_096 };

const running: ServerProcess[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
});

async function start(args: string[], target: Partial<StdioTarget> = {}): Promise<ServerProcess> {
  const server = await ServerProcess.start({ transport: "stdio", command: process.execPath, args, ...target }, OPTIONS);
  running.push(server);
  return server;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

let leaks = 0;

/** Asks the fixture to start a process in a session of its own; its id as we see it. */
async function leak(server: ServerProcess, clean: boolean): Promise<number> {
  const mark = `leaked-${process.pid}-${++leaks}`;
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "leak", arguments: { clean, mark } } };
  server.stdin.write(`${JSON.stringify(call)}\n`);
  await new Promise((resolve) => server.stdout.once("data", resolve));
  for (let tries = 0; tries < 200; tries++) {
    const pid = leakedAs(mark);
    if (pid !== undefined) return pid;
    await sleep(20);
  }
  throw new Error("nothing was leaked");
}

function leakedAs(mark: string): number | undefined {
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      if (readFileSync(`/proc/${name}/cmdline`, "utf8").endsWith(`\0${mark}\0`)) return Number(name);
    } catch {
      // Gone between the two looks.
    }
  }
  return undefined;
}

const NO_TTY = 0o400;
const READ_WRITE = 2;

/** A pseudo-terminal of this user, as a shell has one; undefined where the machine has none. */
function openTerminal(): { path: string; close(): void } | undefined {
  const libc = loadKoffi()?.load(null);
  const master = libc?.func("posix_openpt", "int", ["int"])(READ_WRITE | NO_TTY) ?? -1;
  if (libc === undefined || master < 0) return undefined;
  libc.func("unlockpt", "int", ["int"])(master);
  return { path: libc.func("ptsname", "str", ["int"])(master) as unknown as string, close: () => closeSync(master) };
}

async function available(kind: Containment): Promise<boolean> {
  try {
    await (await makeContainer(kind)).remove();
    return true;
  } catch {
    return false;
  }
}

const linux = process.platform === "linux";

describe("a stopped server", () => {
  it.runIf(linux).each(["cgroup", "pid-namespace", "process-group"] as const)(
    "a stopped server takes what it started along, daemons of their own session too: %s",
    async (containment) => {
      if (!(await available(containment))) return console.warn(`skipped: no ${containment} can be had here`);
      const server = await start([SERVER], { containment });
      expect(server.containment).toBe(containment);
      const pid = await leak(server, false);
      expect(isAlive(pid)).toBe(true);
      await server.stop();
      expect(isAlive(pid)).toBe(false);
      expect(isAlive(server.pid as number)).toBe(false);
    },
  );

  it.runIf(linux).each(["cgroup", "pid-namespace"] as const)(
    "a stopped server cannot hide a daemon by clearing its environment: %s",
    async (containment) => {
      if (!(await available(containment))) return console.warn(`skipped: no ${containment} can be had here`);
      const server = await start([SERVER], { containment });
      const pid = await leak(server, true);
      await server.stop();
      expect(isAlive(pid)).toBe(false);
    },
  );

  it.runIf(linux)("would leave that daemon behind if only its group were ended", async () => {
    const server = await start([SERVER], { containment: "process-group" });
    const pid = await leak(server, false);
    process.kill(-(server.pid as number), "SIGKILL");
    await server.ended;
    expect(isAlive(pid)).toBe(true);
    await server.stop();
    expect(isAlive(pid)).toBe(false);
  });

  it("leaves by itself when its input ends, without a signal", async () => {
    const server = await ServerProcess.start(
      { transport: "stdio", command: process.execPath, args: [SERVER] },
      { ...OPTIONS, leaveMs: 120_000 },
    );
    running.push(server);
    await server.stop();
    expect(await server.ended).toBe("exit code 0");
  });

  it("a stopped server is killed when it neither leaves nor heeds", async () => {
    const server = await ServerProcess.start(
      { transport: "stdio", command: process.execPath, args: [SERVER, "stubborn"] },
      { ...OPTIONS, leaveMs: 100, graceMs: 100 },
    );
    await expect.poll(() => server.stderrTail).toBe("stubborn");
    await server.stop();
    // Behind a launcher the signal may show as an exit code, whichever that launcher has for it.
    expect(await server.ended).toMatch(/SIGKILL|exit code [1-9]/);
    expect(isAlive(server.pid as number)).toBe(false);
  });

  it.runIf(linux)("leaves no cgroup behind", async () => {
    if (!(await available("cgroup"))) return console.warn("skipped: no cgroup can be had here");
    const server = await start([SERVER, "leaks"], { containment: "cgroup" });
    const place = (): string =>
      /portcullis-\d+-\d+-\S+/.exec(readFileSync(`/proc/${server.pid}/cgroup`, "utf8"))?.[0] ?? "";
    await expect.poll(place).not.toBe("");
    const directory = join(ownCgroupDirectory() as string, place());
    expect(existsSync(directory)).toBe(true);
    await server.stop();
    expect(existsSync(directory)).toBe(false);
  });
});

describe("a server that is started", () => {
  it("a server that is started gets what was configured for it and a small base, nothing else of our environment", async () => {
    process.env.PORTCULLIS_TEST_SECRET = "hunter2";
    try {
      const server = await start([SERVER, "env"], { env: { GIVEN: "yes" } });
      await expect.poll(() => server.stderrTail).toContain("GIVEN");
      const seen = JSON.parse(server.stderrTail) as Record<string, string>;
      expect(seen.GIVEN).toBe("yes");
      expect(seen.PATH).toBe(process.env.PATH);
      expect(Object.keys(seen)).not.toContain("PORTCULLIS_TEST_SECRET");
    } finally {
      delete process.env.PORTCULLIS_TEST_SECRET;
    }
  });

  it("a server that is started says clearly when there is no such program", async () => {
    const missing = ServerProcess.start({ transport: "stdio", command: "no-such-program" }, OPTIONS);
    await expect(missing).rejects.toMatchObject({
      type: "Unavailable",
      message: "`no-such-program` cannot be started: there is no such program",
    });
    await expect(
      ServerProcess.start({ transport: "stdio", command: process.execPath, cwd: "/no/such/folder" }, OPTIONS),
    ).rejects.toMatchObject({ type: "Unavailable" });
  });

  it("a server that is started has its end of stderr kept, and only those", async () => {
    const server = await start([SERVER, "noisy"]);
    await expect.poll(() => server.stderrTail).toMatch(/last words$/);
    expect(server.stderrTail.length).toBeLessThanOrEqual(OPTIONS.stderrBytes);
  });
});

describe.runIf(linux)("a server with a sandbox", () => {
  const where = { hidden: [], readOnly: [] };
  const script = "process.stderr.write(String(process.getuid()))";

  it("a server with a sandbox is refused with the reason when the sandbox is required and cannot be had [G8]", async () => {
    const sandbox = { ...where, mode: "required", without: { native: true } } as const;
    await expect(start(["-e", script], { sandbox })).rejects.toMatchObject({
      type: "Unavailable",
      message: expect.stringMatching(/koffi.*cannot be loaded here, and its entry says `sandbox: required`/),
    });
  });

  it("a server with a sandbox runs without one when it is only preferred, and states what stays open", async () => {
    const server = await start(["-e", script], { sandbox: { ...where, mode: "preferred", without: { native: true } } });
    expect(server.protections).toMatchObject({ files: "none", processes: "none", user: "same" });
    expect(server.protections.gaps.join()).toContain("the operator's token included");
  });

  it.each([
    ["in its own directory", (dir: string) => join(dir, "state/evil/db")],
    ["outside", (dir: string) => `${dir}-outside`],
  ])("does not reach another server's state by a link that it left %s [G8]", async (_, linkIn) => {
    const dir = mkdtempSync(join(tmpdir(), "portcullis-links-"));
    const link = linkIn(dir);
    try {
      for (const name of ["evil", "other"]) mkdirSync(join(dir, "state", name), { recursive: true });
      writeFileSync(join(dir, "state/other/memory"), "secret");
      symlinkSync(join(dir, "state/other"), link);
      const read = `for(const f of JSON.parse(atob(process.argv[1])))try{process.stderr.write(require("fs").readFileSync(f))}catch{}`;
      // In another spelling: a path among the arguments would be one that the entry names.
      const paths = btoa(JSON.stringify([join(dir, "state/other/memory"), join(link, "memory")]));
      const server = await start(["-e", read, paths], {
        env: { STATE: link },
        sandbox: { mode: "preferred", hidden: [dir], readOnly: [] },
      });
      await server.ended;
      expect(server.stderrTail).toBe("");
    } finally {
      rmSync(dir, { recursive: true, force: true });
      rmSync(link, { force: true });
    }
  });

  it("sees a path that its entry names in a hidden directory, also when that is named by a link", async () => {
    const base = mkdtempSync(join(tmpdir(), "portcullis-named-"));
    const dir = join(base, "link");
    try {
      mkdirSync(join(base, "real/state/own"), { recursive: true });
      symlinkSync(join(base, "real"), dir);
      const write = `require("fs").writeFileSync(process.env.STATE+"/made","x");process.stderr.write("written")`;
      const server = await start(["-e", write], {
        env: { STATE: join(dir, "state/own") },
        sandbox: { mode: "preferred", hidden: [dir], readOnly: [] },
      });
      await server.ended;
      expect(server.stderrTail).toBe("written");
      expect(existsSync(join(base, "real/state/own/made"))).toBe(true);
    } finally {
      rmSync(base, { recursive: true, force: true });
    }
  });

  it.each([
    ["read a hidden directory", "data/operator.token", "r"],
    ["read a hidden directory by a link beside it", "link/operator.token", "r"],
    ["change what is read-only by a link beside the hidden directory", "rules/policy.cedar", "r+"],
    ["open the terminal of another process", "terminal", "r+"],
  ])(
    "a server with a sandbox cannot %s by Landlock alone, where namespaces are closed [G8]",
    async (_, name, flags) => {
      const base = mkdtempSync(join(tmpdir(), "portcullis-landlock-"));
      const terminal = openTerminal();
      try {
        const dir = join(base, "data");
        const rules = join(base, "other", "rules");
        for (const each of [dir, rules]) mkdirSync(each, { recursive: true });
        writeFileSync(join(dir, "operator.token"), "secret");
        writeFileSync(join(rules, "policy.cedar"), "permit");
        symlinkSync(dir, join(base, "link"));
        symlinkSync(rules, join(base, "rules"));
        const path = name === "terminal" ? terminal?.path : join(base, name);
        if (path === undefined) return console.warn("skipped: no pseudo-terminals here");
        closeSync(openSync(path, flags));
        const open = `try{require("fs").openSync(${JSON.stringify(path)},"${flags}");process.stderr.write("opened")}catch(e){process.stderr.write(e.code)}`;
        const without = { view: true, pidNamespace: true };
        const server = await start(["-e", open], {
          sandbox: { mode: "preferred", hidden: [dir], readOnly: [rules], without },
        });
        if (server.protections.files !== "landlock") return console.warn("skipped: no Landlock here");
        await server.ended;
        expect(server.stderrTail).toBe("EACCES");
      } finally {
        terminal?.close();
        rmSync(base, { recursive: true, force: true });
      }
    },
  );
});

describe("a tail", () => {
  it("a stderr tail is the end of what was pushed, whatever the pieces", () => {
    const tail = new StderrTail(5);
    for (const piece of ["a", "bcdefg", "", "hi", "j"]) tail.push(Buffer.from(piece));
    expect(tail.text()).toBe("fghij");
  });
});
