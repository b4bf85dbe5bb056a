import { join } from "node:path";
import { compressFile, openCompressed } from "./compressed.js";
import { type LedgerFs, type ReadableFile, syncFile, writeAt } from "./files.js";
import { closedPath, type Segment } from "./segments.js";

const COMPARE_BYTES = 64 * 1024;
const MODE = 0o600;
/** What a process that was killed left behind; the number is its process id. */
const UNFINISHED = /^seq-\d{16}\.ndjson\.gz\.\d+$/;

/** Only for the process that writes the ledger, and before it compresses. */
export async function removeUnfinished(disk: LedgerFs, dir: string): Promise<void> {
  for (const name of await disk.list(dir)) if (UNFINISHED.test(name)) await disk.remove(join(dir, name));
}

/**
 * Puts the compressed form in the place of a closed segment. INVARIANT: the plain file is removed only after the
 * compressed one was read back and is durable under its name; while both exist readers use the plain one.
 */
export async function compressSegment(disk: LedgerFs, segment: Segment, stop: AbortSignal): Promise<void> {
  const { dir, path } = segment;
  const plain = await disk.openRead(path);
  const next = `${closedPath(segment)}.${process.pid}`;
  try {
    const file = await disk.openWrite(next, MODE);
    try {
      await file.truncate(0);
      let offset = 0;
      for await (const block of compressFile(plain, stop)) {
        await writeAt(file, block, offset);
        offset += block.length;
      }
      if (stop.aborted) return await disk.remove(next);
      await syncFile(file);
      if (!(await haveSameContents(plain, await openCompressed(file, segment.name), stop))) {
        return await disk.remove(next);
      }
    } finally {
      await file.close();
    }
  } finally {
    await plain.close();
  }
  await disk.rename(next, closedPath(segment));
  await disk.syncDir(dir);
  await disk.remove(path);
  await disk.syncDir(dir);
}

/** False also when `stop` was aborted before all was compared. */
async function haveSameContents(a: ReadableFile, b: ReadableFile, stop: AbortSignal): Promise<boolean> {
  const size = await a.size();
  if ((await b.size()) !== size) return false;
  const [left, right] = [Buffer.alloc(COMPARE_BYTES), Buffer.alloc(COMPARE_BYTES)];
  for (let at = 0; at < size; at += left.length) {
    if (stop.aborted) return false;
    const count = await a.read(left, at);
    if ((await b.read(right, at)) !== count) return false;
    if (!left.subarray(0, count).equals(right.subarray(0, count))) return false;
  }
  return true;
}
