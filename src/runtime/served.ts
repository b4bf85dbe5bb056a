// What an application serves, for commands that work on it while it runs or not: its tools, its policies, its ledgers.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { localIdentity } from "../auth/index.js";
import type { NamedLedger } from "../ledger/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { isJsonObject, type JsonObject } from "../mcp/index.js";
import { compileDefinition, type Problem } from "../mcp/server/index.js";
import {
  type Explanation,
  flowRules,
  loadPolicy,
  type PolicyDecision,
  PolicyInvalid,
  type PolicyRequest,
  type PolicySet,
  type PolicySource,
  readPolicyFiles,
  type ToolSummary,
} from "../policy/index.js";
import type { Storage } from "../storage/index.js";
import { STORE_FILE, statePaths } from "./data-directory.js";
import { VERSION } from "./environment.js";
import { servedFiles } from "./host/config/files.js";
import { HOST_APP } from "./host/starter-policy.js";
import { knownLedgers } from "./ledgers.js";
import { hostDirectory, shared } from "./options.js";
import { isInForce } from "./starters.js";
import { isForKeysOnly, LOCAL_APP, type StoreOptions, withStore } from "./store/open.js";
import { readSnapshot, servedTools, snapshotApps } from "./tool-snapshots.js";

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
    .option("--app <name>", "application (default: the only one)")
    .option(
      "--policy <path...>",
      "policy files or directories (default: those of the data directory and the application)",
    )
    .option("--tools <file>", "file with a tools/list result (default: the tools that the application served last)")
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
  /** Rules of other files, with what the application decides by beside its own, such as a host's policy.yaml. */
  loadFiles(paths: readonly string[]): Promise<PolicySet>;
}

/** A tool as an answer of tools/list has it. */
export interface ListedTool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly _meta?: JsonObject | undefined;
}

export interface StoredList {
  readonly app: string;
  readonly tools: readonly ListedTool[];
  /** Names of the tools that the policy denies whatever the arguments are. */
  readonly hidden: readonly string[];
}

/** What the local user would be listed by the policies of this application; undefined where it has not served yet. */
export async function storedList(command: Command, options: ServedOptions): Promise<StoredList | undefined> {
  const { app, tools, load } = await servedBy(command, options);
  if (tools.length === 0 || (options.app === undefined && (await storedOrServed(command, options)).length === 0)) {
    return undefined;
  }
  const policy = load();
  const { agent, scope, user, groups = [] } = await localIdentity({ app })({ transport: "memory", address: "" });
  const listed = tools.map(({ name, server, tags, readOnly, description, inputSchema }) => {
    const resource = { type: "Tool", id: name, server, tags, readOnly } as const;
    const outlook = policy.outlook({ app, agent, scope, user, groups, action: name, resource });
    const _meta = outlook === "challenge" ? { "portcullis/outlook": "challenge" } : undefined;
    return { outlook, tool: { name, description, inputSchema, _meta } };
  });
  return {
    app,
    tools: listed.filter(({ outlook }) => outlook !== "never").map(({ tool }) => tool),
    hidden: listed.filter(({ outlook }) => outlook === "never").map(({ tool }) => tool.name),
  };
}

/** Every application that is stored or was served. */
export async function servedApps(command: Command, options: ServedOptions): Promise<string[]> {
  const apps = await storedOrServed(command, options);
  return apps.length === 0 ? [LOCAL_APP] : apps;
}

async function storedOrServed(command: Command, options: ServedOptions): Promise<string[]> {
  const { dir } = statePaths(shared(command).dir);
  const served = [...snapshotApps(dir), ...hostApps(command)];
  return knownApps(await storedApplications(command, options, dir), served);
}

/** The application `host`, where a host has served beside this data directory. */
export function hostApps(command: Command): string[] {
  return snapshotApps(hostDirectory(command)).filter((app) => app === HOST_APP);
}

interface Stored {
  readonly app: string;
  readonly policies: Readonly<Record<string, string>>;
  readonly isForKeysOnly: boolean;
}

export async function servedBy(command: Command, options: ServedOptions): Promise<Served> {
  const own = statePaths(shared(command).dir);
  const inOwn = await storedApplications(command, options, own.dir);
  const app = chosen(options.app, knownApps(inOwn, snapshotApps(own.dir)), hostApps(command));
  const isBeside = app === HOST_APP && !snapshotApps(own.dir).includes(app) && hostApps(command).length > 0;
  const { dir, policyDir } = isBeside ? statePaths(hostDirectory(command)) : own;
  const stored = isBeside
    ? await storedApplications(command, { storage: `sqlite:${join(dir, STORE_FILE)}` }, dir)
    : inOwn;
  const policies = stored.find((each) => each.app === app)?.policies ?? {};
  const isStored = stored.some((each) => each.app === app && !each.isForKeysOnly);
  const tools = options.tools === undefined ? await knownTools(dir, app, isStored) : toolsIn(options.tools);
  const sources = options.policy?.length
    ? await readPolicyFiles(options.policy)
    : [
        ...(existsSync(policyDir) ? await readPolicyFiles([policyDir]) : []).filter((source) =>
          isInForce(source, tools),
        ),
        ...Object.entries(policies).map(([file, text]): PolicySource => ({ file, text })),
      ];
  // As the gateway loads them: rules for all applications may name tools that this one does not have, such as those of
  // the demonstration. Only a module or the demonstration has all the tools that its rules can mean.
  const unknownTools = isStored || stored.length > 1 || tools.length === 0 ? "warn" : "refuse";
  const withChecks = app === HOST_APP ? await hostRules(command, dir) : (set: PolicySet) => set;
  return {
    app,
    tools,
    sources,
    ledgers: knownLedgers(command),
    loadFiles: async (paths) => withChecks(loadPolicy(await readPolicyFiles(paths), tools, { unknownTools })),
    load: () => {
      if (sources.length > 0) return withChecks(loadPolicy(sources, tools, { unknownTools }));
      const help = "portcullis serve creates a first policy; --policy names other files";
      throw new PolicyInvalid([{ file: policyDir, line: 0, column: 0, message: "contains no policy", help }]);
    },
  };
}

/** What a host decides by beside its Cedar policies. The paths and the sandbox are loaded only here. */
async function hostRules(command: Command, dir: string): Promise<(set: PolicySet) => PolicySet> {
  const files = servedFiles(dir);
  if (!existsSync(files.config)) return (set) => set;
  const { requireHostPolicy } = await import("./host/config/read.js");
  const { withHostPolicy } = await import("./host/decide.js");
  return (set) => withHostPolicy(set, requireHostPolicy(command, files));
}

async function storedApplications(command: Command, options: ServedOptions, dir: string): Promise<Stored[]> {
  const read = async (storage: Storage): Promise<Stored[]> => {
    const { items } = await storage.applications.list({ limit: 1_000 });
    return items.map((application) => ({
      app: application.id,
      policies: { ...flowRules(application.document.flow), ...application.document.policies },
      isForKeysOnly: isForKeysOnly(application),
    }));
  };
  return withStore(command, options, read, { dir });
}

/** A host beside the data directory is chosen by its name, or where there is nothing else. */
function chosen(given: string | undefined, own: readonly string[], hosts: readonly string[]): string {
  const known = own.length === 0 || given !== undefined ? [...new Set([...own, ...hosts])] : own;
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
async function knownTools(dir: string, app: string, isStored: boolean): Promise<readonly ServedTool[]> {
  const known = readSnapshot(dir, app);
  if (known) return known;
  // A data directory without applications that never served anything starts with the demonstration.
  if (isStored || snapshotApps(dir).length > 0 || app !== LOCAL_APP) return [];
  const { demoServer } = await import("./module.js");
  return servedTools(demoServer(VERSION).server);
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

/** A tool as the offline commands know it. */
export interface ServedTool extends ToolSummary {
  readonly description?: string;
  /** Undefined where it is not known: an answer of tools/list does not have it. */
  readonly noGuardrailRequired?: boolean;
}

export interface CheckedTools extends Explanation {
  /** What denies the call besides policy. */
  readonly refusedBy?: "schema" | "guardrail";
  /** The decision of policy alone. */
  readonly policy: PolicyDecision;
  readonly problems: readonly Problem[];
}

/** What is wrong with the arguments of a call to a tool that is known. */
export async function schemaProblems(
  tools: readonly ServedTool[],
  { action, resource, arguments: args }: PolicyRequest,
): Promise<readonly Problem[]> {
  const tool = resource.type === "Tool" ? tools.find((each) => each.name === action) : undefined;
  if (!tool) return [];
  try {
    const { name, inputSchema } = tool;
    const validation = await compileDefinition({ name, inputSchema }).validate(args);
    return validation.ok ? [] : validation.problems;
  } catch (error) {
    return [
      { path: "", message: `could not be validated: ${(error as Error).message}`, expected: "a schema in order" },
    ];
  }
}

export function withProblems(
  tools: readonly ServedTool[],
  request: PolicyRequest,
  explanation: Explanation,
  problems: readonly Problem[],
): CheckedTools {
  const { decision } = explanation;
  const name = request.action;
  const [first] = problems;
  if (first) {
    const where = first.path ? `\`${first.path}\` ` : "";
    const reason = `arguments of \`${name}\`: ${where}${first.message}`;
    return { ...explanation, decision: denied("schema", reason), refusedBy: "schema", policy: decision, problems };
  }
  const tool = request.resource.type === "Tool" ? tools.find((each) => each.name === name) : undefined;
  if (decision.effect === "permit" && tool?.noGuardrailRequired === false) {
    const reason = `\`${name}\` has no guardrail callback, and is not declared to need none`;
    return {
      ...explanation,
      decision: denied("guardrail.missing", reason),
      refusedBy: "guardrail",
      policy: decision,
      problems,
    };
  }
  return { ...explanation, policy: decision, problems };
}

function denied(rule: string, reason: string): PolicyDecision {
  const rules = [{ id: rule, file: "", line: 0 }];
  return { effect: "deny", rules, reason, approvers: [], obligations: [], errors: [] };
}
