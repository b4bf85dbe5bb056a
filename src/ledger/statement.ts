// A prune statement states which records were removed from the ledger directory, what they hashed to, where their copies
// are, by whom and when. It is a signed note in `pruned/`, and a record of the ledger holds the same note. Statements
// follow one another without a gap from record 0 on; each names the hash of the one before it.

import { hash } from "node:crypto";
import { join } from "node:path";
import { LedgerReadError, LedgerRefused } from "./errors.js";
import { type LedgerFs, readSmall, replaceFile } from "./files.js";
import { openNote, type Signer, signNote, type Verifier } from "./note.js";
import { Tree } from "./tree.js";

/** The first line, which no checkpoint has: a statement cannot be taken for one, nor the other way round. */
const TYPE = "portcullis-prune/1";
const NAME = /^\d{16}\.note$/;
const MAX_STATEMENTS = 100_000;
const MODE = 0o600;
/** Action of the record that holds a statement. */
export const PRUNE_ACTION = "ledger.prune";

export interface PrunedSegment {
  /** Name of the object in the archive. */
  readonly name: string;
  readonly from: number;
  readonly to: number;
  /** Of the compressed object. */
  readonly bytes: number;
  readonly sha256: string;
}

export interface PruneStatement {
  readonly origin: string;
  /** First record that was removed, and the one after the last. */
  readonly from: number;
  readonly to: number;
  /** Base64 root of the tree of the first `to` records, and its right edge, largest subtree first. */
  readonly root: string;
  readonly edge: readonly string[];
  /** Base64 leaf hash of record `to` - 1, which the first remaining record continues. */
  readonly prev: string;
  /** The `key` records among those removed, as they were: `verify` follows changes of keys by them. */
  readonly keys: readonly string[];
  readonly segments: readonly PrunedSegment[];
  /** Where the copies are: the archive, and the directory in it. */
  readonly archive: string;
  readonly directory: string;
  readonly by: string;
  readonly at: string;
  /** SHA-256 of the statement before this one, in hex. */
  readonly previous: string | null;
}

export interface StoredStatement extends PruneStatement {
  readonly note: string;
  /** File that holds it. */
  readonly path: string;
}

export function signStatement(statement: PruneStatement, signer: Signer): string {
  return signNote(`${TYPE}\n${JSON.stringify(statement)}\n`, [signer]);
}

export function statementHash(note: string): string {
  return hash("sha256", note, "hex");
}

function statementPath(dir: string, to: number): string {
  return join(dir, "pruned", `${String(to).padStart(16, "0")}.note`);
}

export async function writeStatement(disk: LedgerFs, dir: string, to: number, note: string): Promise<string> {
  const path = statementPath(dir, to);
  await disk.makeDir(join(dir, "pruned"));
  await disk.syncDir(dir);
  await replaceFile(disk, path, note, MODE);
  return path;
}

/** The statements of a ledger in order. Throws when one is malformed or they do not follow one another. */
export async function readStatements(disk: LedgerFs, dir: string): Promise<StoredStatement[]> {
  const directory = join(dir, "pruned");
  if ((await disk.stat(directory)) === undefined) return [];
  const names = (await disk.list(directory)).filter((name) => NAME.test(name)).sort();
  if (names.length > MAX_STATEMENTS)
    throw new LedgerReadError(`${directory} holds more than ${MAX_STATEMENTS} statements`);
  const found: StoredStatement[] = [];
  for (const name of names) {
    const path = join(directory, name);
    const note = (await readSmall(disk, path)) ?? "";
    const statement = { ...parseStatement(note, path), note, path };
    const last = found.at(-1);
    const isNext =
      statement.from === (last?.to ?? 0) &&
      statement.previous === (last === undefined ? null : statementHash(last.note)) &&
      path === statementPath(dir, statement.to);
    if (!isNext) {
      throw new LedgerReadError(
        `prune statement ${path} of records ${statement.from} to ${statement.to - 1} does not follow the one before it`,
      );
    }
    found.push(statement);
  }
  return found;
}

function parseStatement(note: string, path: string): PruneStatement {
  const [type, body = ""] = note.split("\n", 2);
  try {
    const statement = JSON.parse(type === TYPE ? body : "") as PruneStatement;
    const { origin, from, to, root, edge, prev, keys, segments } = statement;
    const texts = [origin, root, prev, statement.archive, statement.directory, statement.by, statement.at];
    const isSound =
      texts.every((text) => typeof text === "string") &&
      isRange(from, to) &&
      [edge, keys].every((list) => Array.isArray(list) && list.every((text) => typeof text === "string")) &&
      Array.isArray(segments) &&
      segments.length > 0 &&
      segments.every(
        (segment, i) =>
          isRange(segment.from, segment.to) &&
          segment.from === (segments[i - 1]?.to ?? from) &&
          typeof segment.name === "string" &&
          typeof segment.sha256 === "string",
      ) &&
      segments.at(-1)?.to === to;
    if (isSound) {
      const tree = new Tree();
      tree.resume(to, edgeOf(statement));
      if (tree.root() === root) return statement;
    }
  } catch {
    // Reported below.
  }
  throw new LedgerReadError(`${path} is not a prune statement, or it is damaged`);
}

function isRange(from: unknown, to: unknown): boolean {
  return (
    Number.isSafeInteger(from) && Number.isSafeInteger(to) && (from as number) >= 0 && (from as number) < (to as number)
  );
}

export function edgeOf(statement: PruneStatement): Buffer[] {
  return statement.edge.map((node) => Buffer.from(node, "base64"));
}

/** Throws a NoteError when none of `trusted` signed the statement. */
export function checkStatement({ note }: StoredStatement, trusted: readonly Verifier[]): void {
  openNote(note, trusted);
}

/** What a start and a restore need: all statements sound and signed, and none of another ledger. */
export async function trustedStatements(
  disk: LedgerFs,
  dir: string,
  origin: string,
  keys: readonly Verifier[],
): Promise<StoredStatement[]> {
  const statements = await readStatements(disk, dir);
  for (const statement of statements) {
    try {
      checkStatement(statement, keys);
    } catch (error) {
      throw new LedgerRefused(
        `prune statement ${statement.path} cannot be trusted: ${(error as Error).message}`,
        "restore the directory `pruned` from a copy",
        error,
      );
    }
    if (statement.origin !== origin) {
      throw new LedgerRefused(
        `prune statement ${statement.path} is of ledger "${statement.origin}", this one was opened as "${origin}"`,
        "restore the directory `pruned` from a copy",
      );
    }
  }
  return statements;
}

/** For messages: where a pruned record went. */
export function whereItWent(statements: readonly StoredStatement[], seq: number): string | undefined {
  const found = statements.find((statement) => seq >= statement.from && seq < statement.to);
  return found && `it was pruned by ${found.by} at ${found.at} to ${found.archive}: add \`--archive ${found.archive}\``;
}
