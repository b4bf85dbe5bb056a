import { setTimeout as sleep } from "node:timers/promises";
import { type Archive, archivedSegments } from "./archive.js";
import { indexCalls, indexedRecords, scannedRecords } from "./call-index.js";
import { type LastCheckpoint, lastCheckpoint } from "./checkpoints.js";
import { parseHead, parseRecord } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, type ReadableFile } from "./files.js";
import { openCheckpoint, readVerifiers, type Verifier } from "./note.js";
import { type ReadRecord, recordsAt } from "./read.js";
import { listSegments, readLines, type Segment } from "./segments.js";
import { type PrunedSegment, readStatements, type StoredStatement, whereItWent } from "./statement.js";
import { tileSource } from "./tiles.js";
import { consistencyPath, consistent, inclusionPath, leafHash, rootFromInclusion } from "./tree.js";

const MAX_PROOFS = 1_000;
/** Checkpoints follow about a second after the record. */
const WAIT_MS = 5_000;
const LOOK_MS = 50;
/** Indexes that are asked at the same time. */
const SEGMENTS_AT_ONCE = 16;

/** Shows that one record is in the log a checkpoint was signed over. Verifiable without any code of ours. */
export interface InclusionProof {
  readonly type: "portcullis-inclusion-proof";
  readonly v: 1;
  readonly origin: string;
  /** The record as it stands in the log, without its newline. */
  readonly line: string;
  readonly index: number;
  readonly size: number;
  /** Base64 hashes from the leaf up to the root (RFC 6962). */
  readonly path: readonly string[];
  /** Signed checkpoint over `size` records. */
  readonly checkpoint: string;
  /** Verifier key that signed it. The verifier of the proof should know this key from an independent source. */
  readonly public_key: string;
}

/** Shows that one checkpoint's log is a prefix of another's. */
export interface ConsistencyProof {
  readonly type: "portcullis-consistency-proof";
  readonly v: 1;
  readonly origin: string;
  readonly older: string;
  readonly newer: string;
  readonly path: readonly string[];
}

export interface ProveOptions {
  readonly disk?: LedgerFs;
  /** Where pruned records are found. */
  readonly archive?: Archive | undefined;
  /** How long to wait for a checkpoint over the newest records, which the writer of the ledger signs. */
  readonly waitMs?: number;
}

/** Proofs for record number `which`, or for every record of the call with that id. */
export async function prove(
  dir: string,
  which: number | string,
  { disk = nodeFs, archive, waitMs = WAIT_MS }: ProveOptions = {},
): Promise<InclusionProof[]> {
  let checkpoint = await lastCheckpoint(disk, dir);
  const statements = await readStatements(disk, dir);
  const first = (await listSegments(disk, dir))[0]?.first ?? 0;
  const pruned = statements.filter((statement) => statement.from < first);
  const proofs: InclusionProof[] = [];
  for await (const record of recordsOf(disk, dir, which, pruned, first, archive)) {
    if (record.seq >= checkpoint.size) checkpoint = await checkpointOver(disk, dir, record.seq, waitMs);
    proofs.push(await proveRecord(disk, dir, record, checkpoint));
    if (proofs.length >= MAX_PROOFS) break;
  }
  if (proofs.length === 0) {
    const where = archive === undefined && whereItWent(pruned, first - 1);
    const hint = where
      ? `; records 0 to ${first - 1} are not in it any more: ${where.replace("it was", "they were")}`
      : "";
    throw new LedgerReadError(`no record in ${dir} belongs to call "${which}"${hint}`);
  }
  return proofs;
}

async function checkpointOver(disk: LedgerFs, dir: string, seq: number, waitMs: number): Promise<LastCheckpoint> {
  for (const deadline = performance.now() + waitMs; ; await sleep(LOOK_MS)) {
    const checkpoint = await lastCheckpoint(disk, dir);
    if (seq < checkpoint.size) return checkpoint;
    if (performance.now() < deadline) continue;
    throw new LedgerReadError(
      `record ${seq} is not under a checkpoint (the last one covers ${checkpoint.size} records): ` +
        "a running gateway signs one each second; where none is running, start it",
    );
  }
}

async function* recordsOf(
  disk: LedgerFs,
  dir: string,
  which: number | string,
  pruned: readonly StoredStatement[],
  first: number,
  archive: Archive | undefined,
): AsyncGenerator<Pick<ReadRecord, "seq" | "line">> {
  if (typeof which === "number" && which >= first) return yield* recordsAt(disk, dir, [which]);
  const where = typeof which === "number" ? whereItWent(pruned, which) : undefined;
  if (where !== undefined && archive === undefined) {
    throw new LedgerReadError(`record ${which} is not in ${dir} any more: ${where}`);
  }
  if (archive !== undefined) {
    const isWanted = ({ from, to }: PrunedSegment): boolean =>
      from < first && (typeof which === "string" || (which >= from && which < to));
    for await (const { object, file } of archivedSegments(archive, pruned, isWanted)) {
      yield* recordsIn(file, object.name, which);
    }
  }
  if (typeof which === "string") yield* recordsOfCall(disk, dir, which);
}

/** The record with that number, or the records of that call, in an archived segment. */
async function* recordsIn(
  file: ReadableFile,
  name: string,
  which: number | string,
): AsyncGenerator<Pick<ReadRecord, "seq" | "line">> {
  const text = typeof which === "string" ? Buffer.from(`"call":${JSON.stringify(which)}`) : undefined;
  for await (const { lines } of readLines(file, name)) {
    for (const { bytes } of lines) {
      if (text === undefined ? parseHead(bytes)?.seq !== which : !bytes.includes(text)) continue;
      const record = parseRecord(bytes);
      if (record === undefined) throw new LedgerReadError(`${name} holds a line that is not a record`);
      if (typeof which === "string" && !("call" in record && record.call === which)) continue;
      yield { seq: record.seq, line: bytes.toString("utf8") };
    }
  }
}

/**
 * Asks the index of each closed segment, and reads those that have none. A call that no index knows is looked for in all
 * of them: an index is derived, and a damaged one must not hide a record.
 */
async function* recordsOfCall(disk: LedgerFs, dir: string, call: string): AsyncGenerator<ReadRecord> {
  const segments = await listSegments(disk, dir);
  const trusted: Segment[] = [];
  let count = 0;
  for (let at = 0; at < segments.length; at += SEGMENTS_AT_ONCE) {
    const some = segments.slice(at, at + SEGMENTS_AT_ONCE);
    const isClosed = (segment: Segment): boolean => segment !== segments.at(-1);
    const known = await Promise.all(
      some.map((segment) => (isClosed(segment) ? indexedRecords(disk, segment, call) : undefined)),
    );
    for (const [i, segment] of some.entries()) {
      const indexed = known[i];
      if (indexed?.length === 0) trusted.push(segment);
      if (indexed === undefined && isClosed(segment)) {
        // The directory may be another user's, or read-only: then only this proof takes longer.
        await indexCalls(disk, segment).catch(() => {});
      }
      for await (const record of indexed ?? scannedRecords(disk, segment, call)) {
        count++;
        yield record;
      }
    }
  }
  if (count > 0) return;
  for (const segment of trusted) yield* scannedRecords(disk, segment, call);
}

async function proveRecord(
  disk: LedgerFs,
  dir: string,
  { seq, line }: Pick<ReadRecord, "seq" | "line">,
  { note, origin, size, root, signedBy }: LastCheckpoint,
): Promise<InclusionProof> {
  const path = await inclusionPath(tileSource(disk, dir), seq, size);
  const leaf = Buffer.from(leafHash(line), "base64");
  if (rootFromInclusion(leaf, seq, size, path)?.toString("base64") !== root) {
    throw new LedgerReadError(
      `record ${seq} in ${dir} is not the one that was signed, or its tiles are damaged; run \`portcullis audit verify\``,
    );
  }
  return {
    type: "portcullis-inclusion-proof",
    v: 1,
    origin,
    line,
    index: seq,
    size,
    path: path.map((hash) => hash.toString("base64")),
    checkpoint: note,
    public_key: (signedBy[0] as Verifier).vkey,
  };
}

/** Proves that the log still begins with what `older`, a signed checkpoint, was signed over. */
export async function proveConsistency(dir: string, older: string, disk: LedgerFs = nodeFs): Promise<ConsistencyProof> {
  const newer = await lastCheckpoint(disk, dir);
  const from = openCheckpoint(older, await readVerifiers(disk, dir));
  if (from.origin !== newer.origin || from.size > newer.size) {
    throw new LedgerReadError(
      `the checkpoint given is of ${from.origin} at ${from.size} records, ${dir} is ${newer.origin} at ${newer.size}`,
    );
  }
  const path = await consistencyPath(tileSource(disk, dir), from.size, newer.size);
  if (!consistent(from.size, from.root, newer.size, newer.root, path)) {
    throw new LedgerReadError(`${dir} does not continue the checkpoint given; run \`portcullis audit verify\``);
  }
  return {
    type: "portcullis-consistency-proof",
    v: 1,
    origin: newer.origin,
    older,
    newer: newer.note,
    path: path.map((hash) => hash.toString("base64")),
  };
}
