// The ledgers of a data directory: of gateways, workers, replicas and hosts, each under the name that commands use for it.

import { existsSync, readdirSync, statSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import type { Command } from "commander";
import { type LedgerRecord, type NamedLedger, readLastOfSeveral } from "../ledger/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { shellWord } from "../lib/print.js";
import { otherDirectoriesHelp, statePaths } from "./data-directory.js";
import { hostDirectory, portcullisAt, shared } from "./options.js";

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
  return [
    ...ledgersUnder(dir),
    ...ledgersIn(join(hosts, "ledger"))
      .map((path) => ({ name: join("host", relative(join(hosts, "ledger"), path)), path }))
      .filter(isInUse),
  ];
}

/** Those of one data directory alone. */
export function ledgersUnder(dir: string): NamedLedger[] {
  const own = [...ledgersIn(join(dir, "ledger")), ...childrenOf(join(dir, FURTHER_LEDGERS)).flatMap(ledgersIn)];
  return own.map((path) => ({ name: relative(dir, path), path })).filter(isInUse);
}

function isInUse({ path }: NamedLedger): boolean {
  return existsSync(path) && !isUnused(path);
}

/** The ledgers that were named, by name or path, or all that are known. */
export function ledgersFor(command: Command, given: readonly string[]): NamedLedger[] {
  const known = knownLedgers(command);
  if (given.length > 0) {
    return given.flatMap((each) => {
      const same = known.find(({ name, path }) => name === each || path === resolve(each));
      if (!same && !existsSync(each)) throw unknownLedger(each, known);
      return same ? [same] : ledgersIn(each).map((path) => ({ name: path, path }));
    });
  }
  if (known.length > 0) return known;
  const { dir } = statePaths(shared(command).dir);
  const help = `start a gateway with \`portcullis serve\`, or ${otherDirectoriesHelp(dir)}`;
  throw new CliError(`no ledger in ${dir}`, EXIT.error, help);
}

function unknownLedger(name: string, known: readonly NamedLedger[]): CliError {
  const names = known.map((each) => each.name).join(", ");
  const help = `${names === "" ? "" : `known: ${names}; `}a path also names a ledger or an exported file`;
  return new CliError(`there is no ledger \`${name}\``, EXIT.error, help);
}

/** The ledger with this name, or the only one. */
export function oneLedger(command: Command, name: string | undefined): NamedLedger {
  const found = ledgersFor(command, name === undefined ? [] : [name]);
  const [only] = found;
  if (only && found.length === 1) return only;
  const names = found.map((each) => each.name).join(", ");
  throw new CliError("several ledgers: name one with --ledger", EXIT.usage, `known: ${names}`);
}

/** A directory stands for the ledgers in it too: of workers, beside the one of a gateway that ran without them. */
function ledgersIn(path: string): string[] {
  if (!existsSync(path) || !statSync(path).isDirectory()) return [path];
  const inside = childrenOf(path).filter(isLedger);
  return inside.length > 0 && !isLedger(path) ? inside : [path, ...inside];
}

/** A ledger that a gateway opened and has not written to: it has no record that could be read or be missing. */
function isUnused(path: string): boolean {
  if (!statSync(path).isDirectory()) return false;
  return !readdirSync(path).some((name) => name.includes(".ndjson") || name === "checkpoint" || name === "pruned");
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

interface ExplainedCall {
  readonly tool: string;
  /** Undefined, as `agent`, where the caller is not known here. */
  readonly app?: string;
  /** `app/agent`. */
  readonly agent?: string;
  /** JSON text; undefined where it was not kept. */
  readonly arguments?: string;
}

export function explainCall(command: Command, { tool, app, agent, arguments: args }: ExplainedCall): string {
  const caller = app === undefined || agent === undefined ? ["--agent", "APP/AGENT"] : ["--app", app, "--agent", agent];
  // An upper-case word is what the reader has to fill in.
  const known = `${portcullisAt(command)} policy explain ${shellWord(tool)}`;
  return [known, args === undefined ? "ARGUMENTS" : shellWord(args), ...caller.map(shellWord)].join(" ");
}

/** A denial is found close to the end of a ledger: it was recorded before it was answered. */
const LOOK_BACK_BYTES = 1024 * 1024;

/**
 * The command for a call that was just denied. The caller comes from the ledgers of the data directory, by the trace id of
 * the denial: the gateway does not send it, because a denial may pass through several gateways.
 */
export async function explainDenied(
  command: Command,
  { tool, arguments: args, trace }: { tool: string; arguments: string; trace: string },
): Promise<string> {
  const filter = (record: LedgerRecord): boolean =>
    record.kind === "decision" && record.trace === trace && record.tool === tool;
  try {
    const { records } = await readLastOfSeveral(knownLedgers(command), 1, { filter, maxBytes: LOOK_BACK_BYTES });
    const record = records[0]?.record;
    if (record?.kind === "decision") {
      return explainCall(command, { tool, arguments: args, app: record.app, agent: record.actor });
    }
  } catch {
    // `audit verify` reports a ledger that cannot be read; the denial stands without it.
  }
  return explainCall(command, { tool, arguments: args });
}
