import { parseRecord } from "./entry.js";
import { type LedgerFs, nodeFs } from "./files.js";
import { closedPath, lastLine, listSegments } from "./segments.js";

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
