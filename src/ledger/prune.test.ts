import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { type Archive, archiveSegments, directoryArchive, restoreSegments } from "./archive.js";
import { decision, ORIGIN, outcome } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { type Ledger, type LedgerOptions, openLedger } from "./ledger.js";
import { prove, proveConsistency } from "./prove.js";
import { keptFrom } from "./prune.js";
import { exportRecords, read, readLast } from "./read.js";
import { verify } from "./verify.js";

const scratch = scratchDirectory();
const OPTIONS = { origin: ORIGIN, maxSegmentBytes: 20_000 };
let dir: string;
let archive: Archive;
let archiveDir: string;

const segments = (): string[] =>
  readdirSync(dir)
    .filter((name) => name.startsWith("seq-"))
    .sort();
const firstKept = (): number => Number(segments()[0]?.slice(4, 20));
const statements = (): string[] => readdirSync(join(dir, "pruned")).map((name) => join(dir, "pruned", name));
const archived = (): string => {
  const [directory = ""] = readdirSync(archiveDir);
  return join(archiveDir, directory);
};

async function withLedger<T>(work: (ledger: Ledger) => Promise<T>, more: Partial<LedgerOptions> = {}): Promise<T> {
  const ledger = await openLedger({ ...OPTIONS, dir, ...more });
  try {
    return await work(ledger);
  } finally {
    await ledger.close();
  }
}

async function write(ledger: Ledger, name: string, calls: number): Promise<void> {
  const ids = Array.from({ length: calls }, (_, i) => `${name}-${i}`);
  for (let i = 0; i < calls; i += 50) {
    const some = ids.slice(i, i + 50);
    await Promise.all(some.map((call) => ledger.append(decision(call))));
    await Promise.all(some.map((call) => ledger.append(outcome(call))));
  }
}

const prune = (before = Number.POSITIVE_INFINITY): Promise<unknown> =>
  withLedger((ledger) => ledger.prune({ archive, before, by: "operator" }));

/** A ledger of about ten segments with two keys, archived; its oldest are pruned. */
async function pruned(): Promise<{ firstKey: string; early: string }> {
  let firstKey = "";
  let early = "";
  await withLedger(async (ledger) => {
    firstKey = ledger.status().publicKey;
    await write(ledger, "a", 100);
    early = await ledger.checkpoint();
    await ledger.rotateKey();
    await write(ledger, "b", 150);
  });
  await archiveSegments(dir, archive);
  await prune(300);
  return { firstKey, early };
}

beforeEach(() => {
  dir = scratch.fresh();
  archiveDir = `${scratch.fresh()}-archive`;
  archive = directoryArchive(archiveDir);
});

describe("archiving", () => {
  it("copies each closed segment once, checks it, and copies again what is missing or was cut short", async () => {
    await withLedger((ledger) => write(ledger, "a", 150));
    const first = await archiveSegments(dir, archive);
    expect(first).toMatchObject({ copied: segments().length - 1, present: 0 });
    expect(await archiveSegments(dir, archive)).toMatchObject({ copied: 0, present: first.copied, bytes: 0 });
    const [object = "", other = ""] = readdirSync(archived()).filter((name) => name.endsWith(".gz"));
    rmSync(join(archived(), object));
    writeFileSync(join(archived(), other.replace(".ndjson.gz", ".json")), "{");
    expect(await archiveSegments(dir, archive)).toMatchObject({ copied: 2, present: first.copied - 2 });
    expect(await archiveSegments(dir, archive)).toMatchObject({ copied: 0, present: first.copied });
  });

  it("fails when the archive does not give back what was put into it", async () => {
    await withLedger((ledger) => write(ledger, "a", 150));
    const lossy: Archive = { ...archive, put: (name, bytes) => archive.put(name, bytes.subarray(0, bytes.length - 1)) };
    await expect(archiveSegments(dir, lossy)).rejects.toThrow("its SHA-256 differs");
  });

  it("makes copies that can be verified without the ledger", async () => {
    await withLedger((ledger) => write(ledger, "a", 150));
    await archiveSegments(dir, archive);
    const manifest = JSON.parse(readFileSync(join(archived(), "seq-0000000000000000.json"), "utf8"));
    const { gunzipSync } = await import("node:zlib");
    const path = `${scratch.fresh()}.ndjson`;
    writeFileSync(path, `${JSON.stringify(manifest)}\n`);
    appendFileSync(path, gunzipSync(readFileSync(join(archived(), manifest.object.name))));
    expect(await verify(path)).toMatchObject({ ok: true, from: 0, to: manifest.to });
  });
});

describe("pruning", () => {
  it("leaves a ledger that verifies, proves what remains, exports, tails and starts [U9]", async () => {
    const { firstKey, early } = await pruned();
    const from = firstKept();
    expect(from).toBeGreaterThan(200);
    expect(from).toBeLessThanOrEqual(300);
    const result = await verify(dir);
    expect(result).toMatchObject({ ok: true, from, pruned: from });
    expect(result.notes.join()).toMatch(/were pruned by operator at .* to /);
    expect(await verify(dir, { publicKeys: [firstKey], checkpoints: [early] })).toMatchObject({
      ok: true,
      pinned: true,
    });
    expect(await prove(dir, from + 3)).toHaveLength(1);
    expect(await prove(dir, "b-149")).toHaveLength(2);
    expect((await proveConsistency(dir, early)).path.length).toBeGreaterThan(0);
    expect((await readLast(dir, 5_000)).records.length).toBeGreaterThan(100);
    let text = "";
    for await (const line of exportRecords(dir)) text += line;
    const path = `${scratch.fresh()}.ndjson`;
    writeFileSync(path, text);
    expect(await verify(path)).toMatchObject({ ok: true, from });
    for (const fullCheckBytes of [0, 1 << 30]) {
      await withLedger((ledger) => write(ledger, `c${fullCheckBytes}`, 50), { fullCheckBytes });
      expect(await verify(dir, { publicKeys: [firstKey] })).toMatchObject({ ok: true });
    }
    expect(
      readdirSync(dir)
        .filter((name) => name.startsWith("calls-"))
        .every((name) => Number(name.slice(6, 22)) >= from),
    ).toBe(true);
  });

  it("says where a pruned record went, and proves and verifies it from the archive [U9]", async () => {
    const { firstKey, early } = await pruned();
    for (const which of [5, "a-1"]) {
      await expect(prove(dir, which)).rejects.toThrow(`--archive ${archive.location}`);
    }
    const proofs = [...(await prove(dir, 5, { archive })), ...(await prove(dir, "a-1", { archive }))];
    expect(proofs.map(({ index }) => index).slice(0, 1)).toEqual([5]);
    expect(proofs).toHaveLength(3);
    const script = join(import.meta.dirname, "../../examples/verify-proof.mjs");
    const path = `${scratch.fresh()}.json`;
    writeFileSync(path, JSON.stringify(proofs));
    expect(spawnSync(process.execPath, [script, path]).status).toBe(0);
    expect(await verify(dir, { archive, publicKeys: [firstKey], checkpoints: [early] })).toMatchObject({
      ok: true,
      from: 0,
      pruned: 0,
    });
    await expect(exportRecords(dir, { from: 0 }).next()).rejects.toThrow("was pruned by operator");
  });

  it("refuses when a copy is missing or differs, and removes nothing [U9]", async () => {
    await withLedger((ledger) => write(ledger, "a", 150));
    const all = segments();
    await expect(prune()).rejects.toThrow("portcullis audit archive --to");
    await archiveSegments(dir, archive);
    const object = join(archived(), "seq-0000000000000000.ndjson.gz");
    const bytes = readFileSync(object);
    bytes[200] = (bytes[200] as number) ^ 1;
    writeFileSync(object, bytes);
    await expect(prune()).rejects.toThrow("its SHA-256 differs");
    expect(segments()).toEqual(all);
    expect(existsSync(join(dir, "pruned"))).toBe(false);
  });

  it("keeps the segment with the decision of a call that has no outcome", async () => {
    await withLedger(async (ledger) => {
      await write(ledger, "a", 100);
      const { seq } = await ledger.append(decision("open"));
      await write(ledger, "b", 100);
      await ledger.checkpoint();
      await archiveSegments(dir, archive);
      await ledger.prune({ archive, before: Number.POSITIVE_INFINITY, by: "operator" });
      expect(firstKept()).toBeGreaterThan(0);
      expect(firstKept()).toBeLessThanOrEqual(seq);
    });
  });

  it("continues over several statements, and each names the one before", async () => {
    await pruned();
    const from = firstKept();
    await withLedger((ledger) => write(ledger, "c", 100));
    await archiveSegments(dir, archive);
    await prune(500);
    expect(firstKept()).toBeGreaterThan(from);
    expect(statements()).toHaveLength(2);
    expect(await verify(dir)).toMatchObject({ ok: true, pruned: firstKept() });
    expect(await verify(dir, { archive })).toMatchObject({ ok: true, from: 0 });
    expect(await prove(dir, 1, { archive })).toHaveLength(1);
  });

  it("works on compressed segments while records are written", async () => {
    await withLedger(
      async (ledger) => {
        await write(ledger, "a", 150);
        await vi.waitFor(() => expect(segments().filter((name) => name.endsWith(".ndjson"))).toHaveLength(1), 60_000);
        const more = write(ledger, "b", 100);
        await ledger.checkpoint();
        await archiveSegments(dir, archive);
        const result = await ledger.prune({ archive, before: 250, by: "operator" });
        expect(result.segments).toBeGreaterThan(1);
        await more;
      },
      { compress: true },
    );
    expect(await verify(dir, { archive })).toMatchObject({ ok: true });
    expect(await verify(dir)).toMatchObject({ ok: true, pruned: firstKept() });
  });

  it("pruning is finished by the next one when it was cut short, and can be undone from the archive", async () => {
    await pruned();
    const from = firstKept();
    const [object = ""] = readdirSync(archived())
      .filter((name) => name.endsWith(".gz") && Number(name.slice(4, 20)) < from)
      .sort()
      .reverse();
    cpSync(join(archived(), object), join(dir, object));
    expect(await verify(dir)).toMatchObject({ ok: true, pruned: from });
    await prune(300);
    expect(firstKept()).toBe(from);
    expect(await restoreSegments(dir, archive)).toBeGreaterThan(1);
    expect(firstKept()).toBe(0);
    expect(await verify(dir)).toMatchObject({ ok: true, from: 0 });
    expect(await prove(dir, 5)).toHaveLength(1);
    await withLedger(async () => {});
    await prune(300);
    expect(firstKept()).toBe(from);
    expect(await verify(dir)).toMatchObject({ ok: true, pruned: from });
  });

  it("survives damaged tiles: a start works, verify reports them, and a restore repairs them", async () => {
    await pruned();
    writeFileSync(join(dir, "tiles", "0"), Buffer.alloc(100));
    await withLedger(async (ledger) => {
      await write(ledger, "c", 10);
      await vi.waitFor(() => expect(ledger.status().lastError?.message).toContain("audit restore"), 60_000);
    });
    const { ok, problems } = await verify(dir);
    expect(ok).toBe(false);
    expect(problems.some(({ kind }) => kind === "tiles")).toBe(true);
    await restoreSegments(dir, archive);
    await withLedger(async () => {});
    expect(await verify(dir)).toMatchObject({ ok: true });
    expect(await prove(dir, 5)).toHaveLength(1);
  });
});

describe("records that are missing at the beginning", () => {
  const refused = { code: "LEDGER_REFUSED" };

  it.each([
    ["records that are missing without a statement", () => rmSync(join(dir, "pruned"), { recursive: true })],
    [
      "records that are missing under a statement that was changed",
      () => {
        const [path = ""] = statements();
        writeFileSync(path, readFileSync(path, "utf8").replace('"by":"operator"', '"by":"intruder"'));
      },
    ],
    [
      "records that are missing under a statement that another key signed",
      () => {
        const [path = ""] = statements();
        const key = readdirSync(join(dir, "keys")).find((name) => name.endsWith(".vkey")) as string;
        const text = readFileSync(path, "utf8");
        writeFileSync(
          path,
          `${text.slice(0, text.lastIndexOf("— "))}— ${ORIGIN} ${Buffer.alloc(68, key).toString("base64")}\n`,
        );
      },
    ],
    ["records that are missing beyond those of the statement", () => rmSync(join(dir, segments()[0] as string))],
    [
      "records that are missing under a statement that is not one",
      () => writeFileSync(statements()[0] as string, "x\n"),
    ],
  ])("%s are a problem for verify and refuse a start", async (_, harm) => {
    await pruned();
    harm();
    expect(await verify(dir)).toMatchObject({ ok: false });
    await expect(withLedger(async () => {})).rejects.toMatchObject(refused);
    await expect(withLedger(async () => {}, { fullCheckBytes: 0 })).rejects.toMatchObject(refused);
  });

  it("records that are missing under a statement that the ledger did not record are a problem for verify", async () => {
    await pruned();
    const copy = scratch.fresh();
    mkdirSync(copy);
    cpSync(dir, copy, { recursive: true });
    // A second statement that is signed by the right key, made in a copy of the ledger.
    const original = dir;
    dir = copy;
    await withLedger((ledger) => write(ledger, "c", 100));
    await archiveSegments(dir, archive);
    await prune(400);
    const name = readdirSync(join(copy, "pruned")).sort().at(-1) as string;
    dir = original;
    cpSync(join(copy, "pruned", name), join(dir, "pruned", name));
    for (const segment of segments())
      if (Number(segment.slice(4, 20)) < Number(name.slice(0, 16))) rmSync(join(dir, segment));
    const { problems } = await verify(dir);
    expect(problems.map(({ message }) => message).join()).toContain("is not recorded in the ledger");
  });
});

describe("retention", () => {
  it("keeps what is younger than its age and smaller than its size", async () => {
    await withLedger((ledger) => write(ledger, "a", 150));
    const last = Number(segments().at(-1)?.slice(4, 20));
    expect(await keptFrom(dir, {})).toBe(0);
    expect(await keptFrom(dir, { keepMs: 60_000 })).toBe(0);
    expect(await keptFrom(dir, { keepMs: 60_000 }, { now: Date.now() + 61_000 })).toBe(last);
    expect(await keptFrom(dir, { keepBytes: 0 })).toBe(last);
    const some = await keptFrom(dir, { keepBytes: 110_000 });
    expect(some).toBeGreaterThan(0);
    expect(some).toBeLessThan(last);
    for await (const { seq } of read(dir, { to: 1 })) expect(seq).toBe(0);
  });
});
