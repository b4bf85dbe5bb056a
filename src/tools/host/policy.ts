// An application's directories and commands, in the words of policy.yaml, as a policy of the host.

import { realpathSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { type Policy, parsePolicy, problemText } from "../../host/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { type CoreApplication, type CoreServices, CoreSettingsError } from "../application.js";

const OF_DIRECTORIES = new Set(["allowedRoots", "writeRules", "denyNetworkFS", "hardLinks", "limits"]);
const OF_COMMANDS = new Set(["commands", "network", "sandbox", "runAs", "limits"]);

/** Undefined when the application has neither. Commands run with the directories of `filesystem` and no others. */
export function hostPolicyOf(app: CoreApplication, services: Pick<CoreServices, "protectedPaths">): Policy | undefined {
  if (app.filesystem === undefined && app.linux === undefined) return undefined;
  const directories = part(app, "filesystem", OF_DIRECTORIES);
  const commands = part(app, "linux", OF_COMMANDS);
  const document = { ...directories, ...commands, limits: { ...limitsOf(directories), ...limitsOf(commands) } };
  const loaded = parsePolicy(JSON.stringify(document, undefined, 1), `application ${app.id}`, {
    protectedPaths: services.protectedPaths ?? [],
  });
  if (loaded.ok) return loaded.policy;
  throw new CoreSettingsError(app.id, loaded.problems.map(problemText).join("; "));
}

/** Fields of a policy.yaml that do not concern an application: its format, and the audit file of a host. */
const OF_HOST = new Set(["version", "logging"]);

export type HostPolicyParts =
  | { readonly filesystem: JsonObject; readonly linux: JsonObject | undefined }
  | { readonly field: string; readonly problem: string; readonly remedy: string };

/** A host's whole policy.yaml as the two parts of an application's document. */
export function hostPolicyParts(document: JsonObject): HostPolicyParts {
  const directories: Record<string, JsonValue> = {};
  const commands: Record<string, JsonValue> = {};
  for (const [field, value] of Object.entries(document)) {
    if (OF_DIRECTORIES.has(field)) directories[field] = value;
    else if (OF_COMMANDS.has(field)) commands[field] = value;
    else if (field === "profiles" && Array.isArray(value) && value.length === 0) continue;
    else if (!OF_HOST.has(field)) {
      const isProfiles = field === "profiles";
      return {
        field,
        problem: isProfiles ? "an application has no client profiles" : "unknown field",
        remedy: isProfiles
          ? "declare one application for each profile"
          : `known: ${[...OF_DIRECTORIES, ...OF_COMMANDS].join(", ")}`,
      };
    }
  }
  return { filesystem: directories, linux: Object.keys(commands).length === 0 ? undefined : commands };
}

function part(app: CoreApplication, name: "filesystem" | "linux", known: ReadonlySet<string>): JsonObject {
  const given = app[name] ?? {};
  const unknown = Object.keys(given).find((field) => !known.has(field));
  if (unknown === undefined) return given;
  throw new CoreSettingsError(app.id, `${name} has no field \`${unknown}\`; known: ${[...known].join(", ")}`);
}

function limitsOf(document: JsonObject): JsonObject {
  return isJsonObject(document.limits) ? document.limits : {};
}

// Directories that more than one application can reach. An operator may want that, so it is reported and not refused.

export interface SharedDirectory {
  readonly directory: string;
  /** Whose directory it is, and who reaches it too, by the same directory or one above it. */
  readonly applications: readonly string[];
}

export function sharedDirectories(applications: Iterable<CoreApplication>): SharedDirectory[] {
  const owners = new Map<string, Set<string>>();
  for (const app of applications) {
    for (const directory of directoriesOf(app)) owners.set(directory, (owners.get(directory) ?? new Set()).add(app.id));
  }
  const shared: SharedDirectory[] = [];
  for (const [directory, own] of owners) {
    const all = new Set(own);
    for (const above of directoriesAbove(directory)) for (const id of owners.get(above) ?? []) all.add(id);
    if (all.size > 1) shared.push({ directory, applications: [...all].sort() });
  }
  return shared;
}

function directoriesOf({ filesystem }: CoreApplication): string[] {
  const roots = listOf(filesystem?.allowedRoots);
  const zones = listOf(filesystem?.writeRules).map((rule) => (isJsonObject(rule) ? rule.path : undefined));
  return [...roots, ...zones].filter((directory) => typeof directory === "string").map(realDirectory);
}

function listOf(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? value : [];
}

function realDirectory(directory: string): string {
  try {
    return realpathSync(directory);
  } catch {
    return resolve(directory);
  }
}

function directoriesAbove(directory: string): string[] {
  const above: string[] = [];
  for (let at = directory; dirname(at) !== at; ) {
    at = dirname(at);
    above.push(at);
  }
  return above;
}
