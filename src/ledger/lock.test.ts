import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import promises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { compileLedger } from "./fixtures/compile.js";
import { ORIGIN } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { openLedger } from "./ledger.js";
import { acquireLock } from "./lock.js";

const scratch = scratchDirectory();

function directory(): string {
  const dir = scratch.fresh();
  mkdirSync(dir);
  return dir;
}

const withoutKernel = () => "unsupported" as const;
const bootId = (): string => readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
const lockFiles = (dir: string): string[] => readdirSync(dir).filter((name) => name.startsWith("lock."));

/** A lock as a process left it that has ended since. */
async function deadLock(dir: string, change: Record<string, unknown> = {}): Promise<void> {
  const lock = await acquireLock(dir, 0);
  const [name = ""] = lockFiles(dir);
  const owner = JSON.parse(readFileSync(join(dir, name), "utf8"));
  await lock.release();
  const child = spawn("true");
  await new Promise((resolve) => child.once("close", resolve));
  writeFileSync(join(dir, name), JSON.stringify({ ...owner, pid: child.pid, ...change }));
}

describe("the lock of a ledger directory", () => {
  it("keeps a second writer out, after the time it was told to wait [G5]", async () => {
    const dir = directory();
    const ledger = await openLedger({ dir, origin: ORIGIN });
    await expect(openLedger({ dir, origin: ORIGIN, lockTimeoutMs: 120 })).rejects.toMatchObject({
      code: "LEDGER_LOCKED",
      message: expect.stringMatching(new RegExp(`is in use by process ${process.pid} on .*, since .*; waited 120 ms`)),
    });
    await ledger.close();
    await (await openLedger({ dir, origin: ORIGIN, lockTimeoutMs: 0 })).close();
  });

  it("the lock of a ledger directory is handed over to a writer that waits", async () => {
    const dir = directory();
    const first = await acquireLock(dir, 0);
    const second = acquireLock(dir, 2_000);
    await sleep(60);
    await first.release();
    await (await second).release();
  });

  it("the lock of a ledger directory of a process that ended is taken over", async () => {
    const dir = directory();
    await deadLock(dir);
    await (await acquireLock(dir, 0)).release();
    expect(lockFiles(dir)).toEqual(["lock.2"]);
  });

  it("the lock of a ledger directory is not kept by a process that only has the same number", async () => {
    const dir = directory();
    await deadLock(dir, { pid: process.pid, started: "1" });
    await (await acquireLock(dir, 0)).release();
  });

  it("the lock of a ledger directory of another machine or container holds while it gives signs of life, and no longer", async () => {
    const dir = directory();
    await deadLock(dir, { host: "another-host", world: "another-boot pid:[1]" });
    await expect(acquireLock(dir, 0)).rejects.toThrow(
      /on another-host.*\(last sign of life 0 s ago; it counts as dead in 30 s/,
    );
    const past = new Date(Date.now() - 31_000);
    utimesSync(join(dir, lockFiles(dir)[0] as string), past, past);
    await (await acquireLock(dir, 0)).release();
  });

  it.runIf(process.platform === "linux")(
    "returns at once to a restarted container whose first life was killed [H12]",
    async () => {
      const dir = directory();
      // As a container leaves it: another host name and process namespace under the same kernel, and just now alive.
      await deadLock(dir, { host: "a-container", world: `${bootId()} pid:[1]`, kernel: true });
      await (await acquireLock(dir, 0)).release();
    },
  );

  it.runIf(process.platform === "linux")(
    "the lock of a ledger directory is held by the kernel for a living process, whatever its lock file says",
    async () => {
      const dir = directory();
      const compiled = scratch.fresh();
      mkdirSync(compiled);
      symlinkSync(join(import.meta.dirname, "../../node_modules"), join(compiled, "node_modules"));
      const script = `
      import { acquireLock } from ${JSON.stringify(join(compileLedger(compiled), "lock.js"))};
      await acquireLock(${JSON.stringify(dir)}, 0);
      console.log("held");
      setInterval(() => {}, 1000);`;
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      try {
        await new Promise((resolve) => child.stdout.once("data", resolve));
        const [name = ""] = lockFiles(dir);
        const owner = JSON.parse(readFileSync(join(dir, name), "utf8"));
        writeFileSync(join(dir, name), JSON.stringify({ ...owner, host: "gone", released: false }));
        utimesSync(join(dir, name), new Date(0), new Date(0));
        await expect(acquireLock(dir, 0)).rejects.toThrow(/is in use by process/);
      } finally {
        child.kill("SIGKILL");
        await new Promise((resolve) => child.once("close", resolve));
      }
      await (await acquireLock(dir, 0)).release();
    },
  );

  it("the lock of a ledger directory that was only half written holds for a while, and no longer", async () => {
    const dir = directory();
    writeFileSync(join(dir, "lock.1"), '{"pid"');
    await expect(acquireLock(dir, 0)).rejects.toThrow(/a process that is just starting/);
    const past = new Date(Date.now() - 31_000);
    utimesSync(join(dir, "lock.1"), past, past);
    await (await acquireLock(dir, 0)).release();
  });

  it("the lock of a ledger directory of a dead process goes to exactly one of many that want it", async () => {
    for (let round = 0; round < 20; round++) {
      const dir = directory();
      await deadLock(dir);
      const tries = await Promise.allSettled(Array.from({ length: 8 }, () => acquireLock(dir, 0, withoutKernel)));
      const winners = tries.filter((result) => result.status === "fulfilled");
      expect(winners).toHaveLength(1);
      for (const { value } of winners) await value.release();
    }
  });

  it("does not go to a process that looked long ago, after it changed hands twice", async () => {
    const dir = directory();
    await deadLock(dir);
    // The slow process has read that the owner is dead, and continues only when the others are done.
    const readFile = promises.readFile;
    let goOn = () => {};
    const pause = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const hasRead = new Promise<void>((resolve) => {
      promises.readFile = (async (...args: Parameters<typeof readFile>) => {
        const text = await readFile(...args);
        resolve();
        await pause;
        return text;
      }) as typeof readFile;
      syncBuiltinESMExports();
    });
    const slow = acquireLock(dir, 0, withoutKernel);
    await hasRead;
    promises.readFile = readFile;
    syncBuiltinESMExports();
    await (await acquireLock(dir, 0, withoutKernel)).release();
    const holder = await acquireLock(dir, 0, withoutKernel);
    expect(lockFiles(dir)).toEqual(["lock.3"]);
    goOn();
    await expect(slow).rejects.toMatchObject({ code: "LEDGER_LOCKED" });
    expect(lockFiles(dir)).toEqual(["lock.3"]);
    await holder.release();
  });

  it("the lock of a ledger directory is never held by two, however quickly it changes hands", async () => {
    const dir = directory();
    let holders = 0;
    let changes = 0;
    const work = async (): Promise<void> => {
      for (let i = 0; i < 40; i++) {
        const lock = await acquireLock(dir, 60_000);
        expect(++holders).toBe(1);
        changes++;
        await sleep(0);
        holders--;
        await lock.release();
        if (i % 3 === 0) await sleep(1);
      }
    };
    await Promise.all([1, 2, 3, 4, 5].map(work));
    expect(changes).toBe(200);
  });
});
