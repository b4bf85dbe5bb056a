import { basename, join } from "node:path";
import { type Archive, archivedSegments } from "./archive.js";
import { type Commitment, storedCommitments } from "./checkpoints.js";
import { parseHead } from "./entry.js";
import { LedgerReadError } from "./errors.js";
import type { LedgerFs, ReadableFile } from "./files.js";
import { readVerifiers } from "./note.js";
import type { ExportHeader } from "./read.js";
import { listSegments, openSegment, readLines, type SegmentLine } from "./segments.js";
import { edgeOf, readStatements, type StoredStatement } from "./statement.js";
import { HASH_BYTES, NO_PREV } from "./tree.js";

// What `verify` reads: a ledger directory, an export, or a bare file of records.

export interface VerifySource {
  /** Number of the first record. */
  readonly from: number;
  /** Right edge of the tree before it; when undefined there is no root. */
  readonly edge: readonly Buffer[] | undefined;
  readonly header: ExportHeader | undefined;
  readonly commitments: readonly Commitment[];
  /** Verifier keys found beside the records. */
  readonly keys: readonly string[];
  /** Directory with `tiles/`. */
  readonly dir: string | undefined;
  /** Statements under which records were pruned. */
  readonly pruned: readonly StoredStatement[];
  /** Why they cannot be read. */
  readonly prunedProblem: string | undefined;
  /** Leaf hash of the record before the first, where it is known. */
  readonly prev: string | undefined;
  lines(): AsyncGenerator<SourceBatch>;
}

export interface SourceBatch {
  readonly segment: string;
  readonly lines: readonly SegmentLine[];
  /** Bytes without a newline at the end of the file. */
  readonly torn: Buffer | undefined;
  readonly isLastSegment: boolean;
}

export async function openSource(disk: LedgerFs, path: string, archive?: Archive): Promise<VerifySource> {
  const facts = await disk.stat(path);
  if (facts === undefined) throw new LedgerReadError(`there is nothing at ${path}`);
  return facts.isDirectory ? folderSource(disk, path, archive) : fileSource(disk, path);
}

async function folderSource(disk: LedgerFs, dir: string, archive: Archive | undefined): Promise<VerifySource> {
  // Checkpoints first: what they cover is already there, even while another process is still writing.
  const commitments = await storedCommitments(disk, dir);
  const keys = await readVerifiers(disk, dir);
  const segments = await listSegments(disk, dir);
  let prunedProblem: string | undefined;
  const pruned = await readStatements(disk, dir).catch((error: Error) => {
    if (!(error instanceof LedgerReadError)) throw error;
    prunedProblem = error.message;
    return [];
  });
  const last = pruned.at(-1);
  const first = segments[0]?.first ?? 0;
  // Records that are missing without a statement are looked for from the beginning, and reported.
  const isPruned = last !== undefined && first > 0 && first <= last.to;
  const isFromArchive = isPruned && archive !== undefined;
  const start = isPruned && !isFromArchive ? last : undefined;
  if (segments.length === 0 && commitments.length === 0) throw new LedgerReadError(`${dir} is not a ledger directory`);
  return {
    from: start?.to ?? 0,
    edge: start === undefined ? [] : edgeOf(start),
    prev: start?.prev ?? NO_PREV,
    header: undefined,
    commitments,
    keys: keys.map((key) => key.vkey),
    dir,
    pruned,
    prunedProblem,
    async *lines() {
      if (isFromArchive) {
        for await (const { object, file } of archivedSegments(archive, pruned)) {
          for await (const { lines, torn } of linesOf(file, object.name)) {
            yield { segment: object.name, lines, torn, isLastSegment: false };
          }
        }
      }
      for (const [i, segment] of segments.entries()) {
        if (isPruned && segment.first < last.to) continue;
        const isLastSegment = i === segments.length - 1;
        for await (const { lines, torn } of linesOf(await openSegment(disk, segment), segment.name)) {
          yield { segment: segment.name, lines, torn, isLastSegment };
        }
      }
    },
  };
}

async function* linesOf(
  file: ReadableFile,
  name: string,
): AsyncGenerator<{ lines: SegmentLine[]; torn: Buffer | undefined }> {
  try {
    yield* readLines(file, name);
  } finally {
    await file.close();
  }
}

async function fileSource(disk: LedgerFs, path: string): Promise<VerifySource> {
  const first = await firstLine(disk, path);
  const header = parseHeader(first, path);
  const from = header?.from ?? parseHead(first)?.seq;
  if (from === undefined) throw new LedgerReadError(`${path} is neither an export nor a file of ledger records`);
  return {
    from,
    edge: header === undefined ? (from === 0 ? [] : undefined) : header.edge.map((hash) => Buffer.from(hash, "base64")),
    header,
    commitments: header === undefined ? [] : [{ from: path, note: header.checkpoint }],
    keys: header?.public_keys ?? [],
    dir: undefined,
    pruned: [],
    prunedProblem: undefined,
    prev: from === 0 ? NO_PREV : undefined,
    async *lines() {
      let isHeader = header !== undefined;
      for await (const { lines, torn } of linesOf(await disk.openRead(path), basename(path))) {
        yield { segment: basename(path), lines: isHeader ? lines.slice(1) : lines, torn, isLastSegment: true };
        isHeader = false;
      }
    },
  };
}

async function firstLine(disk: LedgerFs, path: string): Promise<Buffer> {
  for await (const { lines, torn } of linesOf(await disk.openRead(path), path))
    return Buffer.from(lines[0]?.bytes ?? torn ?? []);
  return Buffer.alloc(0);
}

function parseHeader(line: Buffer, path: string): ExportHeader | undefined {
  if (!line.subarray(0, 24).includes('"portcullis_export"')) return undefined;
  try {
    const header = JSON.parse(line.toString("utf8")) as ExportHeader;
    const isSound =
      header.portcullis_export === 1 &&
      Number.isSafeInteger(header.from) &&
      Number.isSafeInteger(header.to) &&
      header.from >= 0 &&
      [header.edge, header.consistency, header.public_keys].every(Array.isArray);
    if (isSound) return header;
  } catch {
    // Reported below.
  }
  throw new LedgerReadError(`the first line of ${path} is a damaged export header`);
}

/** The leaf hashes that the tiles hold for these records; fewer where they end. */
export async function tileLeaves(disk: LedgerFs, dir: string, first: number, count: number): Promise<Buffer> {
  const path = join(dir, "tiles", "0");
  if ((await disk.stat(path)) === undefined) return Buffer.alloc(0);
  const file = await disk.openRead(path);
  try {
    const bytes = Buffer.alloc(count * HASH_BYTES);
    return bytes.subarray(0, await file.read(bytes, first * HASH_BYTES));
  } finally {
    await file.close();
  }
}
