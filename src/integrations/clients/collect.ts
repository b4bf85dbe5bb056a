// From the name of a client, or a file, to its servers as an application would have them.

import { homedir } from "node:os";
import { basename, extname, join, resolve } from "node:path";
import { parseEnv } from "node:util";
import { text as ask, isCancel, password } from "@clack/prompts";
import { CliError, EXIT } from "../../lib/exit.js";
import type { JsonObject } from "../../mcp/index.js";
import { isCredentialName } from "../../storage/index.js";
import { readBundle } from "./bundle.js";
import { type Converted, convert } from "./convert.js";
import { blocksOf, CLIENTS, type ClientEnvironment, type ClientPlace, isClient, placesOf } from "./places.js";
import { type FoundServer, onlyInClient, parseConfig, readConfigText, serversIn } from "./read.js";
import { readServerJson } from "./server-json.js";
import { inputVariable, Variables } from "./variables.js";

export interface CollectedServers {
  readonly files: readonly string[];
  readonly servers: readonly Converted[];
  readonly skipped: readonly { readonly name: string; readonly file: string; readonly why: string }[];
  /** Variables and inputs without a value, and what to do. */
  readonly missing: readonly string[];
  /** The same by the server's name in the client's file. */
  readonly unset: ReadonlyMap<string, readonly string[]>;
  /** Another of the same name counts before them; without it, they would. */
  readonly shadowed: readonly Converted[];
  /** Servers of other projects in the same files, which count only there. */
  readonly otherProjects: readonly { readonly project: string; readonly names: readonly string[] }[];
  readonly warnings: readonly string[];
  /** Writes the program of a bundle to where its entry names it; called before the import is stored. */
  extract?(): void;
}

interface CollectOptions {
  readonly from: string;
  readonly only?: readonly string[] | undefined;
  /** Ask at the terminal for inputs that have no value. */
  readonly mayAsk: boolean;
  /** Where `.mcpb` bundles are extracted to. */
  readonly bundles?: string;
}

export function here(): ClientEnvironment {
  return { platform: process.platform, env: process.env, home: homedir(), cwd: process.cwd() };
}

export async function collectServers(
  options: CollectOptions,
  around: ClientEnvironment = here(),
): Promise<CollectedServers> {
  const read = readAll(options, around);
  const skipped: { name: string; file: string; why: string }[] = [];
  const wanted: FoundServer[] = [];
  const behind: FoundServer[] = [];
  for (const server of nearestFirst(read.servers)) {
    const { name, file } = server;
    const skip = (why: string): void => void skipped.push({ name, file, why });
    const unusable = onlyInClient(server.dialect, server.fields);
    if (options.only && !options.only.includes(name)) skip("not named by --only");
    else if (isGateway(server)) skip("it is a Portcullis gateway itself");
    else if (unusable !== undefined) skip(unusable);
    else if (wanted.some((each) => each.name === name)) {
      skip("another of this name is nearer to the project and counts");
      behind.push(server);
    } else wanted.push(server);
  }
  const unknown = options.only?.find((name) => !read.servers.some((server) => server.name === name));
  if (unknown !== undefined) throw new CliError(`there is no server \`${unknown}\` in ${read.files.join(", ")}`);
  const answers = options.mayAsk ? await askInputs(wanted, read.inputs, around) : new Map<string, string>();
  const missing = new Set<string>();
  const unsetOf = new Map<string, readonly string[]>();
  const converting = (found: FoundServer): { converted: Converted; unset: readonly string[] } => {
    const variables = new Variables(
      {
        env: { ...read.env, ...around.env },
        home: around.home,
        workspace: found.project ?? around.cwd,
        inputs: read.inputs,
        answers,
      },
      isCredentialName,
    );
    const converted = convert(found, nameFor(found.name), variables);
    return { converted, unset: [...variables.missing] };
  };
  const servers = wanted.flatMap((found) => {
    const { converted, unset } = converting(found);
    const [why] = [...unset, ...converted.problems];
    // A disabled server does not stop the import of the others.
    if (why !== undefined && isDisabled(found)) {
      skipped.push({ name: found.name, file: found.file, why: `it is disabled, and ${why}` });
      return [];
    }
    if (unset.length > 0) unsetOf.set(found.name, unset);
    for (const each of unset) missing.add(`${found.name}: ${each}`);
    return [converted];
  });
  return {
    files: read.files,
    servers: distinct(servers),
    skipped,
    missing: [...missing],
    unset: unsetOf,
    shadowed: behind.map((found) => converting(found).converted),
    otherProjects: read.otherProjects,
    warnings: read.warnings,
    ...(read.extract ? { extract: read.extract } : {}),
  };
}

function isDisabled({ fields }: FoundServer): boolean {
  return fields.disabled === true || fields.enabled === false;
}

interface ReadAll {
  readonly files: string[];
  readonly servers: FoundServer[];
  readonly inputs: JsonObject[];
  readonly otherProjects: { project: string; names: string[] }[];
  readonly warnings: string[];
  /** Variables of files beside the configuration; those of the environment count before them. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  extract?(): void;
}

function readAll({ from, bundles = "bundles" }: CollectOptions, around: ClientEnvironment): ReadAll {
  if (/\.(mcpb|dxt)$/i.test(from)) {
    const file = resolve(around.cwd, from);
    const { servers, inputs, extract } = readBundle(file, bundles, around);
    return { files: [file], servers: [...servers], inputs: [...inputs], otherProjects: [], warnings: [], extract };
  }
  const client = isClient(from) ? from : undefined;
  const places: readonly (ClientPlace | { client: undefined; level: "user"; file: string })[] = client
    ? [...placesOf(client, around), ...(client === "continue" ? blocksOf(around) : [])]
    : [{ client: undefined, level: "user", file: resolve(around.cwd, from) }];
  const files: string[] = [];
  const servers: FoundServer[] = [];
  const inputs: JsonObject[] = [];
  const otherProjects: ReadAll["otherProjects"] = [];
  const warnings: string[] = [];
  for (const { file, level } of places) {
    const text = readConfigText(file);
    if (text === undefined) continue;
    files.push(file);
    const project = level === "project" ? around.cwd : undefined;
    const isRegistry = client === undefined && extname(file) === ".json";
    const listed = isRegistry ? readServerJson(parseConfig(text, file, false), file) : undefined;
    const found = listed ?? serversIn(text, { client, file, project, cwd: around.cwd });
    servers.push(...found.servers);
    inputs.push(...found.inputs);
    otherProjects.push(...found.otherProjects.map(({ project, names }) => ({ project, names: [...names] })));
    warnings.push(...found.warnings);
  }
  const env = client === "continue" ? continueVariables(around) : {};
  if (files.length > 0) return { files, servers, inputs, otherProjects, warnings, env };
  if (client === undefined) {
    throw new CliError(`there is no file ${from}`, EXIT.usage, `name a file, or one of ${CLIENTS.join(", ")}`);
  }
  const looked = places.map(({ file }) => `  ${file}`).join("\n");
  throw new CliError(`no configuration of ${client} was found`, EXIT.error, `looked for\n${looked}`);
}

/** Continue reads its secrets from these files, the nearest to the project last. */
function continueVariables({ home, cwd }: ClientEnvironment): Record<string, string | undefined> {
  const files = [join(home, ".continue", ".env"), join(cwd, ".env"), join(cwd, ".continue", ".env")];
  return Object.assign({}, ...files.map((file) => parseEnv(readConfigText(file) ?? ""))) as Record<string, string>;
}

/** As clients count: the project's own in the user's file, the project's file, the user's. */
function nearestFirst(servers: readonly FoundServer[]): FoundServer[] {
  const rank = ({ path, project }: FoundServer): number => (path[0] === "projects" ? 0 : project === undefined ? 2 : 1);
  return servers
    .map((server, i) => ({ server, i }))
    .sort((a, b) => rank(a.server) - rank(b.server) || a.i - b.i)
    .map(({ server }) => server);
}

/** True for an entry that starts or calls a gateway: imported, the gateway would call itself. */
export function isGateway({ name, fields }: Pick<FoundServer, "name" | "fields">): boolean {
  const words = [fields.command, ...(Array.isArray(fields.args) ? fields.args : [])].filter(
    (word): word is string => typeof word === "string",
  );
  const isOurs = words.some(
    (word) =>
      basename(word) === "portcullis" ||
      word.startsWith("portcullis@") ||
      /portcullis[\\/]dist[\\/]cli[\\/]main\.js$/.test(word),
  );
  return name === "portcullis" || (isOurs && words.includes("serve"));
}

/** A name that an application can have. */
function nameFor(name: string): string {
  const cleaned = name
    .replace(/[^A-Za-z0-9_-]+/g, "-")
    .replace(/^[-_]+|-+$/g, "")
    .slice(0, 60);
  // What the gateway serves itself is called so.
  return cleaned === "" ? "server" : cleaned === "core" ? "core-server" : cleaned;
}

function distinct(servers: readonly Converted[]): Converted[] {
  const taken = new Map<string, string>();
  for (const { name, found, problems } of servers) {
    const other = taken.get(name);
    if (other !== undefined)
      (problems as string[]).push(`\`${other}\` and \`${found.name}\` would both be called ${name}`);
    taken.set(name, found.name);
  }
  return [...servers];
}

const MAX_INPUTS = 50;

async function askInputs(
  servers: readonly FoundServer[],
  inputs: readonly JsonObject[],
  { env }: ClientEnvironment,
): Promise<Map<string, string>> {
  const text = JSON.stringify(servers.map(({ fields }) => fields));
  const ids = new Set([...text.matchAll(/\$\{input:([^{}]{1,128})\}/g)].map(([, id = ""]) => id));
  const answers = new Map<string, string>();
  for (const id of [...ids].slice(0, MAX_INPUTS)) {
    if (env[inputVariable(id)] !== undefined) continue;
    const input = inputs.find((each) => each.id === id);
    const message = typeof input?.description === "string" ? `${input.description} (${id})` : id;
    const isHidden = input?.password === true || isCredentialName(id);
    const answer = isHidden
      ? await password({ message, output: process.stderr })
      : await ask({
          message,
          output: process.stderr,
          ...(typeof input?.default === "string" ? { defaultValue: input.default } : {}),
        });
    if (isCancel(answer)) throw new CliError("nothing was changed");
    answers.set(id, answer);
  }
  return answers;
}
