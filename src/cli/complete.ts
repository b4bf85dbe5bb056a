// What may follow the words of a command line, for shells: subcommands, options, and values of both.

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Command, Option } from "commander";

/** Values of the arguments and options with this name, apart from those that a command lists itself. */
type KnownValues = Readonly<Record<string, () => readonly string[] | Promise<readonly string[]>>>;

/** The last of `words` is the one being typed. Nothing means that any file may follow. */
export async function completions(program: Command, words: readonly string[], known: KnownValues): Promise<string[]> {
  const typed = words.at(-1) === "=" ? "" : (words.at(-1) ?? "");
  const { command, positionals, option } = followed(program, words.slice(0, -1));
  const [, name, prefix] = /^(--[a-z-]+=)(.*)$/.exec(typed) ? ["", ...typed.split(/=(.*)/s)] : [];
  const inline = name === undefined ? undefined : optionOf(command, name);
  const found = inline
    ? (await valuesOfOption(inline, known)).map((value) => `${name}=${value}`)
    : option
      ? await valuesOfOption(option, known)
      : typed.startsWith("-")
        ? optionNames(command)
        : await following(command, positionals, known);
  return found.filter((each) => each.startsWith(inline ? `${name}=${prefix ?? ""}` : typed));
}

interface Followed {
  readonly command: Command;
  readonly positionals: number;
  /** The option whose value comes next. */
  readonly option: Option | undefined;
}

function followed(program: Command, words: readonly string[]): Followed {
  let command = program;
  let positionals = 0;
  let option: Option | undefined;
  for (const word of words) {
    // Bash takes `=` for a word of its own.
    if (word === "=") continue;
    if (option && !word.startsWith("-")) {
      if (!option.variadic) option = undefined;
      continue;
    }
    if (word.startsWith("-")) {
      const named = word.includes("=") ? undefined : optionOf(command, word);
      option = named?.required || named?.optional ? named : undefined;
      continue;
    }
    const next = positionals === 0 ? command.commands.find((each) => each.name() === word) : undefined;
    if (next) command = next;
    else positionals++;
  }
  return { command, positionals, option };
}

function lineage(command: Command): Command[] {
  return command.parent ? [command, ...lineage(command.parent)] : [command];
}

function optionOf(command: Command, word: string): Option | undefined {
  return lineage(command)
    .flatMap(({ options }) => options)
    .find(({ long, short }) => long === word || short === word);
}

function optionNames(command: Command): string[] {
  const own = lineage(command)
    .flatMap(({ options }) => options)
    .flatMap(({ long, hidden }) => (long && !hidden ? [long] : []));
  return [...new Set([...own, "--help"])];
}

async function valuesOfOption(option: Option, known: KnownValues): Promise<readonly string[]> {
  return option.argChoices ?? (await known[option.name()]?.()) ?? [];
}

async function following(command: Command, positionals: number, known: KnownValues): Promise<readonly string[]> {
  if (command.commands.length > 0) return command.commands.map((each) => each.name());
  const args = command.registeredArguments;
  const last = args.at(-1);
  const argument = args[positionals] ?? (last?.variadic ? last : undefined);
  return argument ? (argument.argChoices ?? (await known[argument.name()]?.()) ?? []) : [];
}

export function knownValues(directory: () => string): KnownValues {
  const apps = async (): Promise<string[]> => {
    const { snapshotApps } = await import("../runtime/tool-snapshots.js");
    const dir = directory();
    return [...new Set([...snapshotApps(dir), ...(await storedApps(dir))])].sort();
  };
  const connectable = async (): Promise<readonly string[]> =>
    (await import("../integrations/clients/places.js")).CONNECTABLE;
  return {
    app: apps,
    client: connectable,
    from: async () => (await import("../integrations/clients/places.js")).CLIENTS,
    shell: () => ["bash", "zsh", "fish"],
    tool: async () => {
      const { readSnapshot, snapshotApps } = await import("../runtime/tool-snapshots.js");
      const dir = directory();
      return snapshotApps(dir).flatMap((app) => (readSnapshot(dir, app) ?? []).map(({ name }) => name));
    },
  };
}

async function storedApps(dir: string): Promise<string[]> {
  const { STORE_FILE } = await import("../runtime/data-directory.js");
  if (!existsSync(join(dir, STORE_FILE))) return [];
  const { openStore } = await import("../runtime/store/open.js");
  const storage = await openStore(dir, undefined, { sweepMs: 0 });
  try {
    return (await storage.applications.list({ limit: 1_000 })).items.map(({ id }) => id);
  } finally {
    await storage.close();
  }
}
