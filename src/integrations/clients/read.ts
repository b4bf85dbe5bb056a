// Reads the configuration of a client: its syntax, and its servers in the fields that all clients share.

import { readFileSync, statSync } from "node:fs";
import { extname } from "node:path";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { parse as parseToml } from "smol-toml";
import { parse as parseYaml } from "yaml";
import { CliError } from "../../lib/exit.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import { repeated } from "./edit.js";
import type { ClientName } from "./places.js";

export interface FoundServer {
  readonly name: string;
  readonly fields: JsonObject;
  readonly dialect: ClientFormat;
  readonly file: string;
  /** Keys that lead to it in the file. */
  readonly path: readonly string[];
  /** The project it belongs to, where it belongs to one. */
  readonly project: string | undefined;
}

export interface ReadConfig {
  readonly servers: readonly FoundServer[];
  /** VS Code asks for these when a server starts. */
  readonly inputs: readonly JsonObject[];
  /** Claude Code: other projects of the user that have servers of their own. */
  readonly otherProjects: readonly { readonly project: string; readonly names: readonly string[] }[];
  /** What is there and does not count. */
  readonly warnings: readonly string[];
}

const MAX_BYTES = 16 * 1024 * 1024;
const MAX_SERVERS = 256;

/** The file's text; undefined when there is none. */
export function readConfigText(file: string): string | undefined {
  try {
    if (statSync(file).size > MAX_BYTES) throw new CliError(`${file} has more than ${MAX_BYTES} bytes`);
    return textOf(readFileSync(file), file);
  } catch (error) {
    if (error instanceof CliError) throw error;
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new CliError(`cannot read ${file}: ${(error as Error).message}`);
  }
}

/** Some editors put it in front. It is kept, and is not part of the text. */
export const BYTE_ORDER_MARK = "\uFEFF";

/** Bytes that are no UTF-8 would be written back as something else. */
function textOf(bytes: Buffer, file: string): string {
  const text = bytes.toString("utf8");
  if (Buffer.from(text).equals(bytes)) return text;
  throw new CliError(`${file} is not written in UTF-8`, undefined, "save it as UTF-8 and try again");
}

type Syntax = "json" | "toml" | "yaml";

function syntaxOf(client: ClientName | undefined, file: string): Syntax {
  const extension = extname(file).toLowerCase();
  if (client === "codex" || (client === undefined && extension === ".toml")) return "toml";
  const isYaml = extension === ".yaml" || extension === ".yml";
  return isYaml && (client === undefined || client === "continue") ? "yaml" : "json";
}

function clientDialectOf(client: ClientName | undefined, syntax: Syntax, value: JsonObject): ClientFormat {
  switch (client) {
    case "codex":
    case "zed":
    case "gemini":
    case "continue":
      return client;
    case "vscode":
      return "servers";
    case undefined:
      if (syntax === "toml") return "codex";
      if (Array.isArray(value.mcpServers)) return "continue";
      if (value.mcpServers !== undefined) return "mcpServers";
      return isJsonObject(value.servers) ? "servers" : isJsonObject(value.context_servers) ? "zed" : "mcpServers";
    default:
      return "mcpServers";
  }
}

/** YAML, which is read and never edited. */
function parseYamlConfig(text: string, file: string): JsonObject {
  let value: unknown;
  try {
    value = parseYaml(text, { maxAliasCount: 100 }) ?? {};
  } catch (error) {
    throw new CliError(`${file} is not valid YAML: ${(error as Error).message.split("\n")[0]}`);
  }
  if (isJsonObject(value)) return value;
  throw new CliError(`${file} contains no object`);
}

/** JSON with comments and trailing commas, as editors take it, or TOML. */
export function parseConfig(marked: string, file: string, isToml: boolean): JsonObject {
  const text = marked.startsWith(BYTE_ORDER_MARK) ? marked.slice(1) : marked;
  if (isToml) {
    try {
      return parseToml(text) as JsonObject;
    } catch (error) {
      // The rest of the message repeats the lines, and they may hold credentials.
      throw new CliError(`${file} is not valid TOML: ${(error as Error).message.split("\n")[0]}`);
    }
  }
  const errors: ParseError[] = [];
  const value: unknown = text.trim() === "" ? {} : parseJsonc(text, errors, { allowTrailingComma: true });
  const [first] = errors;
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new CliError(`${file}:${line} is not valid JSON: ${printParseErrorCode(first.error)}`);
  }
  if (!isJsonObject(value)) throw new CliError(`${file} holds no JSON object`);
  return value;
}

/** `cwd` is the project whose own servers are meant where the file lists those of many projects. */
export function serversIn(
  text: string,
  where: { client: ClientName | undefined; file: string; project?: string | undefined; cwd: string },
): ReadConfig {
  const { client, file, project, cwd } = where;
  const syntax = syntaxOf(client, file);
  const value = syntax === "yaml" ? parseYamlConfig(text, file) : parseConfig(text, file, syntax === "toml");
  const dialect = clientDialectOf(client, syntax, value);
  const key = keyOf(dialect);
  const found = entriesAt(value, [key], { dialect, file, project });
  if (client === "claude-code") {
    found.push(...entriesAt(value, ["projects", cwd, "mcpServers"], { dialect, file, project: cwd }));
  }
  if (found.length > MAX_SERVERS) throw new CliError(`${file} has more than ${MAX_SERVERS} servers`);
  const inputs = Array.isArray(value.inputs) ? value.inputs.filter(isJsonObject) : [];
  const groups = [[key], ...(client === "claude-code" ? [["projects", cwd, "mcpServers"]] : [])];
  const warnings = syntax !== "json" || Array.isArray(value[key]) ? [] : groups.flatMap((path) => repeated(text, path));
  const otherProjects = client === "claude-code" ? projectsBesides(value, cwd) : [];
  return { servers: found, inputs, otherProjects, warnings: warnings.map((each) => `${file}:${each}`) };
}

const MAX_PROJECTS = 1_000;

function projectsBesides({ projects }: JsonObject, cwd: string): { project: string; names: string[] }[] {
  const all = isJsonObject(projects) ? Object.entries(projects).slice(0, MAX_PROJECTS) : [];
  return all.flatMap(([project, settings]) => {
    const servers = isJsonObject(settings) ? settings.mcpServers : undefined;
    const names = isJsonObject(servers) ? Object.keys(servers).filter((name) => name !== "portcullis") : [];
    return project === cwd || names.length === 0 ? [] : [{ project, names }];
  });
}

function entriesAt(
  value: JsonObject,
  path: readonly string[],
  about: Pick<FoundServer, "dialect" | "file" | "project">,
): FoundServer[] {
  let at: unknown = value;
  for (const key of path) at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  if (at === undefined) return [];
  const named = Array.isArray(at) ? listed(at) : isJsonObject(at) ? Object.entries(at) : undefined;
  if (named === undefined) throw new CliError(`${about.file}: \`${path.join(".")}\` holds no servers`);
  return named.map(([name, fields]) => {
    if (!isJsonObject(fields)) throw new CliError(`${about.file}: server \`${name}\` is not an object`);
    return { ...about, name, fields: sharedFields(about.dialect, fields), path: [...path, name] };
  });
}

/** Continue and exports of gateways have a list, each server with its name. */
function listed(servers: readonly unknown[]): [string, unknown][] {
  return servers.map((server, i) => {
    const name = isJsonObject(server) && typeof server.name === "string" ? server.name : `server-${i + 1}`;
    return [name, server];
  });
}

/** How a configuration is written: the key of its servers, and what is special about their fields. */
export type ClientFormat = "mcpServers" | "servers" | "codex" | "zed" | "gemini" | "continue" | "bundle";

/** The key that holds the servers. */
export function keyOf(dialect: ClientFormat): string {
  switch (dialect) {
    case "codex":
      return "mcp_servers";
    case "servers":
      return "servers";
    case "zed":
      return "context_servers";
    default:
      return "mcpServers";
  }
}

/** True where `${NAME}` is plain text to the client. */
export function isLiteral(dialect: ClientFormat): boolean {
  return dialect === "codex" || dialect === "zed";
}

/** Why a server cannot be run outside the client, or undefined. */
export function onlyInClient(dialect: ClientFormat, { command, url }: JsonObject): string | undefined {
  const isExtension = dialect === "zed" && command === undefined && url === undefined;
  return isExtension ? "an extension of Zed starts it, and its command is not in the file" : undefined;
}

function sharedFields(dialect: ClientFormat, fields: JsonObject): JsonObject {
  switch (dialect) {
    case "zed":
      return fromZed(fields);
    case "gemini":
      return fromGemini(fields);
    case "continue":
      return fromContinue(fields);
    default:
      return fields;
  }
}

/** Older versions of Zed have the program and its arguments in an object of their own. */
function fromZed({ source: _source, settings: _settings, ...fields }: JsonObject): JsonObject {
  const { command } = fields;
  if (!isJsonObject(command)) return fields;
  const { path, args, env } = command;
  return {
    ...fields,
    ...(path === undefined ? {} : { command: path }),
    ...(args === undefined ? {} : { args }),
    ...(env === undefined || env === null ? {} : { env }),
  };
}

/** Gemini CLI: `httpUrl` is streamable HTTP, `url` alone is SSE, and variables may stand without braces. */
function fromGemini(fields: JsonObject): JsonObject {
  const { url, httpUrl, type, ...rest } = mapTexts(fields, (text) =>
    text.replaceAll(/\$([A-Za-z_][A-Za-z0-9_]*)/g, "${$1}"),
  ) as JsonObject;
  if (httpUrl !== undefined) return { ...rest, url: httpUrl };
  return url === undefined ? rest : { ...rest, url, type: type ?? "sse" };
}

/** Continue: secrets are variables of the environment or of its `.env` files, headers are options of requests. */
function fromContinue({ requestOptions, connectionTimeout: _timeout, ...fields }: JsonObject): JsonObject {
  const headers = isJsonObject(requestOptions) ? requestOptions.headers : undefined;
  return mapTexts({ ...fields, ...(headers === undefined ? {} : { headers }) }, (text) =>
    text.replaceAll(/\$\{\{\s*(?:secrets|inputs)\.(?:[A-Za-z0-9_-]+\/)*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}/g, "${$1}"),
  ) as JsonObject;
}

export function mapTexts(value: JsonValue, change: (text: string) => string): JsonValue {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((each) => mapTexts(each as JsonValue, change));
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, mapTexts(each as JsonValue, change)]));
}
