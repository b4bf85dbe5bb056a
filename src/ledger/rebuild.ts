// Computes the tiles of a large log again, in the background, while the ledger already takes records. A start needs only
// the right edge of the tree, which the resume point holds. Until the tiles are complete a marker file makes every
// reader of them fail instead of proving from wrong hashes.

import { LedgerReadError, LedgerRefused } from "./errors.js";
import type { LedgerFs } from "./files.js";
import { leafHash } from "./hash.js";
import { consistencyPath, consistent, type HashSource } from "./proof.js";
import { changed, RESTORE, type Signed } from "./scan.js";
import { openSegment, readLines, type Segment } from "./segments.js";
import { rebuildMarker, TileWriter, tileSource } from "./tiles.js";
import { Tree } from "./tree.js";

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
