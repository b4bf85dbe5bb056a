// Copies of closed segments outside the ledger directory. Each is a compressed object and a manifest, written after the
// object was read back and checked against the signed tree. The manifest holds what an export header does, so that a copy
// can be verified without the ledger.

import { hash } from "node:crypto";
import { dirname, join, resolve } from "node:path";
import { type LastCheckpoint, lastCheckpoint } from "./checkpoints.js";
import { compressFile, openCompressed } from "./compressed.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, nodeFs, type ReadableFile, syncFile, writeAt } from "./files.js";
import type { Checkpoint } from "./note.js";
import { type ExportHeader, exportHeader } from "./read.js";
import { closedPath, listSegments, openSegment, readLines, type Segment, segmentAt } from "./segments.js";
import { type PrunedSegment, readStatements, type StoredStatement, trustedStatements } from "./statement.js";
import { tileSource } from "./tiles.js";
import { consistencyPath, consistent, edgeAt, leafHash, Tree } from "./tree.js";

/** Objects by name; a name is a directory and a file name. */
export interface Archive {
  /** How operators and statements name it. Holds no credential. */
  readonly location: string;
  /** Resolves when the object is durable. Replaces one of the same name. */
  put(name: string, bytes: Buffer): Promise<void>;
  /** The whole object, or undefined when there is none. Rejects when it is larger than `maxBytes`. */
  get(name: string, maxBytes: number): Promise<Buffer | undefined>;
  /** Size of an object, or undefined when there is none. */
  size(name: string): Promise<number | undefined>;
  /** File names in a directory. */
  list(directory: string): Promise<string[]>;
}

/** What the archive holds beside each copy. */
interface ArchiveManifest extends ExportHeader {
  readonly portcullis_archive: 1;
  readonly object: PrunedSegment;
}

export interface ArchiveResult {
  /** Segments that were copied now, and those that were there. */
  readonly copied: number;
  readonly present: number;
  /** Compressed bytes that were copied now. */
  readonly bytes: number;
  /** The first record without a copy. */
  readonly to: number;
  readonly directory: string;
}

export interface ArchiveOptions {
  /** Segments before this record are known to be in the archive, from an earlier result. */
  readonly from?: number;
  readonly disk?: LedgerFs;
  readonly signal?: AbortSignal;
}

/** An object is held in memory while it is copied or checked. */
const MAX_OBJECT_BYTES = 1 << 30;
const MAX_MANIFEST_BYTES = 1 << 20;

const objectName = (first: number): string => `seq-${String(first).padStart(16, "0")}.ndjson.gz`;
const manifestName = (first: number): string => `seq-${String(first).padStart(16, "0")}.json`;

/** Directory of a ledger in every archive: its origin, and the hash of its first record, which no other ledger has. */
export async function archiveDirectory(disk: LedgerFs, dir: string, origin: string): Promise<string> {
  const [statement] = await readStatements(disk, dir);
  if (statement !== undefined) return statement.directory;
  const [segment] = await listSegments(disk, dir);
  if (segment?.first !== 0) throw new LedgerReadError(`the first record of ${dir} is missing`);
  for await (const line of linesOf(await openSegment(disk, segment), segment.name)) {
    const id = Buffer.from(leafHash(line), "base64").toString("hex").slice(0, 16);
    return `${origin.replace(/[^A-Za-z0-9._-]/g, "_")}-${id}`;
  }
  throw new LedgerReadError(`${dir} holds no records yet`);
}

/** Copies every closed segment that is under a checkpoint and has no copy. What is there is left as it is. */
export async function archiveSegments(
  dir: string,
  archive: Archive,
  { disk = nodeFs, signal, from = 0 }: ArchiveOptions = {},
): Promise<ArchiveResult> {
  const segments = await listSegments(disk, dir);
  const checkpoint = await lastCheckpoint(disk, dir);
  const directory = await archiveDirectory(disk, dir, checkpoint.origin);
  let copied = 0;
  let present = 0;
  let bytes = 0;
  let to = Math.max(from, (await readStatements(disk, dir)).at(-1)?.to ?? 0);
  let known: Set<string> | undefined;
  for (const [i, segment] of segments.entries()) {
    const next = segments[i + 1];
    if (next === undefined || next.first > checkpoint.size || signal?.aborted === true) break;
    if (segment.first < from) continue;
    known ??= new Set(await archive.list(directory));
    const manifest = known.has(manifestName(segment.first))
      ? await readManifest(archive, directory, segment.first)
      : undefined;
    if (manifest !== undefined && (await isComplete(archive, directory, manifest, next.first))) present++;
    else {
      bytes += await copySegment(disk, archive, directory, segment, next.first, checkpoint);
      copied++;
    }
    to = Math.max(to, next.first);
  }
  return { copied, present, bytes, to, directory };
}

async function isComplete(
  archive: Archive,
  directory: string,
  { object }: ArchiveManifest,
  to: number,
): Promise<boolean> {
  return object.to === to && (await archive.size(`${directory}/${object.name}`)) === object.bytes;
}

async function readManifest(archive: Archive, directory: string, first: number): Promise<ArchiveManifest | undefined> {
  const bytes = await archive.get(`${directory}/${manifestName(first)}`, MAX_MANIFEST_BYTES);
  try {
    const manifest = JSON.parse(bytes?.toString("utf8") ?? "") as ArchiveManifest;
    const { object } = manifest;
    const isSound =
      manifest.portcullis_archive === 1 &&
      object.name === objectName(first) &&
      object.from === first &&
      Number.isSafeInteger(object.to) &&
      Number.isSafeInteger(object.bytes) &&
      typeof object.sha256 === "string";
    return isSound ? manifest : undefined;
  } catch {
    // A copy that was cut short. It is made again.
    return undefined;
  }
}

async function copySegment(
  disk: LedgerFs,
  archive: Archive,
  directory: string,
  segment: Segment,
  to: number,
  checkpoint: LastCheckpoint,
): Promise<number> {
  const bytes = await compressed(disk, segment);
  const object = {
    name: objectName(segment.first),
    from: segment.first,
    to,
    bytes: bytes.length,
    sha256: hash("sha256", bytes, "hex"),
  };
  await archive.put(`${directory}/${object.name}`, bytes);
  await checkCopy(disk, segment.dir, archive, directory, object, checkpoint);
  const header = await exportHeader(disk, segment.dir, checkpoint, segment.first, to);
  const manifest: ArchiveManifest = { ...header, portcullis_archive: 1, object };
  await archive.put(`${directory}/${manifestName(segment.first)}`, Buffer.from(`${JSON.stringify(manifest)}\n`));
  return bytes.length;
}

async function compressed(disk: LedgerFs, segment: Segment): Promise<Buffer> {
  const file = await openSegment(disk, segment);
  try {
    const blocks: Buffer[] = [];
    for await (const block of compressFile(file)) blocks.push(block);
    return Buffer.concat(blocks);
  } finally {
    await file.close();
  }
}

export interface CheckedCopy {
  readonly object: PrunedSegment;
  /** Leaf hash of the last record, and the `key` records. */
  readonly prev: string;
  readonly keys: readonly string[];
}

/** Reads the copy of the records from `from` to `to` - 1 back and holds it against the tree. Throws when it differs. */
export async function checkArchived(
  disk: LedgerFs,
  dir: string,
  archive: Archive,
  directory: string,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<CheckedCopy> {
  const manifest = await readManifest(archive, directory, from);
  if (manifest?.object.to !== to) {
    throw new LedgerReadError(
      `records ${from} to ${to - 1} are not in the archive ${archive.location}: run \`portcullis audit archive --to ${archive.location}\` first`,
    );
  }
  return checkCopy(disk, dir, archive, directory, manifest.object, await lastCheckpoint(disk, dir));
}

async function checkCopy(
  disk: LedgerFs,
  dir: string,
  archive: Archive,
  directory: string,
  object: PrunedSegment,
  checkpoint: Checkpoint,
): Promise<CheckedCopy> {
  const source = tileSource(disk, dir);
  const tree = new Tree();
  tree.resume(object.from, await edgeAt(source, object.from));
  const keys: string[] = [];
  let prev = "";
  for await (const line of linesOf(await openArchived(archive, directory, object), object.name)) {
    prev = leafHash(line);
    tree.push(prev);
    if (line.includes('"kind":"key"')) keys.push(line.toString("utf8"));
  }
  const path = await consistencyPath(source, object.to, checkpoint.size);
  const isSigned = consistent(object.to, tree.root(), checkpoint.size, checkpoint.root, path);
  if (tree.size !== object.to || !isSigned) {
    throw new LedgerReadError(
      `the copy ${directory}/${object.name} in ${archive.location} does not hold the records of ${dir}: remove it, and archive again`,
    );
  }
  return { object, prev, keys };
}

/** The plain contents of a copy, after its hash was checked. */
export async function openArchived(archive: Archive, directory: string, object: PrunedSegment): Promise<ReadableFile> {
  const bytes = await archivedBytes(archive, directory, object);
  return openCompressed(memoryFile(bytes), object.name);
}

export async function archivedBytes(archive: Archive, directory: string, object: PrunedSegment): Promise<Buffer> {
  const name = `${directory}/${object.name}`;
  const bytes = await archive.get(name, MAX_OBJECT_BYTES);
  if (bytes === undefined) throw new LedgerReadError(`${name} is missing in the archive ${archive.location}`);
  if (hash("sha256", bytes, "hex") !== object.sha256) {
    throw new LedgerReadError(
      `${name} in the archive ${archive.location} is not what was archived: its SHA-256 differs`,
    );
  }
  return bytes;
}

function memoryFile(bytes: Buffer): ReadableFile {
  return {
    read: async (into, position) => bytes.copy(into, 0, position),
    size: async () => bytes.length,
    close: async () => {},
  };
}

async function* linesOf(file: ReadableFile, name: string): AsyncGenerator<Buffer> {
  try {
    for await (const { lines } of readLines(file, name)) for (const { bytes } of lines) yield bytes;
  } finally {
    await file.close();
  }
}

/** The copies of pruned segments, in order. */
export async function* archivedSegments(
  archive: Archive,
  statements: readonly StoredStatement[],
  wanted: (object: PrunedSegment) => boolean = () => true,
): AsyncGenerator<{ object: PrunedSegment; file: ReadableFile }> {
  for (const { segments, directory } of statements) {
    for (const object of segments) {
      if (wanted(object)) yield { object, file: await openArchived(archive, directory, object) };
    }
  }
}

const MODE = 0o600;

/** An archive in a directory, which is best on another disk. */
export function directoryArchive(root: string, disk: LedgerFs = nodeFs): Archive {
  const location = resolve(root);
  return {
    location,

    async put(name, bytes) {
      const path = join(location, name);
      const directory = dirname(path);
      if ((await disk.stat(directory)) === undefined) {
        await disk.makeDir(directory);
        await disk.syncDir(location);
      }
      const next = `${path}.${process.pid}.part`;
      const file = await disk.openWrite(next, MODE);
      try {
        await file.truncate(0);
        await writeAt(file, bytes, 0);
        await syncFile(file);
      } finally {
        await file.close();
      }
      await disk.rename(next, path);
      await disk.syncDir(directory);
    },

    async get(name, maxBytes) {
      const path = join(location, name);
      const facts = await disk.stat(path);
      if (facts === undefined) return undefined;
      if (facts.size > maxBytes) throw new LedgerReadError(`${path} has more than ${maxBytes} bytes`);
      const file = await disk.openRead(path);
      try {
        const bytes = Buffer.alloc(facts.size);
        return bytes.subarray(0, await file.read(bytes, 0));
      } finally {
        await file.close();
      }
    },

    async size(name) {
      return (await disk.stat(join(location, name)))?.size;
    },

    async list(name) {
      const directory = join(location, name);
      return (await disk.stat(directory)) === undefined ? [] : disk.list(directory);
    },
  };
}

/** Puts pruned segments back from the archive. Only while no process writes the ledger. Returns how many. */
export async function restoreSegments(dir: string, archive: Archive, disk: LedgerFs = nodeFs): Promise<number> {
  const { origin, keys } = await lastCheckpoint(disk, dir);
  const lock = await disk.lock(dir, 500);
  try {
    const statements = await trustedStatements(disk, dir, origin, keys);
    const present = new Set((await listSegments(disk, dir)).map(({ first }) => first));
    const gone = statements.flatMap(({ segments, directory }) => segments.map((object) => ({ object, directory })));
    let restored = 0;
    // Newest first, so that what is here at any time is without a gap.
    for (const { object, directory } of gone.reverse()) {
      if (present.has(object.from)) continue;
      await putBack(disk, segmentAt(dir, object.from), await archivedBytes(archive, directory, object));
      restored++;
    }
    return restored;
  } finally {
    await lock.release();
  }
}

async function putBack(disk: LedgerFs, segment: Segment, bytes: Buffer): Promise<void> {
  const next = `${closedPath(segment)}.${process.pid}`;
  const file = await disk.openWrite(next, MODE);
  try {
    await file.truncate(0);
    await writeAt(file, bytes, 0);
    await syncFile(file);
  } finally {
    await file.close();
  }
  await disk.rename(next, closedPath(segment));
  await disk.syncDir(segment.dir);
}
