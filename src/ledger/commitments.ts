import { join } from "node:path";
import { checkpointPath } from "./checkpoints.js";
import { type LedgerFs, readSmall } from "./files.js";
import { readRotationNotes } from "./keys.js";

/** A signed checkpoint that the log has to agree with, and where it was found. */
export interface Commitment {
  readonly from: string;
  readonly note: string;
}

/** The checkpoints kept beside the log: the last one, and those that introduced a key. */
export async function storedCommitments(disk: LedgerFs, dir: string): Promise<Commitment[]> {
  const found: Commitment[] = [];
  const last = await readSmall(disk, checkpointPath(dir));
  if (last !== undefined) found.push({ from: checkpointPath(dir), note: last });
  for (const { id, note } of await readRotationNotes(disk, dir)) {
    found.push({ from: join(dir, "keys", `${id}.note`), note });
  }
  return found;
}
