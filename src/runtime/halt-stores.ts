// `portcullis halt` and `resume`: halts in the store of the data directory, and in that of the host beside it.

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { CliError, EXIT } from "../lib/exit.js";
import { type Halt, Halts, type HaltTarget } from "../policy/index.js";
import type { Storage } from "../storage/index.js";
import { visible } from "../telemetry/index.js";
import { STORE_FILE, statePaths } from "./data-directory.js";
import { asHalt, HALT_FILE } from "./halts.js";
import { hostDirectory, shared } from "./options.js";
import { operator, type StoreOptions, withStore } from "./store/open.js";

export type HaltFlags = StoreOptions & HaltTarget & { readonly reason?: string; readonly all?: boolean };

export interface HaltShown {
  readonly target: string;
  readonly by: string;
  readonly since: string;
  readonly reason: string;
}

export const haltRows: Readonly<Record<string, (halt: HaltShown) => string>> = {
  halted: ({ target }) => target,
  by: ({ by }) => by,
  since: ({ since }) => since,
  reason: ({ reason }) => reason,
};

export async function putHalt(
  command: Command,
  flags: HaltFlags,
): Promise<{ halt: HaltShown; note: string | undefined }> {
  const target = targetOf(flags);
  const { app } = target;
  const name = Halts.nameOf(target);
  const [made] = await inStores(command, flags, true, async ({ halts, applications }) => ({
    halt: await halts.put({ name, app: app ?? "", reason: flags.reason ?? "" }, operator()),
    isKnown: app === undefined || (await applications.get(app)) !== undefined,
  }));
  if (made === undefined) throw new CliError("there is no store to keep the halt in");
  // A name that nothing has may be a mistake; what it halts is halted all the same.
  const unknown = `no application \`${visible(app ?? "")}\` is stored: the halt covers a module or host of that name`;
  return { halt: shown(asHalt(made.halt)), note: made.isKnown ? undefined : unknown };
}

/** What the stores hold, and the files that halt calls. */
export async function haltedHere(
  command: Command,
  options: StoreOptions,
): Promise<{ halts: HaltShown[]; files: string[] }> {
  const found = await inStores(command, options, false, (storage) => storage.halts.list());
  const halts = [...new Map(found.flat().map((each) => [each.name, shown(asHalt(each))])).values()];
  return { halts, files: haltFiles(command) };
}

export async function resumeHalts(
  command: Command,
  flags: HaltFlags,
): Promise<{ target: string; resumed: string[]; left: string[] }> {
  const target = targetOf(flags);
  const wanted = Halts.nameOf(target);
  if (flags.all && wanted !== Halts.nameOf({})) {
    throw new CliError("--all cannot be combined with a target", EXIT.usage);
  }
  const ended = await inStores(command, flags, false, async ({ halts }) => {
    const names = (await halts.list()).map(({ name }) => name);
    const chosen = flags.all ? names : names.filter((name) => name === wanted);
    for (const name of chosen) await halts.remove(name, operator());
    return { chosen, names };
  });
  const resumed = [...new Set(ended.flatMap(({ chosen }) => chosen))];
  const others = [...new Set(ended.flatMap(({ names }) => names))].filter((name) => !resumed.includes(name));
  const files = haltFiles(command).map((file) => `the file ${file}, which you remove`);
  return { target: visible(wanted), resumed: resumed.map(visible), left: [...others.map(visible), ...files] };
}

function targetOf({ app, agent, server, tool }: HaltFlags): HaltTarget {
  const at = agent?.indexOf("/") ?? -1;
  const named = at > 0 ? { app: agent?.slice(0, at), agent: agent?.slice(at + 1) } : { app, agent };
  if (at > 0 && app !== undefined && app !== named.app) {
    throw new CliError(`--agent ${agent} is not an agent of --app ${app}`, EXIT.usage, "leave one of them out");
  }
  return { ...named, server, tool };
}

/** The data directory, and that of the host beside it: an emergency stop is not asked which of them it means. */
function directories(command: Command): string[] {
  return [...new Set([statePaths(shared(command).dir).dir, hostDirectory(command)])];
}

function haltFiles(command: Command): string[] {
  return directories(command)
    .map((dir) => join(dir, HALT_FILE))
    .filter((file) => existsSync(file));
}

async function inStores<T>(
  command: Command,
  options: StoreOptions,
  create: boolean,
  work: (storage: Storage) => Promise<T>,
): Promise<T[]> {
  const [, ...hosts] = directories(command);
  const results = [await withStore(command, options, work, { create })];
  for (const dir of hosts) {
    // The host keeps its store in its own directory, whatever the gateway uses.
    const file = join(dir, STORE_FILE);
    if (existsSync(file)) results.push(await withStore(command, { storage: `sqlite:${file}` }, work, { dir }));
  }
  return results;
}

function shown({ target, by, reason, at }: Halt): HaltShown {
  const since = new Date(at).toISOString();
  return { target: visible(Halts.nameOf(target)), by: visible(by), since, reason: visible(reason) };
}
