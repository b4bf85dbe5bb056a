// How each client writes a server, brought to the fields that all of them share.

import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";

/** How a configuration is written: the key of its servers, and what is special about their fields. */
export type Dialect = "mcpServers" | "servers" | "codex" | "zed" | "gemini" | "continue" | "bundle";

/** The key that holds the servers. */
export function keyOf(dialect: Dialect): string {
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
export function isLiteral(dialect: Dialect): boolean {
  return dialect === "codex" || dialect === "zed";
}

/** Why a server cannot be run outside the client, or undefined. */
export function onlyInClient(dialect: Dialect, { command, url }: JsonObject): string | undefined {
  const isExtension = dialect === "zed" && command === undefined && url === undefined;
  return isExtension ? "an extension of Zed starts it, and its command is not in the file" : undefined;
}

export function sharedFields(dialect: Dialect, fields: JsonObject): JsonObject {
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
