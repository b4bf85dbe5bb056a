// What the audit commands do with ledgers: proofs, signing keys, exports and the registry of the store.

import { createWriteStream, existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import {
  type Archive,
  type InclusionProof,
  type Ledger,
  LedgerLocked,
  type NamedLedger,
  openLedger,
  prove,
  read,
} from "../ledger/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import type { RegisteredLedger } from "../storage/index.js";
import { statePaths } from "./data-directory.js";
import { placeOf } from "./ledger.js";
import { knownLedgers, ledgersFor } from "./ledgers.js";
import { shared } from "./options.js";
import { withStore } from "./store/open.js";

/** What `audit verify` reads; before anything was recorded, the place where the first ledger will be. */
export function verified(command: Command, paths: readonly string[]): NamedLedger[] {
  if (paths.length > 0 || knownLedgers(command).length > 0) return ledgersFor(command, paths);
  return [{ name: "ledger", path: statePaths(shared(command).dir).ledgerDir }];
}

/** `which` is a number of the only ledger, LEDGER#NUMBER, or a call id, which is looked for in every ledger. */
export async function proofsOf(
  command: Command,
  which: string,
  archive: Archive | undefined,
): Promise<InclusionProof[]> {
  const [, name, number] = /^(?:(.*)#)?(\d+)$/.exec(which) ?? [];
  const ledgers = ledgersFor(command, name === undefined ? [] : [name]);
  const found: { id: string; proofs: readonly InclusionProof[] }[] = [];
  let failure: unknown;
  for (const ledger of ledgers) {
    try {
      const proofs = await prove(ledger.path, number === undefined ? which : Number(number), { archive });
      found.push({ id: `${ledger.name}#${number}`, proofs });
    } catch (error) {
      failure ??= error;
    }
  }
  if (number !== undefined && found.length > 1) {
    const known = `known: ${found.map(({ id }) => id).join(", ")}`;
    throw new CliError(`several ledgers have a record ${number}: name the ledger`, EXIT.usage, known);
  }
  if (found.length > 0) return found.flatMap(({ proofs }) => proofs);
  if (ledgers.length === 1) throw failure;
  const what = number === undefined ? `a record of call \`${which}\`` : `a record ${number}`;
  const help = `read: ${ledgers.map((each) => each.name).join(", ")}; \`portcullis audit tail\` shows numbers and call ids`;
  throw new CliError(`no ledger has ${what}`, EXIT.error, help);
}

/** Opens a ledger that no gateway is writing, and closes it again. */
export async function withWriter<T>(path: string, work: (ledger: Ledger) => Promise<T>): Promise<T> {
  const note = join(path, "checkpoint");
  // The first line of a checkpoint is the ledger's name, under which it has to be opened.
  const [origin = ""] = existsSync(note) ? readFileSync(note, "utf8").split("\n") : [];
  if (origin === "") throw new CliError(`${path} holds no signed ledger`, EXIT.error, "name the directory of a ledger");
  const ledger = await openLedger({ dir: path, origin }).catch(unlessLocked(path));
  return work(ledger).finally(() => ledger.close());
}

export function unlessLocked(path: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof LedgerLocked)) throw error;
    const locked = new CliError(
      `ledger ${path} is being written by another process`,
      EXIT.error,
      "stop the gateway first",
    );
    locked.cause = error;
    throw locked;
  };
}

export async function rotateKeyOf(
  path: string,
  ask: (origin: string) => Promise<void>,
): Promise<{ old: string; new: string }> {
  const known = introduced(path);
  try {
    return await withWriter(path, (ledger) => ledger.rotateKey());
  } catch (error) {
    if (!((error as Error).cause instanceof LedgerLocked)) throw error;
    const [origin = ""] = readFileSync(join(path, "checkpoint"), "utf8").split("\n");
    await ask(origin);
    return awaitRotation(path, known);
  }
}

/** The notes that introduced a key, by the id of the key. */
function introduced(path: string): string[] {
  const directory = join(path, "keys");
  return existsSync(directory) ? readdirSync(directory).filter((name) => name.endsWith(".note")) : [];
}

const ROTATION_MS = 30_000;

/** The gateway that writes the ledger was asked by way of the store. */
async function awaitRotation(path: string, known: readonly string[]): Promise<{ old: string; new: string }> {
  for (let waited = 0; waited < ROTATION_MS; waited += 100) {
    await sleep(100);
    const note = introduced(path).find((name) => !known.includes(name));
    if (note === undefined) continue;
    let found: { old: string; new: string } | undefined;
    for await (const { record } of read(path)) {
      if (record.kind === "key" && record.new.includes(`+${note.slice(0, -".note".length)}+`)) {
        found = { old: record.old ?? "", new: record.new };
      }
    }
    if (found) return found;
  }
  throw new CliError(
    `ledger ${path} is being written by a process that did not replace its key within ${ROTATION_MS / 1_000} seconds`,
    EXIT.error,
    "name the store that it uses with --storage, or stop it and try again",
  );
}

/** A line at a time, beside the file and then in its place: an export that fails leaves the old one as it was. */
export async function writeWhole(path: string, lines: AsyncIterable<string>): Promise<void> {
  const facts = statSync(path, { throwIfNoEntry: false });
  // A pipe or a terminal has no place to be put in.
  const next = facts === undefined || facts.isFile() ? `${path}.part` : path;
  try {
    await pipeline(Readable.from(lines), createWriteStream(next));
    if (next !== path) renameSync(next, path);
  } catch (error) {
    if (next !== path) rmSync(next, { force: true });
    throw error;
  }
}

export interface VerifyFlags {
  archive?: string;
  checkpoint?: string[];
  key?: string[];
  storage?: string;
}

/** What the store expects; nothing where there is no store yet. */
export async function registeredLedgers(command: Command, options: VerifyFlags): Promise<RegisteredLedger[]> {
  return withStore(command, options, (storage) => storage.ledgers.list());
}

/** What the store expects of the ledger at `path`: by its place, or by its origin for a copy. */
export function registeredAt(registered: readonly RegisteredLedger[], path: string): RegisteredLedger | undefined {
  const named = registered.filter(({ origin }) => origin === originAt(path));
  return named.find(({ place }) => place === placeOf(path)) ?? (named.length === 1 ? named[0] : undefined);
}

/** The origin that a ledger's own checkpoint names. */
function originAt(path: string): string | undefined {
  const checkpoint = join(path, "checkpoint");
  return existsSync(checkpoint) ? readFileSync(checkpoint, "utf8").split("\n", 1)[0] : undefined;
}
