import { LedgerReadError } from "./errors.js";
import { checkpointPath } from "./checkpoints.js";
import { type LedgerFs, nodeFs, readSmall } from "./files.js";
import { readVerifiers } from "./keys.js";
import { openCheckpoint } from "./note.js";
import { consistencyPath, edgeAt } from "./proof.js";
import { read } from "./read.js";
import { tileSource } from "./tiles.js";

// An export is one file: a header line, then records exactly as they stand in the log. The header holds what the
// records alone do not say, so that `verify` can check the file by itself: the right edge of the tree before the
// first record, and the way from the tree after the last one to a signed checkpoint.

export interface ExportHeader {
  readonly portcullis_export: 1;
  readonly origin: string;
  readonly from: number;
  readonly to: number;
  /** Base64 hashes of the right edge of the tree of the first `from` records. */
  readonly edge: readonly string[];
  /** Base64 RFC 6962 consistency proof from `to` records to those of the checkpoint. */
  readonly consistency: readonly string[];
  readonly checkpoint: string;
  readonly public_keys: readonly string[];
}

export interface ExportOptions {
  readonly from?: number;
  /** First record left out. By default, and at most, the size of the last checkpoint: what follows is not signed. */
  readonly to?: number;
  readonly disk?: LedgerFs;
}

/** The lines of an export, each with its newline. */
export async function* exportRecords(dir: string, options: ExportOptions = {}): AsyncGenerator<string> {
  const { from = 0, disk = nodeFs } = options;
  const note = await readSmall(disk, checkpointPath(dir));
  if (note === undefined) throw new LedgerReadError(`${dir} holds no checkpoint: is it a ledger folder?`);
  const keys = await readVerifiers(disk, dir);
  const checkpoint = openCheckpoint(note, keys);
  const to = Math.min(options.to ?? checkpoint.size, checkpoint.size);
  if (!(from >= 0 && from < to)) {
    throw new LedgerReadError(`there are no signed records from ${from} to ${to - 1} in ${dir}`);
  }
  const source = tileSource(disk, dir);
  const encode = (hashes: Buffer[]): string[] => hashes.map((hash) => hash.toString("base64"));
  const header: ExportHeader = {
    portcullis_export: 1,
    origin: checkpoint.origin,
    from,
    to,
    edge: encode(await edgeAt(source, from)),
    consistency: encode(await consistencyPath(source, to, checkpoint.size)),
    checkpoint: note,
    public_keys: keys.map((key) => key.vkey),
  };
  yield `${JSON.stringify(header)}\n`;
  for await (const { line } of read(dir, { from, to, disk })) yield `${line}\n`;
}
