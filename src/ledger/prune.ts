// Removes segments whose copies in an archive were read back and checked. The order makes every crash harmless: the
// statement is a durable record, then a file, and only then are segments removed.

import { type Archive, archiveDirectory, type CheckedCopy, checkArchived } from "./archive.js";
import type { Receipt } from "./batch.js";
import { callIndexPath } from "./call-index.js";
import { type LedgerEntry, parseRecord } from "./entry.js";
import { type LedgerFs, nodeFs } from "./files.js";
import type { Signer } from "./note.js";
import { closedPath, lastLine, listSegments, type Segment } from "./segments.js";
import {
  PRUNE_ACTION,
  type PruneStatement,
  readStatements,
  type StoredStatement,
  signStatement,
  statementHash,
  writeStatement,
} from "./statement.js";
import { tileSource } from "./tiles.js";
import { edgeAt, rootAt } from "./tree.js";

/** A statement is a note, which has at most 64 KiB. */
const MAX_SEGMENTS = 128;
const MAX_KEY_BYTES = 16 * 1024;

export interface PruneOptions {
  readonly archive: Archive;
  /** Only segments that end before this record are removed. */
  readonly before: number;
  /** The operator, for the statement. */
  readonly by: string;
}

export interface PruneResult {
  /** Segments removed. */
  readonly segments: number;
  /** The first record that the directory still holds. */
  readonly from: number;
  readonly statements: readonly PruneStatement[];
}

export interface PruneContext {
  readonly disk: LedgerFs;
  readonly dir: string;
  readonly origin: string;
  readonly signer: () => Signer;
  readonly append: (entry: LedgerEntry) => Promise<Receipt>;
  /** Signs and stores a checkpoint over everything durable, and makes the tiles durable. Returns its size. */
  readonly commit: () => Promise<number>;
  /** Decision of the oldest call without an outcome: a start needs it. */
  readonly oldestOpenCall: () => number;
  readonly stop: AbortSignal;
}

export async function pruneSegments(context: PruneContext, options: PruneOptions): Promise<PruneResult> {
  const { disk, dir } = context;
  const statements = await readStatements(disk, dir);
  const made: PruneStatement[] = [];
  let removed = await finishEarlier(context, options, statements);
  for (;;) {
    context.stop.throwIfAborted();
    const done = statements.at(-1)?.to ?? 0;
    const covered = await context.commit();
    const limit = Math.min(options.before, covered, context.oldestOpenCall());
    const copies = await checkedCopies(context, options, done, limit);
    if (copies.length === 0) break;
    const { note, path, ...statement } = await declare(context, options, copies, statements.at(-1));
    statements.push({ note, path, ...statement });
    made.push(statement);
    removed += await removeBefore(context, statement.to);
  }
  const [first] = await listSegments(disk, dir);
  return { segments: removed, from: first?.first ?? 0, statements: made };
}

/** Segments that a statement names and that are still here: a prune was cut short, or they were restored. */
async function finishEarlier(
  context: PruneContext,
  { archive, before }: PruneOptions,
  statements: readonly StoredStatement[],
): Promise<number> {
  const { disk, dir } = context;
  const present = new Set((await listSegments(disk, dir)).map(({ first }) => first));
  let limit = 0;
  for (const { segments, directory, to } of statements) {
    if (to > before) break;
    for (const segment of segments) {
      if (present.has(segment.from)) await checkArchived(disk, dir, archive, directory, segment);
    }
    limit = to;
  }
  return removeBefore(context, limit);
}

/** The copies of the next segments, as many as one statement holds. Throws when one is not in the archive. */
async function checkedCopies(
  { disk, dir, origin }: PruneContext,
  { archive }: PruneOptions,
  from: number,
  limit: number,
): Promise<CheckedCopy[]> {
  const copies: CheckedCopy[] = [];
  const directory = await archiveDirectory(disk, dir, origin);
  const segments = (await listSegments(disk, dir)).filter(({ first }) => first >= from);
  let keyBytes = 0;
  for (const [i, segment] of segments.entries()) {
    const next = segments[i + 1];
    if (next === undefined || next.first > limit || copies.length === MAX_SEGMENTS) break;
    const copy = await checkArchived(disk, dir, archive, directory, { from: segment.first, to: next.first });
    keyBytes += copy.keys.join("").length;
    if (keyBytes > MAX_KEY_BYTES && copies.length > 0) break;
    copies.push(copy);
  }
  return copies;
}

async function declare(
  context: PruneContext,
  { archive, by }: PruneOptions,
  copies: readonly CheckedCopy[],
  last: StoredStatement | undefined,
): Promise<StoredStatement> {
  const { disk, dir, origin } = context;
  const { prev, object } = copies.at(-1) as CheckedCopy;
  const { to } = object;
  const source = tileSource(disk, dir);
  const statement: PruneStatement = {
    origin,
    from: (copies[0] as CheckedCopy).object.from,
    to,
    root: await rootAt(source, to),
    edge: (await edgeAt(source, to)).map((node) => node.toString("base64")),
    prev,
    keys: copies.flatMap(({ keys }) => keys),
    segments: copies.map((copy) => copy.object),
    archive: archive.location,
    directory: await archiveDirectory(disk, dir, origin),
    by,
    at: new Date().toISOString(),
    previous: last === undefined ? null : statementHash(last.note),
  };
  const note = signStatement(statement, context.signer());
  await context.append({ kind: "admin", actor: by, action: PRUNE_ACTION, detail: { statement: note } });
  await context.commit();
  context.stop.throwIfAborted();
  return { ...statement, note, path: await writeStatement(disk, dir, to, note) };
}

/** Oldest first, so that what a crash leaves is without a gap. */
async function removeBefore({ disk, dir, stop }: PruneContext, to: number): Promise<number> {
  const gone = (await listSegments(disk, dir)).filter(({ first }) => first < to);
  for (const segment of gone) {
    stop.throwIfAborted();
    for (const path of pathsOf(segment)) await disk.remove(path);
    await disk.syncDir(dir);
  }
  return gone.length;
}

function pathsOf(segment: Segment): string[] {
  return [callIndexPath(segment), segment.path, closedPath(segment)];
}

/** What a ledger directory keeps. Without either limit it keeps everything. */
export interface Retention {
  /** Closed segments whose last record is older than this are not kept. */
  readonly keepMs?: number | undefined;
  /** Bytes of all segments on disk; the oldest closed ones above it are not kept. */
  readonly keepBytes?: number | undefined;
}

/** The first record that has to be kept: segments that end before it may be pruned. */
export async function keptFrom(
  dir: string,
  { keepMs = Number.POSITIVE_INFINITY, keepBytes = Number.POSITIVE_INFINITY }: Retention,
  { disk = nodeFs, now = Date.now() }: { disk?: LedgerFs; now?: number } = {},
): Promise<number> {
  const segments = await listSegments(disk, dir);
  const sizes = await Promise.all(
    segments.map(
      async (segment) => ((await disk.stat(segment.path)) ?? (await disk.stat(closedPath(segment))))?.size ?? 0,
    ),
  );
  let total = sizes.reduce((sum, size) => sum + size, 0);
  let kept = segments[0]?.first ?? 0;
  for (const [i, segment] of segments.entries()) {
    const next = segments[i + 1];
    if (next === undefined) break;
    const line = await lastLine(disk, segment);
    const record = line && parseRecord(line);
    const isOld = record !== undefined && now - Date.parse(record.ts) > keepMs;
    if (!isOld && total <= keepBytes) break;
    total -= sizes[i] as number;
    kept = next.first;
  }
  return kept;
}
