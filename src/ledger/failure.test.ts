import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { LedgerRecord } from "./entry.js";
import { decision, ORIGIN, outcome, randomFrom } from "./fixtures/entries.js";
import { type Fault, FaultyDisk, type Operation } from "./fixtures/faulty-disk.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { type Ledger, type LedgerOptions, openLedger } from "./ledger.js";
import { read } from "./read.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();

async function openFaulty(
  more: Partial<LedgerOptions> = {},
): Promise<{ dir: string; disk: FaultyDisk; ledger: Ledger }> {
  const dir = scratch.fresh();
  const disk = new FaultyDisk();
  const ledger = await openLedger({ dir, origin: ORIGIN, disk, retryMs: 5, checkpointMs: 10_000, ...more });
  return { dir, disk, ledger };
}

async function recordsOf(dir: string): Promise<LedgerRecord[]> {
  const records: LedgerRecord[] = [];
  for await (const { record } of read(dir)) records.push(record);
  return records;
}

const callsOf = (records: readonly LedgerRecord[], kind: "decision" | "outcome"): string[] =>
  records.flatMap((record) => (record.kind === kind ? [record.call] : []));

/** The file that records go to. */
function segmentIn(dir: string): string {
  return join(dir, readdirSync(dir).find((name) => name.startsWith("seq-")) ?? "");
}

const onRecords = (operation: Operation, fault: Fault) => (done: Operation, name: string) =>
  done === operation && name.startsWith("seq-") ? fault : undefined;

async function untilHealthy(ledger: Ledger): Promise<void> {
  for (let i = 0; i < 400 && !ledger.status().healthy; i++) await sleep(5);
  expect(ledger.status().healthy).toBe(true);
}

describe("a disk that cannot take a record", () => {
  const troubles: [string, string, RegExp][] = [
    ["ENOSPC", "disk_full", /the disk is full \(ENOSPC\); free space/],
    ["EROFS", "read_only", /the disk is read-only \(EROFS\); mount it writable/],
    ["EACCES", "no_permission", /permission is denied \(EACCES\); give the user/],
    ["EIO", "io_error", /EIO: .*; check the disk/],
  ];
  for (const [code, reason, message] of troubles) {
    it(`rejects with AUDIT_FAILURE and says what to do on ${code}, and recovers by itself`, async () => {
      const { dir, disk, ledger } = await openFaulty();
      disk.fault = onRecords("write", { code, partial: 0.7 });
      const refused = await ledger.append(decision("refused")).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: "AUDIT_FAILURE", reason });
      expect(String(refused)).toMatch(message);
      expect(ledger.status()).toMatchObject({ healthy: false, lastError: refused });
      disk.fault = () => undefined;
      await untilHealthy(ledger);
      await ledger.append(decision("accepted"));
      await ledger.close();
      const records = await recordsOf(dir);
      expect(callsOf(records, "decision")).toEqual(["accepted"]);
      expect(records.find((record) => record.kind === "admin")).toMatchObject({ action: "ledger.recovered" });
      expect((await verify(dir)).problems).toEqual([]);
    });
  }

  it.each<[string, (dir: string, aside: string) => void]>([
    ["whose directory was moved away", (dir, aside) => renameSync(dir, aside)],
    ["whose file was moved away", (dir, aside) => renameSync(segmentIn(dir), aside)],
  ])("rejects records into a ledger %s, and continues when it is restored", async (_, takeAway) => {
    const { dir, ledger } = await openFaulty();
    await ledger.append(decision("before"));
    const segment = segmentIn(dir);
    const aside = `${dir}-aside`;
    takeAway(dir, aside);
    const refused = await ledger.append(decision("lost")).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "AUDIT_FAILURE", reason: "io_error" });
    expect(String(refused)).toContain("is not there any more");
    expect(ledger.status().healthy).toBe(false);
    await sleep(20);
    await expect(ledger.append(decision("still lost"))).rejects.toMatchObject({ code: "AUDIT_FAILURE" });
    if (statSync(aside).isDirectory()) renameSync(aside, dir);
    else renameSync(aside, segment);
    await untilHealthy(ledger);
    await ledger.append(decision("after"));
    await ledger.close();
    expect(callsOf(await recordsOf(dir), "decision")).toEqual(["before", "after"]);
    expect((await verify(dir)).problems).toEqual([]);
  });

  it("continues in a copy that replaced the file when the copy is complete", async () => {
    const { dir, ledger } = await openFaulty();
    await ledger.append(decision("before"));
    const segment = segmentIn(dir);
    writeFileSync(`${dir}-copy`, readFileSync(segment), { mode: 0o600 });
    renameSync(`${dir}-copy`, segment);
    await expect(ledger.append(decision("lost"))).rejects.toMatchObject({ code: "AUDIT_FAILURE" });
    await untilHealthy(ledger);
    await ledger.append(decision("after"));
    await ledger.close();
    expect(callsOf(await recordsOf(dir), "decision")).toEqual(["before", "after"]);
    expect((await verify(dir)).problems).toEqual([]);
  });

  it("takes no more records into a ledger that was removed, and makes no new one in its place", async () => {
    const { dir, ledger } = await openFaulty();
    await ledger.append(decision("before"));
    const segment = segmentIn(dir);
    rmSync(dir, { recursive: true });
    for (let i = 0; i < 5; i++) {
      await expect(ledger.append(decision(`lost-${i}`))).rejects.toMatchObject({ code: "AUDIT_FAILURE" });
      await sleep(10);
    }
    mkdirSync(dir, { mode: 0o700 });
    await sleep(20);
    await expect(ledger.append(decision("lost"))).rejects.toThrow("is not there any more");
    expect(existsSync(segment)).toBe(false);
    await ledger.close().catch(() => {});
  });

  it("rejects everything that waits behind a write that failed, and writes none of it later", async () => {
    const { dir, disk, ledger } = await openFaulty();
    disk.fault = onRecords("sync", "hang");
    const first = ledger.append(decision("first"));
    while (disk.held.length === 0) await sleep(1);
    const waiting = [1, 2, 3].map((i) => ledger.append(decision(`waiting-${i}`)));
    disk.fault = onRecords("write", { code: "ENOSPC", partial: 0.5 });
    disk.release();
    await expect(first).resolves.toEqual({ seq: 2 });
    for (const append of waiting) await expect(append).rejects.toMatchObject({ reason: "disk_full" });
    disk.fault = () => undefined;
    await untilHealthy(ledger);
    await ledger.close();
    expect(callsOf(await recordsOf(dir), "decision")).toEqual(["first"]);
  });

  it("does not acknowledge what was written but not synced, and takes it back", async () => {
    const { dir, disk, ledger } = await openFaulty();
    disk.fault = onRecords("sync", { code: "EIO" });
    await expect(ledger.append(decision("unsynced"))).rejects.toMatchObject({ code: "AUDIT_FAILURE" });
    disk.fault = () => undefined;
    await untilHealthy(ledger);
    const { seq } = await ledger.append(decision("synced"));
    await ledger.close();
    const records = await recordsOf(dir);
    expect(callsOf(records, "decision")).toEqual(["synced"]);
    expect(records[seq]).toMatchObject({ call: "synced" });
  });

  it("keeps outcomes without a waiting caller and writes them after recovery", async () => {
    const { dir, disk, ledger } = await openFaulty();
    await ledger.append(decision("ran"));
    disk.fault = onRecords("write", { code: "ENOSPC" });
    ledger.appendSoon(outcome("ran", { ts: 1_700_000_000_000 }));
    while (ledger.status().healthy) await sleep(1);
    ledger.appendSoon(outcome("ran-too"));
    disk.fault = () => undefined;
    await untilHealthy(ledger);
    await ledger.close();
    const records = await recordsOf(dir);
    expect(callsOf(records, "outcome")).toEqual(["ran", "ran-too"]);
    expect(records.find((record) => record.kind === "outcome")?.ts).toBe("2023-11-14T22:13:20.000Z");
  });

  it("tries again with the next record as soon as the pause is over", async () => {
    const { disk, ledger } = await openFaulty({ retryMs: 50 });
    disk.fault = onRecords("write", { code: "ENOSPC" });
    await expect(ledger.append(decision("a"))).rejects.toMatchObject({ reason: "disk_full" });
    let attempts = 0;
    disk.fault = (operation, name) => {
      if (operation === "write" && name.startsWith("seq-")) attempts++;
      return undefined;
    };
    await expect(ledger.append(decision("b"))).rejects.toMatchObject({ reason: "disk_full" });
    expect(attempts).toBe(0);
    await sleep(60);
    await expect(ledger.append(decision("c"))).resolves.toMatchObject({ seq: 3 });
    await ledger.close();
  });

  it("says at close how many outcomes are left, and the next start records them as unknown", async () => {
    const { dir, disk, ledger } = await openFaulty();
    await ledger.append(decision("ran"));
    disk.fault = onRecords("write", { code: "ENOSPC" });
    ledger.appendSoon(outcome("ran"));
    await expect(ledger.close()).rejects.toThrow(/1 outcome records could not be written before closing/);
    await expect(ledger.append(decision("late"))).rejects.toMatchObject({ reason: "closed" });
    const again = await openLedger({ dir, origin: ORIGIN });
    await again.close();
    const unknown = (await recordsOf(dir)).filter((record) => record.kind === "outcome");
    expect(unknown).toMatchObject([{ call: "ran", outcome: "unknown", latency_ms: null }]);
  });

  it("continues to record when only the checkpoint cannot be stored, and reports it", async () => {
    const { dir, disk, ledger } = await openFaulty({ checkpointMs: 5 });
    disk.fault = (operation, name) => (operation === "rename" && name === "checkpoint" ? { code: "EIO" } : undefined);
    await ledger.append(decision("a"));
    await expect(ledger.checkpoint()).rejects.toThrow(/EIO/);
    expect(ledger.status()).toMatchObject({ healthy: true, checkpointSize: 2 });
    expect(String(ledger.status().lastError)).toMatch(/EIO/);
    disk.fault = () => undefined;
    for (let i = 0; i < 200 && ledger.status().checkpointSize < 3; i++) await sleep(5);
    expect(ledger.status()).toMatchObject({ checkpointSize: 3, lastError: undefined });
    await ledger.close();
    expect((await verify(dir)).covered).toBe(3);
  });

  it("stops, rather than fall behind without limit, when tiles cannot be written", async () => {
    const { disk, ledger } = await openFaulty();
    disk.fault = (operation, name) => (operation === "write" && name === "0" ? { code: "EDQUOT" } : undefined);
    for (let i = 0; i < 16; i++) {
      await Promise.all(
        Array.from({ length: 4_097 }, (_, k) => ledger.append(decision(`${i}-${k}`, { effect: "deny" }))),
      );
    }
    await expect(ledger.append(decision("one more"))).rejects.toMatchObject({ reason: "disk_full" });
    expect(ledger.status().healthy).toBe(false);
    disk.fault = () => undefined;
    await ledger.checkpoint();
    await ledger.append(decision("accepted"));
    await ledger.close();
  });

  it("survives random faults of every kind: what was acknowledged is there once, what was rejected is not", async () => {
    for (let seed = 1; seed <= 6; seed++) {
      const random = randomFrom(seed);
      const { dir, disk, ledger } = await openFaulty({ retryMs: 1, maxSegmentBytes: 6_000, checkpointMs: 3 });
      disk.fault = () => {
        if (random() > 0.08) return undefined;
        return { code: ["ENOSPC", "EIO", "EROFS"][Math.floor(random() * 3)] as string, partial: random() };
      };
      const accepted: string[] = [];
      const rejected: string[] = [];
      const work = async (worker: number): Promise<void> => {
        for (let i = 0; i < 40; i++) {
          const call = `${worker}-${i}`;
          await ledger.append(decision(call)).then(
            () => {
              accepted.push(call);
              ledger.appendSoon(outcome(call));
            },
            () => rejected.push(call),
          );
          if (random() < 0.3) await sleep(random() * 3);
        }
      };
      await Promise.all([0, 1, 2, 3, 4].map(work));
      disk.fault = () => undefined;
      await untilHealthy(ledger);
      await ledger.close();
      const records = await recordsOf(dir);
      expect(callsOf(records, "decision").sort(), `seed ${seed}`).toEqual(accepted.sort());
      expect(callsOf(records, "outcome").sort()).toEqual(accepted);
      expect(rejected.length).toBeGreaterThan(0);
      expect((await verify(dir)).problems).toEqual([]);
    }
  });
});

describe("a directory that another process took over", () => {
  it("gets no further record from this one", async () => {
    let tellLost: (why: string) => void = () => {};
    const disk = new FaultyDisk();
    disk.lock = async () => ({
      onLost(tell) {
        tellLost = tell;
      },
      async release() {},
    });
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN, disk, retryMs: 1 });
    disk.fault = onRecords("sync", "hang");
    const inFlight = ledger.append(decision("in flight"));
    while (disk.held.length === 0) await sleep(1);
    tellLost("another process took over");
    await expect(inFlight).rejects.toMatchObject({ code: "AUDIT_FAILURE", reason: "taken_over" });
    disk.fault = () => undefined;
    disk.release();
    await sleep(20);
    await expect(ledger.append(decision("later"))).rejects.toMatchObject({ reason: "taken_over" });
    expect(ledger.status()).toMatchObject({ healthy: false, size: 2 });
    await expect(ledger.checkpoint()).rejects.toThrow(/belongs to another process now/);
    writeFileSync(join(dir, "checkpoint"), "of the other process");
    await ledger.close();
    expect(readFileSync(join(dir, "checkpoint"), "utf8")).toBe("of the other process");
  });
});

describe("limits", () => {
  it("rejects records when too many wait, and takes them again later", async () => {
    const { dir, disk, ledger } = await openFaulty({ maxPending: 10 });
    disk.fault = onRecords("sync", "hang");
    const accepted = Array.from({ length: 10 }, (_, i) => ledger.append(decision(`${i}`)));
    await expect(ledger.append(decision("11th"))).rejects.toMatchObject({
      code: "AUDIT_FAILURE",
      reason: "queue_full",
      message: expect.stringMatching(/^10 records \(\d+ bytes\) wait to be written to .*; slow the callers down/),
    });
    while (disk.held.length === 0) await sleep(1);
    disk.fault = () => undefined;
    disk.release();
    await Promise.all(accepted);
    await ledger.append(decision("later"));
    await ledger.close();
    expect(callsOf(await recordsOf(dir), "decision")).toHaveLength(11);
  });

  it("never loses an outcome silently: beyond every limit it stops, and a record says how many are missing", async () => {
    const { dir, disk, ledger } = await openFaulty({ maxPending: 4 });
    disk.fault = onRecords("sync", "hang");
    const first = ledger.append(decision("first"));
    while (disk.held.length === 0) await sleep(1);
    for (let i = 0; i < 20; i++) ledger.appendSoon(outcome(`${i}`));
    expect(ledger.status()).toMatchObject({ healthy: false });
    await expect(ledger.append(decision("no"))).rejects.toMatchObject({ reason: "queue_full" });
    disk.fault = () => undefined;
    disk.release();
    await first;
    await untilHealthy(ledger);
    await ledger.close();
    const records = await recordsOf(dir);
    const written = callsOf(records, "outcome").length;
    const lost = records.find((record) => record.kind === "admin" && record.action === "ledger.lost");
    expect(lost).toMatchObject({ detail: { count: 20 - written } });
    expect(written).toBe(11);
  });

  it("rejects a record that is too long or not JSON, and accepts the next one", async () => {
    const { dir, ledger } = await openFaulty({ maxLineBytes: 2_000, keepArguments: true });
    await expect(ledger.append(decision("long", { args: "x".repeat(3_000) }))).rejects.toMatchObject({
      code: "AUDIT_FAILURE",
      reason: "entry_too_large",
    });
    const loop: Record<string, unknown> = {};
    loop.self = loop;
    await expect(ledger.append(decision("loop", { detail: loop }))).rejects.toMatchObject({ reason: "entry_invalid" });
    expect(() => ledger.appendSoon(outcome("loop", { detail: { big: 1n } }))).toThrow(/plain JSON value/);
    await ledger.append(decision("fine"));
    await ledger.close();
    expect(callsOf(await recordsOf(dir), "decision")).toEqual(["fine"]);
  });

  it("rejects permits when too many calls have no outcome, but still takes outcomes", async () => {
    const { ledger } = await openFaulty({ maxOpenCalls: 2 });
    await ledger.append(decision("a"));
    await ledger.append(decision("b"));
    await expect(ledger.append(decision("c"))).rejects.toMatchObject({ reason: "queue_full" });
    await ledger.append(decision("denied", { effect: "deny" }));
    await ledger.append(outcome("a"));
    await ledger.append(decision("c"));
    await ledger.close();
  });
});

async function eventually(run: () => void): Promise<void> {
  for (let i = 0; ; i++) {
    try {
      return run();
    } catch (error) {
      if (i === 100) throw error;
      await sleep(10);
    }
  }
}

describe("a real disk", () => {
  /** A small file system of its own, or why there is none. */
  function mountSmall(options: string): { path: string; remount: (options: string) => void } | string {
    if (process.platform !== "linux" || process.getuid?.() !== 0) return "mounting a small tmpfs needs Linux and root";
    const path = scratch.fresh();
    mkdirSync(path);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", path], { stdio: "pipe" });
    } catch (error) {
      return `mounting a small tmpfs failed: ${String(error)}`;
    }
    return { path, remount: (more) => void execFileSync("mount", ["-o", `remount,${more}`, path], { stdio: "pipe" }) };
  }

  it("a real disk that is full stops calls with a clear error, and recording resumes when there is room again", async (context) => {
    const disk = mountSmall("size=128k");
    if (typeof disk === "string") return context.skip(disk);
    try {
      const dir = join(disk.path, "ledger");
      const ledger = await openLedger({ dir, origin: ORIGIN, retryMs: 5, maxSegmentBytes: 20_000, checkpointMs: 20 });
      const accepted: string[] = [];
      let refused: unknown;
      for (let i = 0; i < 2_000 && refused === undefined; i++) {
        await ledger.append(decision(`${i}`)).then(
          () => accepted.push(`${i}`),
          (error: unknown) => {
            refused = error;
          },
        );
      }
      expect(refused).toMatchObject({ code: "AUDIT_FAILURE", reason: "disk_full" });
      // A full disk can be mounted anew: no file is held open for long while nothing can be written.
      await eventually(() => disk.remount("ro"));
      // Between two tries the last reason stands; the next try finds the new one.
      let told: unknown;
      for (let i = 0; i < 200 && (told as { reason?: string })?.reason !== "read_only"; i++) {
        told = await ledger.append(decision("read-only")).catch((error: unknown) => error);
        await sleep(5);
      }
      expect(told).toMatchObject({ code: "AUDIT_FAILURE", reason: "read_only" });
      disk.remount("rw,size=8m");
      await untilHealthy(ledger);
      for (let i = 0; i < 50; i++) accepted.push(await ledger.append(decision(`more-${i}`)).then(() => `more-${i}`));
      await ledger.close();
      expect(callsOf(await recordsOf(dir), "decision")).toEqual(accepted);
      expect((await verify(dir)).problems).toEqual([]);
    } finally {
      execFileSync("umount", ["-l", disk.path]);
    }
  });

  it("a real disk that is full when a checkpoint is written loses no record, and the checkpoint follows when there is room", async (context) => {
    const disk = mountSmall("size=8m");
    if (typeof disk === "string") return context.skip(disk);
    try {
      const dir = join(disk.path, "ledger");
      const ledger = await openLedger({ dir, origin: ORIGIN, retryMs: 5, checkpointMs: 20 });
      await ledger.append(decision("before"));
      await ledger.checkpoint();
      const { blocks, bfree, bsize } = statfsSync(disk.path);
      disk.remount(`size=${(blocks - bfree) * bsize}`);
      // The last page of the segment has room for a record; another file has none.
      await ledger.append(decision("during"));
      await expect(ledger.checkpoint()).rejects.toThrow(/ENOSPC/);
      expect(ledger.status()).toMatchObject({ healthy: true, checkpointSize: 3 });
      expect(String(ledger.status().lastError)).toMatch(/ENOSPC/);
      expect((await verify(dir)).problems).toEqual([]);
      disk.remount("size=8m");
      await eventually(() => expect(ledger.status()).toMatchObject({ checkpointSize: 4, lastError: undefined }));
      await ledger.close();
      expect(callsOf(await recordsOf(dir), "decision")).toEqual(["before", "during"]);
      expect((await verify(dir)).covered).toBe(4);
      expect(readdirSync(dir).filter((name) => name.startsWith("checkpoint"))).toEqual(["checkpoint"]);
    } finally {
      execFileSync("umount", ["-l", disk.path]);
    }
  });

  it("a real disk that is read-only refuses the start with a clear error, and starts when it is writable", async (context) => {
    const disk = mountSmall("size=1m");
    if (typeof disk === "string") return context.skip(disk);
    try {
      const dir = join(disk.path, "ledger");
      disk.remount("ro");
      await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/the disk is read-only \(EROFS\); mount it/);
      disk.remount("rw");
      await (await openLedger({ dir, origin: ORIGIN })).close();
      disk.remount("ro");
      await expect(openLedger({ dir, origin: ORIGIN })).rejects.toMatchObject({ reason: "read_only" });
      expect((await verify(dir)).ok).toBe(true);
    } finally {
      execFileSync("umount", ["-l", disk.path]);
    }
  });

  it("refuses a signing key that others can read", async () => {
    const dir = scratch.fresh();
    await (await openLedger({ dir, origin: ORIGIN })).close();
    expect(statSync(join(dir, "signing.key")).mode & 0o777).toBe(0o600);
    chmodSync(join(dir, "signing.key"), 0o640);
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(
      /can be read by others \(mode 640\); run: chmod 600/,
    );
  });

  it("refuses a signing key that is damaged or gone", async () => {
    const dir = scratch.fresh();
    await (await openLedger({ dir, origin: ORIGIN })).close();
    const key = readFileSync(join(dir, "signing.key"), "utf8");
    writeFileSync(join(dir, "signing.key"), key.slice(0, 60));
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(/is not an Ed25519 private key/);
    execFileSync("rm", [join(dir, "signing.key")]);
    await expect(openLedger({ dir, origin: ORIGIN })).rejects.toThrow(
      /is missing, but the ledger has records; restore/,
    );
    writeFileSync(join(dir, "signing.key"), key, { mode: 0o600 });
    await (await openLedger({ dir, origin: ORIGIN })).close();
  });
});
