import { LedgerReadError } from "./errors.js";
import { type LastCheckpoint, lastCheckpoint } from "./commitments.js";
import { type LedgerFs, nodeFs } from "./files.js";
import { consistencyPath, edgeAt } from "./proof.js";
import { read } from "./read.js";
import { listSegments } from "./segments.js";
import { readStatements, whereItWent } from "./statement.js";
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

export interface LedgerExportOptions {
  /** The first record that the directory still holds unless given. */
  readonly from?: number;
  /** First record left out. By default, and at most, the size of the last checkpoint: what follows is not signed. */
  readonly to?: number;
  readonly disk?: LedgerFs;
}

/** The lines of an export, each with its newline. */
export async function* exportRecords(dir: string, options: LedgerExportOptions = {}): AsyncGenerator<string> {
  const { disk = nodeFs } = options;
  const from = options.from ?? (await listSegments(disk, dir))[0]?.first ?? 0;
  const checkpoint = await lastCheckpoint(disk, dir);
  const to = Math.min(options.to ?? checkpoint.size, checkpoint.size);
  const where = whereItWent(await readStatements(disk, dir), from);
  if (where !== undefined && (await listSegments(disk, dir))[0]?.first !== 0) {
    throw new LedgerReadError(`record ${from} is not in ${dir} any more: ${where}`);
  }
  if (!(from >= 0 && from < to)) {
    throw new LedgerReadError(`there are no signed records from ${from} to ${to - 1} in ${dir}`);
  }
  yield `${JSON.stringify(await exportHeader(disk, dir, checkpoint, from, to))}\n`;
  for await (const { line } of read(dir, { from, to, disk })) yield `${line}\n`;
}

/** What an export of the records from `from` to `to` - 1 begins with. */
export async function exportHeader(
  disk: LedgerFs,
  dir: string,
  { origin, size, note, keys }: LastCheckpoint,
  from: number,
  to: number,
): Promise<ExportHeader> {
  const source = tileSource(disk, dir);
  const encode = (hashes: Buffer[]): string[] => hashes.map((hash) => hash.toString("base64"));
  return {
    portcullis_export: 1,
    origin,
    from,
    to,
    edge: encode(await edgeAt(source, from)),
    consistency: encode(await consistencyPath(source, to, size)),
    checkpoint: note,
    public_keys: keys.map((key) => key.vkey),
  };
}
