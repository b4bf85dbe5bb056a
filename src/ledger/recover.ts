import { join } from "node:path";
import { type Commitment, storedCommitments } from "./checkpoints.js";
import { parseHead } from "./entry.js";
import { LedgerRefused } from "./errors.js";
import { type LedgerFs, readSmall, syncFile } from "./files.js";
import { type Checkpoint, openCheckpoint, type Verifier } from "./note.js";
import { missingSegment, RESTORE, Scan, type ScanOptions, type ScanStart, type Signed, type Torn } from "./scan.js";
import { isCompressed, lastLine, listSegments, type Segment, segmentAt, segmentBytes } from "./segments.js";
import { edgeOf as edgeOfStatement, type StoredStatement, trustedStatements } from "./statement.js";
import {
  checkConsistency,
  clearRebuild,
  cutTiles,
  markRebuild,
  type TileRebuild,
  TileWriter,
  tileSource,
  tilesReach,
} from "./tiles.js";
import { edgeAt, type HashSource, leafHash, NO_PREV, rootAt, Tree } from "./tree.js";

// What a start finds out about the log: where it ends, whether it still holds everything that was signed, and which
// calls have no outcome. A small log is read whole; a large one from its last resume point, for which the signed
// checkpoint stored with it and the tiles vouch.

export interface ResumePoint {
  /** Signed checkpoint at exactly the first record of a segment. */
  readonly note: string;
  /** Calls without an outcome at that point: call id and the record that permitted it. */
  readonly open: readonly (readonly [string, number])[];
  /** Right edge of the tree at that point, base64, largest subtree first. With it a start does not need the tiles. */
  readonly edge?: readonly string[];
}

export function resumePath(dir: string): string {
  return join(dir, "resume.json");
}

export interface Recovered {
  readonly tree: Tree;
  readonly tiles: TileWriter;
  readonly prev: string;
  readonly segment: Segment;
  readonly offset: number;
  /** Calls without an outcome, and the record that permitted each. */
  readonly open: Map<string, number>;
  readonly torn: Torn | null;
  /** Set when the tiles of the records before `size` are missing or wrong and have to be computed again. */
  readonly rebuild: TileRebuild | undefined;
}

export interface RecoverOptions extends ScanOptions {
  readonly keys: readonly Verifier[];
  /** Logs up to this size are read whole at every start. */
  readonly fullCheckBytes: number;
  /** Tile hashes are held in memory until the log has proved sound, at most this many. */
  readonly maxHeldLeaves: number;
  /** External checkpoints. */
  readonly outside: readonly Commitment[];
}

interface Start extends ScanStart {
  readonly tiles: TileWriter;
  readonly rebuild: TileRebuild | undefined;
}

export async function recover(options: RecoverOptions): Promise<Recovered> {
  const { disk, dir } = options;
  const statements = await trustedStatements(disk, dir, options.origin, options.keys);
  const signed = await openCommitments(options, statements);
  const segments = await listSegments(disk, dir);
  const pruned = prunedBefore(segments, statements);
  const start =
    (await resume(options, segments, signed, pruned)) ??
    (await afterPruned(options, segments, signed, pruned)) ??
    emptyStart(disk, dir);
  const from = start.tree.size;
  const scan = new Scan(options, start, signed);
  let end = { segment: segmentAt(dir, 0), offset: 0, torn: null as Torn | null };
  const flushTiles = async (): Promise<void> => {
    await disk.makeDir(join(dir, "tiles"));
    if (start.rebuild !== undefined) await markRebuild(disk, dir);
    await start.tiles.flush();
  };
  for (const [i, segment] of segments.entries()) {
    if (segment.first < from) continue;
    end = { segment, ...(await scan.segment(segment, i === segments.length - 1)) };
    if (start.tiles.pending > options.maxHeldLeaves) await flushTiles();
  }
  scan.finish();
  // No record is added to a compressed file. It is the last only where the next one was removed without a record in it.
  if (end.offset > 0 && (await isCompressed(disk, end.segment))) {
    end = { segment: segmentAt(dir, start.tree.size), offset: 0, torn: null };
  }
  await flushTiles();
  // Last: until here the tiles were overwritten with the hashes that they hold, and a kill leaves them whole.
  await cutTiles(disk, dir, start.tree.size);
  if (start.rebuild === undefined) await clearRebuild(disk, dir);
  if (end.torn !== null) await cutFile(disk, end.segment.path, end.offset);
  return { ...start, ...end, prev: scan.prev };
}

function emptyStart(disk: LedgerFs, dir: string): Start {
  const tiles = new TileWriter(disk, dir, 0);
  return { tree: new Tree(tiles.sink), tiles, prev: NO_PREV, open: new Map(), rebuild: undefined };
}

async function cutFile(disk: LedgerFs, path: string, size: number): Promise<void> {
  const file = await disk.openWrite(path, 0o600);
  try {
    await file.truncate(size);
    await syncFile(file);
  } finally {
    await file.close();
  }
}

/** Opens every checkpoint the log has to agree with, smallest first. */
async function openCommitments(
  { disk, dir, origin, keys, outside }: RecoverOptions,
  statements: readonly StoredStatement[],
): Promise<Signed[]> {
  const signed = [...(await storedCommitments(disk, dir)), ...outside].map(({ from, note }) => {
    try {
      return { ...openCheckpoint(note, keys), from };
    } catch (error) {
      throw new LedgerRefused(`checkpoint ${from} cannot be trusted: ${(error as Error).message}`, RESTORE, error);
    }
  });
  const foreign = signed.find((checkpoint) => checkpoint.origin !== origin);
  if (foreign !== undefined) {
    throw new LedgerRefused(
      `checkpoint ${foreign.from} is of ledger "${foreign.origin}", this one was opened as "${origin}"`,
      "open it under its own origin, or use another directory",
    );
  }
  const pruned = statements.map(({ to, root, path }) => ({ origin, size: to, root, from: path }));
  return [...signed, ...pruned].sort((a, b) => a.size - b.size);
}

/** A start in the middle of a large log, or undefined when the log has to be read from its beginning. */
async function resume(
  options: RecoverOptions,
  segments: readonly Segment[],
  signed: readonly Signed[],
  pruned: StoredStatement | undefined,
): Promise<Start | undefined> {
  const { disk, dir, keys, origin } = options;
  let bytes = 0;
  for (const segment of segments) bytes += await segmentBytes(disk, segment);
  if (bytes <= options.fullCheckBytes) return undefined;

  const point = await readResumePoint(disk, dir, keys);
  if (point === undefined || point.origin !== origin || point.size === 0) return undefined;
  if (!segments.some((segment) => segment.first === point.size)) return undefined;
  const source = tileSource(disk, dir);
  const hasTiles = (await tilesReach(disk, dir, point.size)) && (await hasRoot(source, point));
  const edge = hasTiles ? await edgeAt(source, point.size) : edgeOf(point);
  if (edge === undefined) return undefined;

  const prev = await checkSealedSegments(disk, segments, point.size, pruned);
  const before = signed.filter((checkpoint) => checkpoint.size <= point.size);
  if (hasTiles) await checkConsistency(source, dir, point, before);
  const tiles = new TileWriter(disk, dir, point.size);
  const tree = new Tree(tiles.sink);
  tree.resume(point.size, edge);
  const rebuild = hasTiles ? undefined : { size: point.size, root: point.root, segments, signed: before };
  return { tree, tiles, prev, open: new Map(point.open), rebuild };
}

/** The statement under which the records before the first segment were removed. */
function prunedBefore(
  segments: readonly Segment[],
  statements: readonly StoredStatement[],
): StoredStatement | undefined {
  const first = segments[0]?.first ?? 0;
  const last = statements.at(-1);
  return first > 0 && last !== undefined && first <= last.to ? last : undefined;
}

/** A start behind the pruned records, or undefined when none were pruned. */
async function afterPruned(
  { disk, dir }: RecoverOptions,
  segments: readonly Segment[],
  signed: readonly Signed[],
  pruned: StoredStatement | undefined,
): Promise<Start | undefined> {
  if (pruned === undefined) return undefined;
  const { to: size, root, prev } = pruned;
  const source = tileSource(disk, dir);
  const before = signed.filter((checkpoint) => checkpoint.size <= size);
  const hasTiles = (await tilesReach(disk, dir, size)) && (await hasRoot(source, { size, root }));
  if (hasTiles) await checkConsistency(source, dir, { size, root }, before);
  const tiles = new TileWriter(disk, dir, size);
  const tree = new Tree(tiles.sink);
  tree.resume(size, edgeOfStatement(pruned));
  const rebuild = hasTiles ? undefined : { size, root, segments, signed: before };
  return { tree, tiles, prev, open: new Map(), rebuild };
}

async function hasRoot(source: HashSource, { size, root }: Pick<Checkpoint, "size" | "root">): Promise<boolean> {
  try {
    return (await rootAt(source, size)) === root;
  } catch {
    // Tiles that are being rebuilt cannot be read.
    return false;
  }
}

/** The edge kept with the resume point, when it folds to the signed root. */
function edgeOf({ size, root, edge }: Checkpoint & ResumePoint): Buffer[] | undefined {
  try {
    const nodes = edge?.map((node) => Buffer.from(node, "base64"));
    if (nodes === undefined) return undefined;
    const tree = new Tree();
    tree.resume(size, nodes);
    return tree.root() === root ? nodes : undefined;
  } catch {
    return undefined;
  }
}

async function readResumePoint(
  disk: LedgerFs,
  dir: string,
  keys: readonly Verifier[],
): Promise<(Checkpoint & ResumePoint) | undefined> {
  try {
    const point = JSON.parse((await readSmall(disk, resumePath(dir), 64 << 20)) ?? "") as ResumePoint;
    return { ...openCheckpoint(point.note, keys), ...point };
  } catch {
    // A hint only: without it the start takes longer.
    return undefined;
  }
}

/**
 * Checks that each segment before `size` ends where the next one begins; `verify` checks their contents. Returns the leaf
 * hash of the last record before `size`.
 */
async function checkSealedSegments(
  disk: LedgerFs,
  segments: readonly Segment[],
  size: number,
  pruned: StoredStatement | undefined,
): Promise<string> {
  let prev = pruned?.to === size ? pruned.prev : NO_PREV;
  for (const [i, segment] of segments.entries()) {
    if (segment.first >= size) break;
    const next = segments[i + 1] as Segment;
    const line = await lastLine(disk, segment);
    const last = line && parseHead(line)?.seq;
    if (i === 0 && segment.first > (pruned?.to ?? 0)) throw missingSegment(0, segment.first - 1, segment.name);
    if (line === undefined || last !== next.first - 1) {
      const found = last === undefined ? "does not end with a record" : `ends with record ${last}`;
      throw new LedgerRefused(`${segment.name} ${found}, but ${next.name} begins with record ${next.first}`, RESTORE);
    }
    prev = leafHash(line);
  }
  return prev;
}
