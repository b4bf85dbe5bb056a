import { type Archive, archivedBytes } from "./archive.js";
import { lastCheckpoint } from "./commitments.js";
import { type LedgerFs, nodeFs, syncFile, writeAt } from "./files.js";
import { closedPath, listSegments, type Segment, segmentAt } from "./segments.js";
import { trustedStatements } from "./statement.js";

const MODE = 0o600;

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
