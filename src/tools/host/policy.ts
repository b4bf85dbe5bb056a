// An application's folders and commands, in the words of policy.yaml, as a policy of the host.

import { parsePolicy, type Policy, problemText } from "../../host/index.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { type CoreApplication, type CoreServices, CoreSettingsError } from "../application.js";

const OF_FOLDERS = new Set(["allowedRoots", "writeRules", "denyNetworkFS", "hardLinks", "limits"]);
const OF_COMMANDS = new Set(["commands", "network", "sandbox", "runAs", "limits"]);

/** Undefined when the application has neither. Commands run with the folders of `filesystem` and no others. */
export function hostPolicyOf(app: CoreApplication, services: Pick<CoreServices, "protectedPaths">): Policy | undefined {
  if (app.filesystem === undefined && app.linux === undefined) return undefined;
  const folders = part(app, "filesystem", OF_FOLDERS);
  const commands = part(app, "linux", OF_COMMANDS);
  const document = { ...folders, ...commands, limits: { ...limitsOf(folders), ...limitsOf(commands) } };
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
  const folders: Record<string, JsonValue> = {};
  const commands: Record<string, JsonValue> = {};
  for (const [field, value] of Object.entries(document)) {
    if (OF_FOLDERS.has(field)) folders[field] = value;
    else if (OF_COMMANDS.has(field)) commands[field] = value;
    else if (field === "profiles" && Array.isArray(value) && value.length === 0) continue;
    else if (!OF_HOST.has(field)) {
      const isProfiles = field === "profiles";
      return {
        field,
        problem: isProfiles ? "an application has no client profiles" : "unknown field",
        remedy: isProfiles
          ? "declare one application for each profile"
          : `known: ${[...OF_FOLDERS, ...OF_COMMANDS].join(", ")}`,
      };
    }
  }
  return { filesystem: folders, linux: Object.keys(commands).length === 0 ? undefined : commands };
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
