// What an application serves, for commands that work on it while it runs or not: its tools, its policies, its ledgers.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { loadPolicy, PolicyInvalid, type PolicySet, type PolicySource, readPolicyFiles } from "../gate/index.js";
import type { NamedLedger } from "../ledger/index.js";
import { isJsonObject, type JsonObject } from "../protocol/index.js";
import { demoServer } from "./demo-tools.js";
import { CliError, EXIT } from "./exit.js";
import { readSnapshot, servedTools, snapshotApps } from "./gateway/tool-snapshots.js";
import { knownLedgers } from "./ledgers.js";
import { shared } from "./options.js";
import { statePaths, STORE_FILE } from "./state.js";
import { LOCAL_APP } from "./store/local-application.js";
import { type StoreOptions, withStore } from "./store/open.js";
import { VERSION } from "./version.js";
import type { ServedTool } from "./voices.js";

export interface ServedOptions extends StoreOptions {
  app?: string;
  /** Files and directories instead of those of the data directory and the application. */
  policy?: string[];
  /** A file with an answer of tools/list instead of what was served last. */
  tools?: string;
}

/** Options of every command that works on one application. */
export function withServedOptions(command: Command): Command {
  return command
    .option("--app <name>", "the application (default: the only one)")
    .option(
      "--policy <path...>",
      "policy files or directories (default: those of the data directory and the application)",
    )
    .option("--tools <file>", "an answer of tools/list (default: the tools that the application served last)")
    .option("--storage <address>", "sqlite:path or postgres://…, also PORTCULLIS_STORAGE");
}

export interface Served {
  readonly app: string;
  readonly tools: readonly ServedTool[];
  /** The policy texts that apply to this application. */
  readonly sources: readonly PolicySource[];
  /** The ledgers of this data directory. */
  readonly ledgers: readonly NamedLedger[];
  /** Throws PolicyInvalid. */
  load(): PolicySet;
}

/** Every application that is stored or was served. */
export async function servedApps(command: Command, options: ServedOptions): Promise<string[]> {
  const { dir } = statePaths(shared(command).dir);
  const apps = knownApps(await storedApplications(command, options), snapshotApps(dir));
  return apps.length === 0 ? [LOCAL_APP] : apps;
}

interface Stored {
  readonly app: string;
  readonly policies: Readonly<Record<string, string>>;
}

export async function servedBy(command: Command, options: ServedOptions): Promise<Served> {
  const { dir, policyDir } = statePaths(shared(command).dir);
  const stored = await storedApplications(command, options);
  const app = chosen(options.app, stored, snapshotApps(dir));
  const own = stored.find((each) => each.app === app)?.policies ?? {};
  const tools = options.tools === undefined ? knownTools(dir, app) : toolsIn(options.tools);
  const sources = options.policy?.length
    ? await readPolicyFiles(options.policy)
    : [
        ...(existsSync(policyDir) ? await readPolicyFiles([policyDir]) : []),
        ...Object.entries(own).map(([file, text]): PolicySource => ({ file, text })),
      ];
  // A rule for all applications may name a tool that only another one has, and before it served anything it has none.
  const unknownTools = stored.length > 1 || tools.length === 0 ? "warn" : "refuse";
  return {
    app,
    tools,
    sources,
    ledgers: knownLedgers(command),
    load: () => {
      if (sources.length > 0) return loadPolicy(sources, tools, { unknownTools });
      const help = "portcullis serve creates a first policy; --policy names other files";
      throw new PolicyInvalid([{ file: policyDir, line: 0, column: 0, message: "contains no policy", help }]);
    },
  };
}

async function storedApplications(command: Command, options: ServedOptions): Promise<Stored[]> {
  const address = options.storage ?? process.env.PORTCULLIS_STORAGE;
  if (address === undefined && !existsSync(join(statePaths(shared(command).dir).dir, STORE_FILE))) return [];
  return withStore(command, options, async (storage) => {
    const { items } = await storage.applications.list({ limit: 1_000 });
    return items.map(({ id, document }) => ({ app: id, policies: document.policies ?? {} }));
  });
}

function chosen(given: string | undefined, stored: readonly Stored[], served: readonly string[]): string {
  const known = knownApps(stored, served);
  if (given !== undefined) {
    if (known.includes(given) || given === LOCAL_APP) return given;
    throw new CliError(`unknown application \`${given}\``, EXIT.usage, `known: ${known.join(", ") || "none"}`);
  }
  if (known.length <= 1) return known[0] ?? LOCAL_APP;
  throw new CliError("several applications: name one with --app", EXIT.usage, `known: ${known.join(", ")}`);
}

function knownApps(stored: readonly Stored[], served: readonly string[]): string[] {
  return [...new Set([...stored.map(({ app }) => app), ...served])].sort();
}

/** Nothing where the application has not been served yet. */
function knownTools(dir: string, app: string): readonly ServedTool[] {
  const known = readSnapshot(dir, app);
  if (known) return known;
  // A data directory that never served anything starts with the demonstration.
  return snapshotApps(dir).length === 0 && app === LOCAL_APP ? servedTools(demoServer(VERSION).server) : [];
}

function toolsIn(file: string): ServedTool[] {
  let parsed: JsonObject;
  try {
    parsed = JSON.parse(readFileSync(file, "utf8")) as JsonObject;
  } catch (error) {
    throw new CliError(`cannot read the tools in ${file}: ${(error as Error).message}`);
  }
  const result = isJsonObject(parsed.result) ? parsed.result : parsed;
  if (!Array.isArray(result.tools))
    throw new CliError(`${file} contains no \`tools\``, EXIT.error, "give it an answer of tools/list");
  const server = typeof parsed.server === "string" ? parsed.server : "local";
  return result.tools.map((tool) => {
    const { name, inputSchema, tags, noGuardrailRequired } = tool as unknown as ServedTool;
    const guarded = typeof noGuardrailRequired === "boolean" ? { noGuardrailRequired } : {};
    return { name, server, inputSchema, tags: tags ?? [], ...guarded };
  });
}
