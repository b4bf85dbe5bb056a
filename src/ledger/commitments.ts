import { join } from "node:path";
import { checkpointPath } from "./checkpoints.js";
import { LedgerReadError } from "./errors.js";
import { type LedgerFs, readSmall } from "./files.js";
import { readRotationNotes, readVerifiers } from "./keys.js";
import { type Checkpoint, openCheckpoint, type Verifier } from "./note.js";

/** A signed checkpoint that the log has to agree with, and where it was found. */
export interface Commitment {
  readonly from: string;
  readonly note: string;
}

/** The last checkpoint, opened with the keys beside the log. */
export interface LastCheckpoint extends Checkpoint {
  readonly note: string;
  readonly signedBy: readonly Verifier[];
  readonly keys: readonly Verifier[];
}

export async function lastCheckpoint(disk: LedgerFs, dir: string): Promise<LastCheckpoint> {
  const note = await readSmall(disk, checkpointPath(dir));
  if (note === undefined) throw new LedgerReadError(`${dir} holds no checkpoint: is it a ledger folder?`);
  const keys = await readVerifiers(disk, dir);
  return { ...openCheckpoint(note, keys), note, keys };
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
