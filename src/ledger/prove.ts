import { indexCalls, indexedRecords, scannedRecords } from "./call-index.js";
import { checkpointPath } from "./checkpoints.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, readSmall } from "./files.js";
import { leafHash } from "./hash.js";
import { readVerifiers } from "./keys.js";
import { type Checkpoint, openCheckpoint, type Verifier } from "./note.js";
import { consistencyPath, consistent, inclusionPath, rootFromInclusion } from "./proof.js";
import { type ReadRecord, recordsAt } from "./read.js";
import { listSegments, type Segment } from "./segments.js";
import { tileSource } from "./tiles.js";

const MAX_PROOFS = 1_000;
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
  /** Verifier key that signed it. Whoever checks the proof should know this key from elsewhere. */
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

interface Signed extends Checkpoint {
  readonly note: string;
  readonly signedBy: readonly Verifier[];
}

async function lastCheckpoint(disk: LedgerFs, dir: string): Promise<Signed> {
  const note = await readSmall(disk, checkpointPath(dir));
  if (note === undefined) throw new LedgerReadError(`${dir} holds no checkpoint: is it a ledger folder?`);
  return { ...openCheckpoint(note, await readVerifiers(disk, dir)), note };
}

/** Proofs for record number `which`, or for every record of the call with that id. */
export async function prove(dir: string, which: number | string, disk: LedgerFs = nodeFs): Promise<InclusionProof[]> {
  const checkpoint = await lastCheckpoint(disk, dir);
  const proofs: InclusionProof[] = [];
  const found = typeof which === "number" ? recordsAt(disk, dir, [which]) : recordsOfCall(disk, dir, which);
  for await (const record of found) {
    if (record.seq >= checkpoint.size) {
      throw new LedgerReadError(
        `record ${record.seq} is not under a checkpoint yet (the last one covers ${checkpoint.size} records); try again in a second`,
      );
    }
    proofs.push(await proveRecord(disk, dir, record, checkpoint));
    if (proofs.length >= MAX_PROOFS) break;
  }
  if (proofs.length === 0) throw new LedgerReadError(`no record in ${dir} belongs to call "${which}"`);
  return proofs;
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
  { seq, line }: ReadRecord,
  { note, origin, size, root, signedBy }: Signed,
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
