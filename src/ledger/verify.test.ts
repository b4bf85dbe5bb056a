import { cpSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { decision, ORIGIN, randomFrom, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { bitFlipper, readLog, rebuildTiles, rechain, segmentNames, writeLog } from "./fixtures/tamper.js";
import { openLedger } from "./ledger.js";
import { exportRecords } from "./read.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const original = scratch.fresh();
let publicKey = "";
let checkpoint = "";
let lines: string[] = [];

beforeAll(async () => {
  // 2 + 2 * 8 records: a start, a key, then decisions and outcomes.
  ({ publicKey, checkpoint } = await sampleLedger(original, 8));
  lines = readLog(original);
});

function copy(): string {
  const dir = scratch.fresh();
  cpSync(original, dir, { recursive: true });
  return dir;
}

/** Verifies a copy whose lines were replaced. */
async function verifyLines(changed: readonly string[], spoil: (dir: string) => void = () => {}) {
  const dir = copy();
  writeLog(dir, changed);
  spoil(dir);
  const result = await verify(dir, { checkpoints: [checkpoint], publicKeys: [publicKey] });
  rmSync(dir, { recursive: true });
  return result;
}

const without = (at: number): string[] => lines.toSpliced(at, 1);
const changeCall = (line: string): string => line.replace(/"call":"call-\d"/, '"call":"forged"');

describe("a sound ledger", () => {
  it("verifies, and says what is covered by whom", async () => {
    const result = await verify(original, { checkpoints: [checkpoint], publicKeys: [publicKey] });
    expect(result).toMatchObject({
      ok: true,
      origin: ORIGIN,
      from: 0,
      to: 18,
      covered: 18,
      pinned: true,
      problems: [],
    });
    expect(result.checkpoints).toEqual([
      { from: join(original, "checkpoint"), size: 18, ok: true, signedBy: [publicKey] },
      { from: "outside checkpoint 1", size: 18, ok: true, signedBy: [publicKey] },
    ]);
  });

  it("verifies while it is being written, and tells signed records from those that are only chained", async () => {
    const dir = scratch.fresh();
    const ledger = await openLedger({ dir, origin: ORIGIN, checkpointMs: 60_000 });
    await ledger.append(decision("a"));
    expect(await verify(dir)).toMatchObject({ ok: true, to: 3, covered: 2, pinned: false });
    await ledger.close();
  });

  it("a sound ledger with an incomplete last line is noted, not blamed", async () => {
    const dir = copy();
    writeFileSync(join(dir, segmentNames(dir)[0] as string), '{"v":1,"seq":18,"prev"', { flag: "a" });
    const result = await verify(dir);
    expect(result).toMatchObject({
      ok: true,
      notes: [expect.stringMatching(/ends with 22 bytes of a record that was/)],
    });
  });
});

describe("a changed ledger", () => {
  it("a changed ledger is found out and the record named, whichever byte of it has a flipped bit [U9]", async () => {
    const random = randomFrom(7);
    const flip = bitFlipper(copy(), publicKey, checkpoint);
    for (let at = 0; at < flip.length; at += 1 + Math.floor(random() * 80)) {
      expect(await flip.check(at, Math.floor(random() * 8))).toBeUndefined();
    }
  });

  it("a changed ledger is named also when it is the number of the last record, which nothing follows", async () => {
    const flip = bitFlipper(copy(), publicKey, checkpoint);
    const last = lines.at(-1) as string;
    const number = /"seq":\d+/.exec(last) as RegExpExecArray;
    const at = flip.length - Buffer.byteLength(last) - 1 + number.index;
    for (let i = 0; i < number[0].length; i++) {
      for (let bit = 0; bit < 8; bit++) expect(await flip.check(at + i, bit)).toBeUndefined();
    }
  });

  it("a changed ledger is found out when a record is removed, and the gap is named", async () => {
    for (const at of [0, 1, 9, 16]) {
      const result = await verifyLines(without(at));
      expect(result.problems[0]).toMatchObject({
        kind: "missing",
        seq: at,
        segment: "seq-0000000000000000.ndjson",
        line: at + 1,
        message: `record ${at} is missing before seq-0000000000000000.ndjson line ${at + 1}, which holds record ${at + 1}`,
      });
    }
    expect((await verifyLines(lines.toSpliced(5, 4))).problems[0]?.message).toMatch(
      /^records 5 to 8 are missing before/,
    );
  });

  it("a changed ledger is found out when records change places", async () => {
    const swapped = lines.with(6, lines[7] as string).with(7, lines[6] as string);
    const result = await verifyLines(swapped);
    expect(result.problems[0]).toMatchObject({ kind: "misplaced", seq: 7, line: 7 });
    expect(result.problems[0]?.message).toMatch(/^record 7 .* stands before record 6: inserted or moved/);
    const moved = lines.toSpliced(3, 1).toSpliced(12, 0, lines[3] as string);
    const named = (await verifyLines(moved)).problems.map((problem) => [problem.kind, problem.seq]);
    expect(named).toContainEqual(["missing", 3]);
    expect(named).toContainEqual(["misplaced", 3]);
  });

  it("a changed ledger is found out when a record is inserted", async () => {
    for (const forged of [lines[4] as string, changeCall(lines[4] as string)]) {
      const result = await verifyLines(lines.toSpliced(5, 0, forged));
      expect(result.problems.map((problem) => problem.seq)).toContain(4);
      expect(result.problems.some((problem) => problem.kind === "misplaced")).toBe(true);
    }
    expect((await verifyLines(lines.toSpliced(5, 0, "hello"))).problems[0]?.message).toMatch(/^record 5 .*line 6\)/);
  });

  it("a changed ledger is found out when the end is cut off", async () => {
    for (const keep of [0, 1, 17]) {
      const result = await verifyLines(lines.slice(0, keep));
      const which = keep === 17 ? "record 17 is" : `records ${keep} to 17 are`;
      expect(result.problems.at(-1)).toMatchObject({
        kind: "truncated",
        seq: keep,
        message: `${which} missing at the end: outside checkpoint 1 was signed over 18 records`,
      });
    }
    const dir = copy();
    const path = join(dir, segmentNames(dir)[0] as string);
    truncateSync(path, readFileSync(path).length - 1);
    expect((await verify(dir)).problems[0]?.message).toMatch(/^record 17 is missing at the end/);
  });

  it("a changed ledger is found out though the forger chained everything anew: the tiles name the record", async () => {
    const forged = rechain(lines.with(10, changeCall(lines[10] as string)));
    const result = await verifyLines(forged);
    expect(result.problems[0]).toMatchObject({ kind: "altered", seq: 10, line: 11 });
    expect(result.problems[0]?.message).toMatch(/^record 10 .* was changed: .* was signed over another one/);
  });

  it("a changed ledger is found out though the tiles were computed anew as well", async () => {
    const forged = rechain(lines.with(10, changeCall(lines[10] as string)));
    const result = await verifyLines(forged, (dir) => rebuildTiles(dir, forged));
    expect(result.ok).toBe(false);
    expect(result.problems[0]?.message).toMatch(/does not match: some record from 0 to 17 was changed/);
  });

  it("a changed ledger is found out by an outside checkpoint though the forger has the signing key", async () => {
    const dir = copy();
    const forged = rechain(lines.with(10, changeCall(lines[10] as string)));
    writeLog(dir, forged);
    rebuildTiles(dir, forged);
    rmSync(join(dir, "checkpoint"));
    await (await openLedger({ dir, origin: ORIGIN })).close();
    expect((await verify(dir)).ok).toBe(true);
    const result = await verify(dir, { checkpoints: [checkpoint] });
    expect(result.problems[0]?.message).toMatch(/^outside checkpoint 1 does not match/);
  });

  it("a changed ledger is found out by an outside checkpoint when the whole directory was put back to an earlier state", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 3);
    cpSync(dir, `${dir}-old`, { recursive: true });
    const { checkpoint: later } = await sampleLedger(dir, 3);
    const result = await verify(`${dir}-old`, { checkpoints: [later] });
    expect(result.problems[0]?.message).toMatch(/^records 8 to 14 are missing at the end/);
  });

  it("names a file that is missing in the middle, and the records it held", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 40, { maxSegmentBytes: 4_000 });
    const names = segmentNames(dir);
    expect(names.length).toBeGreaterThan(4);
    const first = Number(names[2]?.slice(4, 20));
    const next = Number(names[3]?.slice(4, 20));
    rmSync(join(dir, names[2] as string));
    const result = await verify(dir);
    expect(result.problems[0]?.message).toBe(
      `records ${first} to ${next - 1} are missing before ${names[3]} line 1, which holds record ${next}`,
    );
  });

  it("detects a checkpoint that is missing, changed, or signed by an unknown key", async () => {
    const gone = copy();
    rmSync(join(gone, "checkpoint"));
    expect((await verify(gone)).problems[0]?.message).toMatch(/the directory holds no checkpoint/);
    const changed = copy();
    writeFileSync(join(changed, "checkpoint"), checkpoint.replace("\n18\n", "\n17\n"));
    expect((await verify(changed)).problems[0]?.message).toMatch(/cannot be trusted: the signature by .* is false/);
    const stranger = await sampleLedger(scratch.fresh(), 1);
    expect((await verify(original, { publicKeys: [stranger.publicKey] })).problems[0]?.message).toMatch(
      /none of which/,
    );
    expect((await verify(original, { checkpoints: [stranger.checkpoint] })).problems[0]?.message).toMatch(
      /none of which/,
    );
  });

  it("reports damaged tiles as a problem, because proofs are made from them", async () => {
    const dir = copy();
    rebuildTiles(dir, lines.toReversed());
    expect(await verify(dir)).toMatchObject({ ok: false, problems: [{ kind: "tiles" }] });
  });

  it("reports at most 50 problems but counts them all", async () => {
    const dir = scratch.fresh();
    await sampleLedger(dir, 100);
    writeLog(
      dir,
      readLog(dir).map((line) => line.replace("example", "elpmaxe").replace("}", " }")),
    );
    const result = await verify(dir);
    expect(result.problems).toHaveLength(50);
    expect(result.problemCount).toBeGreaterThan(100);
  });
});

describe("key rotation", () => {
  it("records a key rotation, and verifies a checkpoint by the new key with only the old key known", async () => {
    const dir = scratch.fresh();
    let second = "";
    const first = await sampleLedger(dir, 2, {}, async (ledger) => {
      const old = ledger.status().publicKey;
      const change = await ledger.rotateKey();
      expect(change).toEqual({ old, new: ledger.status().publicKey });
      second = old;
      await ledger.rotateKey();
    });
    const { checkpoint: latest } = await sampleLedger(dir, 2);
    expect(first.publicKey).not.toBe(second);
    expect(latest.match(/\u2014/g)).toHaveLength(1);
    const result = await verify(dir, { publicKeys: [second], checkpoints: [latest] });
    expect(result).toMatchObject({ ok: true, pinned: true, problems: [] });
    const kinds = readLog(dir)
      .map((line) => JSON.parse(line))
      .filter((record) => record.kind === "key");
    expect(kinds.map((record) => record.old === null)).toEqual([true, false, false]);
  });

  it("rejects a forged key rotation when the real key is known", async () => {
    const dir = copy();
    const stranger = scratch.fresh();
    await sampleLedger(stranger, 1);
    // The forger replaces key and checkpoint and starts the log anew under his own key.
    for (const name of ["signing.key", "checkpoint"]) cpSync(join(stranger, name), join(dir, name));
    rmSync(join(dir, "checkpoint"));
    await (await openLedger({ dir, origin: ORIGIN })).close();
    expect((await verify(dir, { publicKeys: [publicKey] })).problems[0]?.message).toMatch(/none of which is trusted/);
  });

  it("key rotation that a crash cut short is completed by the next start", async () => {
    const dir = scratch.fresh();
    const { publicKey: old } = await sampleLedger(dir, 1);
    const other = scratch.fresh();
    await sampleLedger(other, 1);
    cpSync(join(other, "signing.key"), join(dir, "signing.key.rotate"));
    const ledger = await openLedger({ dir, origin: ORIGIN });
    expect(ledger.status().publicKey).not.toBe(old);
    await ledger.close();
    expect(await verify(dir, { publicKeys: [old] })).toMatchObject({ ok: true });
  });
});

describe("an export", () => {
  async function exportTo(dir: string, options: { from?: number; to?: number }): Promise<string> {
    const path = scratch.fresh();
    let text = "";
    for await (const line of exportRecords(dir, options)) text += line;
    writeFileSync(path, text);
    return path;
  }

  it("verifies by itself, whole or in part", async () => {
    for (const options of [{}, { from: 5 }, { to: 9 }, { from: 3, to: 4 }, { from: 16, to: 17 }, { from: 17 }]) {
      const path = await exportTo(original, options);
      const result = await verify(path, { publicKeys: [publicKey] });
      const { from = 0, to = 18 } = options as { from?: number; to?: number };
      expect(result, JSON.stringify(options)).toMatchObject({ ok: true, from, to, covered: to, problems: [] });
      expect(readFileSync(path, "utf8").trimEnd().split("\n").slice(1)).toEqual(lines.slice(from, to));
    }
  });

  it("an export is found out when any record in it is changed, removed or added", async () => {
    const path = await exportTo(original, { from: 4, to: 10 });
    const [header = "", ...records] = readFileSync(path, "utf8").trimEnd().split("\n");
    const attempt = async (changed: string[]) => {
      writeFileSync(path, `${[header, ...changed].join("\n")}\n`);
      return (await verify(path, { publicKeys: [publicKey] })).problems[0];
    };
    expect(await attempt(records)).toBeUndefined();
    expect(await attempt(records.with(2, changeCall(records[2] as string)))).toMatchObject({ kind: "altered", seq: 6 });
    expect(await attempt(records.with(5, changeCall(records[5] as string)))).toMatchObject({ kind: "altered" });
    expect(await attempt(rechain(records.with(2, changeCall(records[2] as string))))).toMatchObject({
      kind: "altered",
    });
    expect(await attempt(records.toSpliced(2, 1))).toMatchObject({ kind: "missing", seq: 6 });
    expect(await attempt(records.slice(0, -1))).toMatchObject({ kind: "truncated", seq: 9 });
    expect(await attempt([...records, lines[10] as string])).toMatchObject({ kind: "misplaced", seq: 10 });
  });

  it("an export is found out when its header is changed", async () => {
    const path = await exportTo(original, { from: 7, to: 10 });
    const [header = "", ...records] = readFileSync(path, "utf8").trimEnd().split("\n");
    const parsed = JSON.parse(header);
    for (const change of [
      { edge: parsed.edge.toReversed() },
      { consistency: parsed.consistency.slice(1) },
      { checkpoint: parsed.checkpoint.replace("\n18\n", "\n19\n") },
      { to: 9 },
    ]) {
      const forged = JSON.stringify({ ...parsed, ...change });
      writeFileSync(path, `${[forged, ...records].join("\n")}\n`);
      const result = await verify(path, { publicKeys: [publicKey] });
      expect(result.ok, Object.keys(change).join()).toBe(false);
    }
  });

  it("an export of bare records is checked as far as they go", async () => {
    const path = scratch.fresh();
    writeFileSync(path, `${lines.join("\n")}\n`);
    const all = await verify(path, { publicKeys: [publicKey], checkpoints: [checkpoint] });
    expect(all).toMatchObject({ ok: true, covered: 18 });
    writeFileSync(path, `${lines.slice(3).join("\n")}\n`);
    expect(await verify(path)).toMatchObject({
      ok: true,
      root: undefined,
      notes: [expect.any(String), expect.any(String)],
    });
    writeFileSync(path, `${without(6).slice(3).join("\n")}\n`);
    expect((await verify(path)).problems[0]).toMatchObject({ kind: "missing", seq: 6 });
  });

  it("an export of something else is refused with a reason", async () => {
    const path = scratch.fresh();
    writeFileSync(path, "hello\n");
    await expect(verify(path)).rejects.toThrow(/neither an export nor a file of ledger records/);
    await expect(verify(join(path, "nowhere"))).rejects.toThrow();
    await expect(verify(scratch.path)).rejects.toThrow(/is not a ledger directory/);
    const stream = exportRecords(original, { from: 18 });
    await expect(stream.next()).rejects.toThrow(/there are no signed records from 18/);
  });
});
