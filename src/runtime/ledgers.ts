// The ledgers of a data directory: of gateways, workers, replicas and hosts, each under the name that commands use for it.

import { existsSync, readdirSync, statSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import type { NamedLedger } from "../ledger/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { otherDirectoriesHelp } from "./find-data-directory.js";
import { hostDirectory, shared } from "./options.js";
import { statePaths } from "./data-directory.js";

/** Where gateways that find the data directory's own ledger in use, and replicas, keep theirs. */
export const FURTHER_LEDGERS = "ledgers";
/** `portcullis restore` keeps the files that it replaced beside the ledger. */
const REPLACED = ".replaced-";

/**
 * Every ledger under the data directory. A host has a state directory of its own, which is read as well unless --dir names
 * one data directory.
 */
export function knownLedgers(command: Command): NamedLedger[] {
  const { dir } = statePaths(shared(command).dir);
  const hosts = hostDirectory(command);
  const own = [...ledgersIn(join(dir, "ledger")), ...childrenOf(join(dir, FURTHER_LEDGERS)).flatMap(ledgersIn)];
  return [
    ...own.map((path) => ({ name: relative(dir, path), path })),
    ...ledgersIn(join(hosts, "ledger")).map((path) => ({
      name: join("host", relative(join(hosts, "ledger"), path)),
      path,
    })),
  ].filter(({ path }) => existsSync(path));
}

/** The ledgers that were named, by name or path, or all that are known. */
export function ledgersFor(command: Command, given: readonly string[]): NamedLedger[] {
  const known = knownLedgers(command);
  if (given.length > 0) {
    return given.flatMap((each) => {
      const same = known.find(({ name, path }) => name === each || path === resolve(each));
      return same ? [same] : ledgersIn(each).map((path) => ({ name: path, path }));
    });
  }
  if (known.length > 0) return known;
  const { dir } = statePaths(shared(command).dir);
  const help = `start a gateway with \`portcullis serve\`, or ${otherDirectoriesHelp(dir)}`;
  throw new CliError(`no ledger in ${dir}`, EXIT.error, help);
}

/** The ledger with this name, or the only one. */
export function oneLedger(command: Command, name: string | undefined): NamedLedger {
  const found = ledgersFor(command, name === undefined ? [] : [name]);
  const [only] = found;
  if (only && found.length === 1) return only;
  const names = found.map((each) => each.name).join(", ");
  throw new CliError("several ledgers: name one with --ledger", EXIT.usage, `known: ${names}`);
}

/** A directory that contains ledgers instead of being one stands for all of them. */
function ledgersIn(path: string): string[] {
  if (!existsSync(path) || !statSync(path).isDirectory() || isLedger(path)) return [path];
  const inside = childrenOf(path).filter(isLedger);
  return inside.length > 0 ? inside : [path];
}

function isLedger(directory: string): boolean {
  return readdirSync(directory).some((name) => name.endsWith(".ndjson"));
}

function childrenOf(directory: string): string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !entry.name.includes(REPLACED))
    .map((entry) => join(directory, entry.name))
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}
