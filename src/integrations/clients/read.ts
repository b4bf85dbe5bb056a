// A client's configuration as it is written, and the servers in it. What a server's fields mean is said elsewhere.

import { readFileSync, statSync } from "node:fs";
import { extname } from "node:path";
import { type ParseError, parse as parseJsonc, printParseErrorCode } from "jsonc-parser";
import { parse as parseToml } from "smol-toml";
import { parse as parseYaml } from "yaml";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import { CliError } from "../../lib/exit.js";
import { repeated } from "./json-properties.js";
import { type Dialect, keyOf, sharedFields } from "./dialects.js";
import type { ClientName } from "./places.js";

export interface FoundServer {
  readonly name: string;
  readonly fields: JsonObject;
  readonly dialect: Dialect;
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
  readonly elsewhere: readonly { readonly project: string; readonly names: readonly string[] }[];
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

/** What an editor of another system puts in front; it stays where it is, and is no part of what is said. */
export const BYTE_ORDER_MARK = "\uFEFF";

/** Bytes that are no UTF-8 would be written back as something else. */
function textOf(bytes: Buffer, file: string): string {
  const text = bytes.toString("utf8");
  if (Buffer.from(text).equals(bytes)) return text;
  throw new CliError(`${file} is not written in UTF-8`, undefined, "save it as UTF-8 and try again");
}

type Syntax = "json" | "toml" | "yaml";

export function syntaxOf(client: ClientName | undefined, file: string): Syntax {
  const extension = extname(file).toLowerCase();
  if (client === "codex" || (client === undefined && extension === ".toml")) return "toml";
  const isYaml = extension === ".yaml" || extension === ".yml";
  return isYaml && (client === undefined || client === "continue") ? "yaml" : "json";
}

function clientDialectOf(client: ClientName | undefined, syntax: Syntax, value: JsonObject): Dialect {
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
      throw new CliError(`${file} is no TOML: ${(error as Error).message.split("\n")[0]}`);
    }
  }
  const errors: ParseError[] = [];
  const value: unknown = text.trim() === "" ? {} : parseJsonc(text, errors, { allowTrailingComma: true });
  const [first] = errors;
  if (first) {
    const line = text.slice(0, first.offset).split("\n").length;
    throw new CliError(`${file}:${line} is no JSON: ${printParseErrorCode(first.error)}`);
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
  const elsewhere = client === "claude-code" ? otherProjects(value, cwd) : [];
  return { servers: found, inputs, elsewhere, warnings: warnings.map((each) => `${file}:${each}`) };
}

const MAX_PROJECTS = 1_000;

function otherProjects({ projects }: JsonObject, cwd: string): { project: string; names: string[] }[] {
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
    if (!isJsonObject(fields)) throw new CliError(`${about.file}: server \`${name}\` is no object`);
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
