import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type LedgerFile, type LedgerFs, nodeFs } from "./files.js";
import { decision, ORIGIN, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { segmentNames } from "./fixtures/tamper.js";
import { openLedger } from "./ledger.js";
import { read, readLast } from "./read.js";

const scratch = scratchDirectory();
const dir = scratch.fresh();

beforeAll(async () => {
  await sampleLedger(dir, 50, { maxSegmentBytes: 8_000 });
});

const seqsOf = (tail: { records: readonly { seq: number }[] }): number[] => tail.records.map(({ seq }) => seq);
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** The disk, counting what is read of it. */
function counting(): { disk: LedgerFs; bytes: () => number } {
  let bytes = 0;
  const openRead = async (path: string): Promise<LedgerFile> => {
    const file = await nodeFs.openRead(path);
    return {
      write: file.write.bind(file),
      sync: file.sync.bind(file),
      truncate: file.truncate.bind(file),
      size: file.size.bind(file),
      isAt: file.isAt.bind(file),
      close: file.close.bind(file),
      read: async (buffer, position) => {
        const count = await file.read(buffer, position);
        bytes += count;
        return count;
      },
    };
  };
  return { disk: { ...nodeFs, openRead }, bytes: () => bytes };
}

describe("the last records", () => {
  it.each([0, 1, 2, 7, 40, 101, 102, 103, 5_000])(
    "the last records are the same as by reading everything: %i of them",
    async (count) => {
      const all: number[] = [];
      for await (const { seq } of read(dir)) all.push(seq);
      const tail = await readLast(dir, count);
      expect(seqsOf(tail)).toEqual(count === 0 ? [] : all.slice(-count));
      expect(tail).toMatchObject({ next: 102, complete: true });
    },
  );

  it("the last records can be those that fit", async () => {
    const tail = await readLast(dir, 3, { filter: (record) => record.kind === "outcome" });
    expect(tail.records).toMatchObject([{ call: "call-47" }, { call: "call-48" }, { call: "call-49" }]);
  });

  it("the last records cost what they are, not what the log is", async () => {
    const long = scratch.fresh();
    await sampleLedger(long, 2_000);
    const { disk, bytes } = counting();
    expect(seqsOf(await readLast(long, 20, { disk }))).toEqual(range(3_982, 4_002));
    expect(readFileSync(join(long, segmentNames(long).at(-1) as string)).length).toBeGreaterThan(500_000);
    expect(bytes()).toBeLessThanOrEqual(64 * 1024);
  });

  it("the last records are not looked for further back than was said", async () => {
    const tail = await readLast(dir, 3, { filter: ({ kind }) => kind === "start", maxBytes: 2_000 });
    expect(tail).toEqual({ records: [], next: 102, complete: false });
  });

  it("the last records hold long lines across chunks", async () => {
    const long = scratch.fresh();
    const ledger = await openLedger({ dir: long, origin: ORIGIN });
    for (let i = 0; i < 6; i++) await ledger.append(decision(`${i}`, { detail: { text: "é".repeat(50_000 + i) } }));
    await ledger.close();
    const { records } = await readLast(long, 5);
    expect(records.map((record) => (record.detail as { text?: string } | undefined)?.text?.length)).toEqual(
      range(50_001, 50_006).map((length) => length),
    );
  });

  it("the last records do not include half a line", async () => {
    const torn = scratch.fresh();
    await sampleLedger(torn, 2);
    const path = join(torn, segmentNames(torn).at(-1) as string);
    truncateSync(path, readFileSync(path).length - 5);
    expect(await readLast(torn, 2)).toMatchObject({ records: [{ seq: 3 }, { seq: 4 }], next: 5, complete: true });
  });

  it("the last records end at a line that is not a record, which is named", async () => {
    const broken = scratch.fresh();
    await sampleLedger(broken, 2);
    const path = join(broken, segmentNames(broken).at(-1) as string);
    writeFileSync(path, readFileSync(path, "utf8").replaceAll('"kind":"outcome"', '"kind"'));
    await expect(readLast(broken, 2)).rejects.toThrow(/seq-0000000000000000\.ndjson at byte \d+ is not a record/);
    await expect(readLast(join(broken, "nowhere"), 2)).rejects.toThrow(/there is no ledger directory at/);
  });
});
