import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { openCompressed } from "./compressed.js";
import { type LedgerFs, nodeFs } from "./files.js";
import { decision, ORIGIN, outcome } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { openLedger } from "./ledger.js";
import { prove } from "./prove.js";
import { exportRecords, read, readIntents, readLast } from "./read.js";
import { closedPath, listSegments } from "./segments.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const CALLS = 3_000;
const OPTIONS = { origin: ORIGIN, maxSegmentBytes: 200_000 };
let dir = "";
let original = "";

const names = (): string[] => readdirSync(dir).filter((name) => name.startsWith("seq-"));
const plain = (): string[] => names().filter((name) => name.endsWith(".ndjson"));

async function write(calls: number, from = 0, compress = false): Promise<void> {
  const ledger = await openLedger({ ...OPTIONS, dir, compress });
  for (let i = from; i < from + calls; i += 100) {
    const some = Array.from({ length: 100 }, (_, n) => `call-${i + n}`);
    await Promise.all(some.map((call) => ledger.append(decision(call))));
    await Promise.all(some.map((call) => ledger.append(outcome(call))));
  }
  if (compress) await vi.waitFor(() => expect(plain()).toHaveLength(1), { timeout: 60_000 });
  await ledger.close();
}

async function lines(): Promise<string> {
  let text = "";
  for await (const { line } of read(dir)) text += `${line}\n`;
  return text;
}

beforeAll(async () => {
  dir = scratch.fresh();
  await write(CALLS);
  original = await lines();
  await write(100, CALLS, true);
});

describe("compressed segments", () => {
  it("compressed segments replace every closed segment in the background, and hold the same records [U9]", async () => {
    expect(names().length).toBeGreaterThan(10);
    expect(plain()).toHaveLength(1);
    expect((await lines()).startsWith(original)).toBe(true);
    expect(readdirSync(dir).filter((name) => /\.gz\.|\.next$/.test(name))).toEqual([]);
  });

  it("compressed segments are ordinary gzip files", async () => {
    const [segment] = await listSegments(nodeFs, dir);
    const path = closedPath(segment as never);
    expect(original.startsWith(gunzipSync(readFileSync(path)).toString())).toBe(true);
    if (spawnSync("gzip", ["--version"]).status === 0) {
      expect(original.startsWith(execFileSync("gzip", ["-dc", path]).toString())).toBe(true);
    }
  });

  it("compressed segments are verified, proved, exported, replayed and tailed like plain ones [U9]", async () => {
    expect(await verify(dir)).toMatchObject({ ok: true });
    for (const call of ["call-0", "call-1234", `call-${CALLS - 1}`]) expect(await prove(dir, call)).toHaveLength(2);
    const [proof] = await prove(dir, 700);
    const file = join(scratch.path, "proof.json");
    writeFileSync(file, JSON.stringify(proof));
    const script = join(import.meta.dirname, "../../examples/verify-proof.mjs");
    expect(spawnSync(process.execPath, [script, file]).status).toBe(0);
    let exported = "";
    for await (const line of exportRecords(dir, { from: 100, to: 3_000 })) exported += line;
    const path = join(scratch.path, "export.ndjson");
    writeFileSync(path, exported);
    expect(await verify(path)).toMatchObject({ ok: true, from: 100, to: 3_000 });
    expect((await readLast(dir, 2_500)).records).toHaveLength(2_500);
    let intents = 0;
    for await (const _ of readIntents(dir)) intents++;
    expect(intents).toBe(CALLS + 100);
  });

  it("compressed segments let a start resume and read the whole log", async () => {
    for (const fullCheckBytes of [0, 1 << 30]) {
      const ledger = await openLedger({ ...OPTIONS, dir, fullCheckBytes });
      await ledger.close();
    }
    expect(await verify(dir)).toMatchObject({ ok: true });
  });

  it("compressed segments are preferred to nothing, and a plain file to them, when both are there after a crash", async () => {
    const copy = scratch.fresh();
    execFileSync("cp", ["-r", dir, copy]);
    const [segment] = await listSegments(nodeFs, copy);
    writeFileSync(`${closedPath(segment as never)}.4711`, "half");
    writeFileSync(segment?.path as string, gunzipSync(readFileSync(closedPath(segment as never))));
    expect(await verify(copy)).toMatchObject({ ok: true });
    const ledger = await openLedger({ ...OPTIONS, dir: copy, compress: true });
    await vi.waitFor(() => expect(existsSync(segment?.path as string)).toBe(false), { timeout: 60_000 });
    await ledger.close();
    expect(readdirSync(copy).filter((name) => /\.gz\./.test(name))).toEqual([]);
    expect(await verify(copy)).toMatchObject({ ok: true });
  });

  it("compressed segments replace a segment that was full at the start, which the record of the start closes", async () => {
    const full = scratch.fresh();
    const options = { origin: ORIGIN, dir: full, maxSegmentBytes: 10_000 };
    const first = await openLedger(options);
    const [segment] = await listSegments(nodeFs, full);
    while (statSync(segment?.path as string).size < options.maxSegmentBytes) await first.append(decision("full"));
    await first.close();
    // Slow enough for the work of the start to meet a compression that is under way.
    const disk: LedgerFs = {
      ...nodeFs,
      rename: async (from, to) => {
        if (from.includes(".gz.")) await sleep(500);
        return nodeFs.rename(from, to);
      },
    };
    const ledger = await openLedger({ ...options, compress: true, disk });
    await vi.waitFor(() => expect(existsSync(segment?.path as string)).toBe(false), { timeout: 10_000 });
    await ledger.close();
    expect(await verify(full)).toMatchObject({ ok: true });
  });

  it("compressed segments that were changed or cut are named by verify and refuse a start", async () => {
    const [segment] = await listSegments(nodeFs, dir);
    const path = closedPath(segment as never);
    const copy = `${path}.copy`;
    copyFileSync(path, copy);
    const bytes = readFileSync(path);
    for (const damage of [
      () => bytes.subarray(0, bytes.length - 1),
      () => bytes.subarray(1),
      () => Buffer.concat([bytes, Buffer.from("x")]),
      () => {
        const changed = Buffer.from(bytes);
        changed[500] = (changed[500] as number) ^ 1;
        return changed;
      },
      () => Buffer.alloc(0),
    ]) {
      writeFileSync(path, damage());
      const { ok, problems } = await verify(dir);
      expect(ok).toBe(false);
      expect(problems[0]?.message).toContain(segment?.name as string);
      await expect(openLedger({ ...OPTIONS, dir, fullCheckBytes: 1 << 30 })).rejects.toMatchObject({
        code: "LEDGER_REFUSED",
      });
    }
    copyFileSync(copy, path);
    expect(await verify(dir)).toMatchObject({ ok: true });
  });

  it("compressed segments refuse a block that is larger than its table says", async () => {
    const [segment] = await listSegments(nodeFs, dir);
    const bytes = readFileSync(closedPath(segment as never));
    // The plain size is 4 bytes behind the start of the table in the last member.
    const length = bytes.readUInt32LE(bytes.length - 14);
    const at = bytes.length - length + 16 + 4;
    bytes.writeBigUInt64LE(bytes.readBigUInt64LE(at) - 10n, at);
    const file = {
      read: async (into: Buffer, position: number) => bytes.copy(into, 0, position),
      size: async () => bytes.length,
      close: async () => {},
    };
    const opened = await openCompressed(file, "a file");
    await expect(opened.read(Buffer.alloc(1 << 20), 0)).rejects.toThrow("a file is damaged: block");
  });
});
