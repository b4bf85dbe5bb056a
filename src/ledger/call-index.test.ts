import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { callIndexPath, indexCalls, indexedRecords } from "./call-index.js";
import { nodeFs } from "./files.js";
import { decision, ORIGIN, outcome } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { openLedger } from "./ledger.js";
import { prove } from "./prove.js";
import { listSegments, type Segment } from "./segments.js";

const scratch = scratchDirectory();
const CALLS = 6_000;

async function sample(dir: string): Promise<void> {
  const ledger = await openLedger({ dir, origin: ORIGIN, maxSegmentBytes: 1 << 20 });
  await Promise.all(Array.from({ length: CALLS }, (_, i) => ledger.append(decision(`call-${i}`))));
  await Promise.all(Array.from({ length: CALLS }, (_, i) => ledger.append(outcome(`call-${i}`))));
  const closed = (await listSegments(nodeFs, dir)).slice(0, -1);
  const isDone = () => closed.every((segment) => existsSync(callIndexPath(segment)));
  await expect.poll(isDone).toBe(true);
  await ledger.close();
}

describe("the index of calls", () => {
  let dir: string;
  let closed: Segment[];
  beforeEach(async () => {
    dir = scratch.fresh();
    await sample(dir);
    closed = (await listSegments(nodeFs, dir)).slice(0, -1);
  });

  it("the index of calls is written for each closed segment, and finds every call that is in it [U9]", async () => {
    expect(closed.length).toBeGreaterThan(2);
    for (const segment of closed) expect(existsSync(callIndexPath(segment)), segment.name).toBe(true);
    const [segment] = closed as [Segment];
    const lines = readFileSync(segment.path, "utf8").trimEnd().split("\n");
    for (const line of lines.filter((_, i) => i % 9 === 0)) {
      const { call, seq } = JSON.parse(line) as { call?: string; seq: number };
      if (call === undefined) continue;
      const found = await indexedRecords(nodeFs, segment, call);
      expect(found?.map((each) => each.line)).toContain(line);
      expect(found?.map((each) => each.seq)).toContain(seq);
    }
    expect(await indexedRecords(nodeFs, segment, "unknown")).toEqual([]);
  });

  it("leads to the same proofs as reading every record, whether it is there, missing or damaged [U9]", async () => {
    const expected = await prove(dir, "call-7");
    expect(expected).toHaveLength(2);
    for (const segment of closed) rmSync(callIndexPath(segment));
    expect(await prove(dir, "call-7")).toEqual(expected);
    // Rebuilt by the reader.
    for (const segment of closed) expect(existsSync(callIndexPath(segment)), segment.name).toBe(true);
    for (const segment of closed) writeFileSync(callIndexPath(segment), "damaged");
    expect(await prove(dir, "call-7")).toEqual(expected);
    // The header fits, and every entry leads to another record.
    for (const segment of closed) {
      const bytes = readFileSync(callIndexPath(segment));
      for (let at = 24; at < bytes.length; at += 16) bytes.fill(0, at + 8, at + 16);
      writeFileSync(callIndexPath(segment), bytes);
    }
    expect(await prove(dir, "call-7")).toEqual(expected);
    await expect(prove(dir, "unknown")).rejects.toThrow(/no record in .* belongs to call "unknown"/);
  });

  it("the index of calls is rebuilt by the next start when it is missing, and leaves no other file [U9]", async () => {
    for (const segment of closed) rmSync(callIndexPath(segment));
    const ledger = await openLedger({ dir, origin: ORIGIN, maxSegmentBytes: 1 << 20 });
    await expect.poll(() => closed.every((segment) => existsSync(callIndexPath(segment)))).toBe(true);
    await ledger.close();
    expect(readdirSync(dir).filter((name) => /\.index\../.test(name))).toEqual([]);
  });

  it("finds equal hashes that lie across two blocks", async () => {
    const path = join(dir, "seq-0000000000000000.ndjson");
    const [line] = readFileSync(path, "utf8")
      .split("\n")
      .filter((text) => text.includes('"call-3"')) as [string];
    writeFileSync(path, `${line}\n`.repeat(5_000));
    const [segment] = closed as [Segment];
    await indexCalls(nodeFs, segment);
    expect(await indexedRecords(nodeFs, segment, "call-3")).toHaveLength(5_000);
  });
});
