import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { decision, ORIGIN, outcome, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { segmentNames } from "./fixtures/tamper.js";
import { openLedger } from "./ledger.js";
import { type ReadOptions, type ReadRecord, read, readIntents } from "./read.js";

const scratch = scratchDirectory();
const dir = scratch.fresh();

beforeAll(async () => {
  await sampleLedger(dir, 50, { maxSegmentBytes: 8_000 });
});

async function collect(options: ReadOptions = {}, from = dir): Promise<ReadRecord[]> {
  const found: ReadRecord[] = [];
  for await (const record of read(from, options)) found.push(record);
  return found;
}

const seqs = (records: readonly ReadRecord[]): number[] => records.map((record) => record.seq);
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

describe("reading", () => {
  it("gives all records in order across files, exactly as they are written", async () => {
    const records = await collect();
    expect(segmentNames(dir).length).toBeGreaterThan(4);
    expect(seqs(records)).toEqual(range(0, 102));
    const text = segmentNames(dir)
      .map((name) => readFileSync(join(dir, name), "utf8"))
      .join("");
    expect(records.map((record) => `${record.line}\n`).join("")).toBe(text);
  });

  it("gives any stretch of records, wherever it begins and ends", async () => {
    for (const [from, to] of [
      [0, 1],
      [5, 9],
      [40, 41],
      [37, 90],
      [101, 102],
      [100, 500],
      [102, 110],
    ] as const) {
      expect(seqs(await collect({ from, to }))).toEqual(range(from, Math.min(to, 102)));
    }
  });

  it("filters", async () => {
    const found = await collect({ filter: (record) => record.kind === "outcome" && record.call === "call-17" });
    expect(found).toMatchObject([{ record: { call: "call-17", outcome: "ok" } }]);
  });

  it("follows a log that grows, into new files, until it is told to stop", async () => {
    const growing = scratch.fresh();
    const ledger = await openLedger({ dir: growing, origin: ORIGIN, maxSegmentBytes: 3_000 });
    const stop = new AbortController();
    const seen: number[] = [];
    const following = (async () => {
      for await (const record of read(growing, { follow: true, pollMs: 5, signal: stop.signal })) seen.push(record.seq);
    })();
    for (let i = 0; i < 30; i++) {
      await ledger.append(decision(`${i}`));
      if (i % 7 === 0) await sleep(10);
    }
    for (let i = 0; i < 200 && seen.length < 32; i++) await sleep(5);
    expect(segmentNames(growing).length).toBeGreaterThan(3);
    stop.abort();
    await following;
    expect(seen).toEqual(range(0, 32));
    await ledger.close();
  });

  it("does not show half a line, and shows it once it is whole", async () => {
    const growing = scratch.fresh();
    await sampleLedger(growing, 1);
    const path = join(growing, segmentNames(growing)[0] as string);
    const last = (await collect({}, growing)).at(-1)?.line ?? "";
    const next = last.replace('"seq":3', '"seq":4');
    writeFileSync(path, next.slice(0, 50), { flag: "a" });
    expect(seqs(await collect({}, growing))).toEqual([0, 1, 2, 3]);
    const stop = new AbortController();
    const reader = read(growing, { from: 4, follow: true, pollMs: 5, signal: stop.signal });
    const pending = reader.next();
    await sleep(30);
    writeFileSync(path, `${next.slice(50)}\n`, { flag: "a" });
    expect((await pending).value).toMatchObject({ seq: 4, line: next });
    stop.abort();
    expect((await reader.next()).done).toBe(true);
  });

  it("stops at a line that is not a record and says where", async () => {
    const broken = scratch.fresh();
    await sampleLedger(broken, 2);
    const path = join(broken, segmentNames(broken)[0] as string);
    writeFileSync(path, readFileSync(path, "utf8").replace('"kind":"outcome"', '"kind"'));
    await expect(collect({}, broken)).rejects.toThrow(/seq-0000000000000000\.ndjson line 4 is not a record/);
    await expect(collect({}, join(broken, "nowhere"))).rejects.toThrow(/there is no ledger directory at/);
  });
});

describe("recorded intents", () => {
  it("recorded intents come with the arguments that were kept, for a replay under another policy", async () => {
    const kept = scratch.fresh();
    const ledger = await openLedger({ dir: kept, origin: ORIGIN, keepArguments: true });
    await ledger.append(decision("with", { args: '{"bucket":"b"}' }));
    await ledger.append(outcome("with"));
    await ledger.append(decision("without", { effect: "deny", rules: ["no"] }));
    await ledger.close();
    const intents = [];
    for await (const intent of readIntents(kept)) intents.push(intent);
    expect(intents).toMatchObject([
      { seq: 2, call: "with", tool: "community.aws.s3.putObject", effect: "permit", args: '{"bucket":"b"}' },
      { seq: 4, call: "without", effect: "deny", rules: ["no"], args: undefined },
    ]);
  });
});
