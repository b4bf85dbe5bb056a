import { join } from "node:path";
import { LedgerReadError, LedgerRefused } from "./errors.js";
import { type LedgerFile, type LedgerFs, nodeFs, syncFile, writeAt } from "./files.js";
import { changed, RESTORE, type Signed } from "./scan.js";
import { listSegments, openSegment, readLines, type Segment } from "./segments.js";
import { consistencyPath, consistent, HASH_BYTES, type HashSource, leafHash, type TileSink, Tree } from "./tree.js";

// `tiles/<level>` is the C2SP tiles of that level one after another: tile n is the 8192 bytes from 8192·n, and the
// last one may be partial. Level 0 holds the leaf hashes, a hash of level n+1 covers 256 of level n. They are derived
// from the records and never waited for: what a crash leaves out is computed again at the next start.

const TILE_WIDTH = 256;
const START_BYTES = 64 * 1024;
const MODE = 0o600;

/** How many hashes of each level a log of `size` records has. */
function widthAt(level: number, size: number): number {
  return Math.floor(size / TILE_WIDTH ** level);
}

interface Level {
  /** Hashes on disk. */
  written: number;
  /** Hashes not on disk yet. */
  pending: Buffer;
  count: number;
}

export class TileWriter {
  readonly #disk: LedgerFs;
  readonly #dir: string;
  readonly #levels: Level[] = [];
  #size: number;
  #flushing: Promise<void> | undefined;

  /** Continues tiles that hold exactly the hashes of the first `size` records. */
  constructor(disk: LedgerFs, dir: string, size: number) {
    this.#disk = disk;
    this.#dir = join(dir, "tiles");
    this.#size = size;
  }

  /** Leaf hashes that wait to be written. */
  get pending(): number {
    return this.#levels[0]?.count ?? 0;
  }

  readonly sink: TileSink = (number, bytes, at) => {
    const level = this.#level(number);
    if ((level.count + 1) * HASH_BYTES > level.pending.length) {
      level.pending = Buffer.concat([level.pending, Buffer.allocUnsafe(level.pending.length)]);
    }
    bytes.copy(level.pending, level.count * HASH_BYTES, at, at + HASH_BYTES);
    level.count++;
  };

  #level(number: number): Level {
    let level = this.#levels[number];
    if (level === undefined) {
      const written = widthAt(number, this.#size);
      level = { written, pending: Buffer.allocUnsafe(START_BYTES), count: 0 };
      this.#levels[number] = level;
    }
    return level;
  }

  /** Writes what is pending. What cannot be written stays pending, and the next call tries again. */
  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing.catch(() => {});
    this.#flushing = this.#flushAll().finally(() => {
      this.#flushing = undefined;
    });
    return this.#flushing;
  }

  async #flushAll(): Promise<void> {
    for (const [number, level] of this.#levels.entries()) {
      if (level === undefined || level.count === 0) continue;
      const count = level.count;
      const bytes = level.pending.subarray(0, count * HASH_BYTES);
      await this.#withFile(number, (file) => writeAt(file, bytes, level.written * HASH_BYTES));
      // `sink` may have moved on to a larger buffer meanwhile: what was written is a prefix of it as well.
      level.pending.copyWithin(0, count * HASH_BYTES, level.count * HASH_BYTES);
      level.count -= count;
      level.written += count;
    }
  }

  /** Makes everything flushed so far durable. */
  async sync(): Promise<void> {
    for (const [number, level] of this.#levels.entries()) {
      if (level !== undefined) await this.#withFile(number, syncFile);
    }
    await this.#disk.syncDir(this.#dir);
  }

  // Not held open: a disk in trouble can then be unmounted or mounted anew.
  async #withFile(number: number, work: (file: LedgerFile) => Promise<void>): Promise<void> {
    const file = await this.#disk.openWrite(join(this.#dir, String(number)), MODE);
    try {
      await work(file);
    } finally {
      await file.close();
    }
  }
}

/** Whether `tiles/` holds at least the hashes of the first `size` records. */
export async function tilesReach(disk: LedgerFs, dir: string, size: number): Promise<boolean> {
  for (let level = 0; widthAt(level, size) > 0; level++) {
    const facts = await disk.stat(join(dir, "tiles", String(level)));
    if ((facts?.size ?? 0) < widthAt(level, size) * HASH_BYTES) return false;
  }
  return true;
}

/** While this file exists the tiles are being computed again and hold wrong hashes. */
export function rebuildMarker(dir: string): string {
  return join(dir, "tiles.rebuilding");
}

/** Cuts `tiles/` to the hashes of the first `size` records. */
export async function cutTiles(disk: LedgerFs, dir: string, size: number): Promise<void> {
  const directory = join(dir, "tiles");
  await disk.makeDir(directory);
  for (const name of await disk.list(directory)) {
    const file = await disk.openWrite(join(directory, name), MODE);
    try {
      await file.truncate(Math.min(await file.size(), widthAt(Number(name), size) * HASH_BYTES));
    } finally {
      await file.close();
    }
  }
}

/** Reads hashes from `tiles/`. Fails while they are being rebuilt, except for the rebuild itself. */
export function tileSource(disk: LedgerFs, dir: string, { whileRebuilding = false } = {}): HashSource {
  return async (level, first, count) => {
    if (!whileRebuilding && (await disk.stat(rebuildMarker(dir))) !== undefined) {
      throw new LedgerReadError(`the tiles of ${dir} are being rebuilt; try again when the gateway has finished`);
    }
    const path = join(dir, "tiles", String(level));
    const bytes = Buffer.allocUnsafe(count * HASH_BYTES);
    let read = 0;
    if ((await disk.stat(path)) !== undefined) {
      const file = await disk.openRead(path);
      try {
        read = await file.read(bytes, first * HASH_BYTES);
      } finally {
        await file.close();
      }
    }
    if (read < bytes.length) {
      throw new LedgerReadError(
        `${path} lacks hashes ${first} to ${first + count - 1}; start the ledger once to compute the tiles again`,
      );
    }
    return bytes;
  };
}

/** Tile hashes are written this many leaves at a time. */
const FLUSH_LEAVES = 65_536;

export interface TileRebuild {
  /** The records whose tiles are computed: all before this number. */
  readonly size: number;
  /** Their signed root. */
  readonly root: string;
  readonly segments: readonly Segment[];
  /** Checkpoints over them, which need the tiles to be checked. */
  readonly signed: readonly Signed[];
}

/** Durable before the first hash of the rest of the log is written: a crash must not leave tiles that look complete. */
export async function markRebuild(disk: LedgerFs, dir: string): Promise<void> {
  const file = await disk.openWrite(rebuildMarker(dir), 0o600);
  await file.close();
  await disk.syncDir(dir);
}

export async function clearRebuild(disk: LedgerFs, dir: string): Promise<void> {
  if ((await disk.stat(rebuildMarker(dir))) === undefined) return;
  await disk.remove(rebuildMarker(dir));
  await disk.syncDir(dir);
}

/** Throws when a signed checkpoint is not a prefix of the tree of `head.size` records. */
export async function checkConsistency(
  source: HashSource,
  dir: string,
  head: { readonly size: number; readonly root: string },
  signed: readonly Signed[],
): Promise<void> {
  for (const checkpoint of signed) {
    const path = await consistencyPath(source, checkpoint.size, head.size);
    if (!consistent(checkpoint.size, checkpoint.root, head.size, head.root, path)) throw changed(dir, checkpoint);
  }
}

/** Resolves when the tiles are complete and durable, or when `stop` is aborted; rejects when the records are not those that were signed. */
export async function rebuildTiles(
  disk: LedgerFs,
  dir: string,
  rebuild: TileRebuild,
  stop: AbortSignal,
): Promise<void> {
  const { size, root } = rebuild;
  const first = rebuild.segments[0]?.first ?? 0;
  if (first > 0) {
    throw new LedgerReadError(
      `the tiles of ${dir} are damaged, and records 0 to ${first - 1} were pruned: stop the gateway, run \`portcullis audit restore\`, and start it again`,
    );
  }
  const tiles = new TileWriter(disk, dir, 0);
  const tree = new Tree(tiles.sink);
  for (const segment of rebuild.segments) {
    if (segment.first >= size) break;
    const file = await openSegment(disk, segment);
    try {
      for await (const { lines } of readLines(file, segment.name)) {
        if (stop.aborted) return;
        for (const { bytes } of lines) tree.push(leafHash(bytes));
        if (tiles.pending >= FLUSH_LEAVES) await tiles.flush();
      }
    } finally {
      await file.close();
    }
  }
  await tiles.flush();
  if (tree.size !== size || tree.root() !== root) {
    throw new LedgerRefused(`the first ${size} records of ledger ${dir} are not those that were signed`, RESTORE);
  }
  await tiles.sync();
  await checkConsistency(tileSource(disk, dir, { whileRebuilding: true }), dir, rebuild, rebuild.signed);
  await clearRebuild(disk, dir);
}

/** Computes the tiles of a ledger that no process is writing, which holds exactly these records. */
export async function computeTiles(dir: string, size: number, root: string, disk: LedgerFs = nodeFs): Promise<void> {
  await markRebuild(disk, dir);
  await cutTiles(disk, dir, 0);
  const segments = await listSegments(disk, dir);
  await rebuildTiles(disk, dir, { size, root, segments, signed: [] }, new AbortController().signal);
}
