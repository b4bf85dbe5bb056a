// 2026-07-28: no handshake. What a request carries decides: its `_meta`, and on HTTP the headers that must agree.

import type { IncomingHttpHeaders } from "node:http";
import { Fault, isJsonObject, type JsonObject, META, MODERN, type Request, SUPPORTED_VERSIONS } from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import { keptCapabilities } from "./client-capabilities.js";
import { isLogLevel, LOG_LEVELS } from "../pipeline/index.js";

/** Does this message speak the revision without a handshake? */
export function speaksModern(params: JsonObject | undefined, headers: IncomingHttpHeaders | undefined): boolean {
  if (headers?.["mcp-protocol-version"] === MODERN.name) return true;
  const meta = params?._meta;
  return isJsonObject(meta) && META.protocolVersion in meta;
}

const NAME_FIELD: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
};

export interface ModernFacts {
  clientCapabilities: JsonObject;
  logLevel: LogLevel | undefined;
}

/** Throws what the revision says must be thrown, in the order it says. */
export function checkModern(request: Request, headers: IncomingHttpHeaders | undefined): ModernFacts {
  const meta = request.params?._meta;
  const version = isJsonObject(meta) ? meta[META.protocolVersion] : undefined;
  const capabilities = isJsonObject(meta) ? meta[META.clientCapabilities] : undefined;
  if (typeof version !== "string") throw missing(META.protocolVersion);
  if (!isJsonObject(capabilities)) throw missing(META.clientCapabilities);
  if (headers) checkHeader(headers, "mcp-protocol-version", version);
  if (version !== MODERN.name) {
    throw new Fault("UnsupportedVersion", `revision \`${version}\` is not spoken here without a handshake`, {
      extra: { supported: [...SUPPORTED_VERSIONS], requested: version },
    });
  }
  if (headers) checkRouting(request, headers);
  return { clientCapabilities: keptCapabilities(capabilities), logLevel: logLevelOf(meta as JsonObject) };
}

/** The level travels to servers of this revision, so nothing but a level is accepted as one. */
function logLevelOf(meta: JsonObject): LogLevel | undefined {
  const level = meta[META.logLevel];
  if (level === undefined || isLogLevel(level)) return level;
  throw new Fault("InvalidParams", `\`_meta.${META.logLevel}\` must be one of ${LOG_LEVELS.join(", ")}`, {
    field: `params._meta.${META.logLevel}`,
  });
}

function missing(key: string): Fault {
  return new Fault("InvalidParams", `\`params._meta\` must hold \`${key}\``, { field: `params._meta.${key}` });
}

/** Proxies route by headers; the body is the truth, so the two must say the same. */
function checkRouting(request: Request, headers: IncomingHttpHeaders): void {
  checkHeader(headers, "mcp-method", request.method);
  const field = NAME_FIELD[request.method];
  const name = field === undefined ? undefined : request.params?.[field];
  if (typeof name === "string") checkHeader(headers, "mcp-name", name);
}

function checkHeader(headers: IncomingHttpHeaders, name: string, expected: string): void {
  const raw = headers[name];
  const value = typeof raw === "string" ? decodeHeader(raw) : undefined;
  if (value === expected) return;
  const found = raw === undefined ? "is missing" : "says something else";
  throw new Fault("HeaderMismatch", `header \`${name}\` ${found}, the body says \`${expected.slice(0, 128)}\``, {
    field: name,
  });
}

const ENCODED = /^=\?base64\?(.*)\?=$/s;

/** Values that a header cannot hold travel as base64; undefined when that is not well formed. */
function decodeHeader(raw: string): string | undefined {
  const value = raw.trim();
  const encoded = ENCODED.exec(value)?.[1];
  if (encoded === undefined) return value;
  const bytes = Buffer.from(encoded, "base64");
  return bytes.toString("base64") === encoded ? bytes.toString("utf8") : undefined;
}

/**
 * `x-mcp-header` in a tool's schema mirrors an argument into `Mcp-Param-*`. Where the caller sent the header it must
 * agree with the argument; where the argument is there the header must be, too.
 */
export function checkParamHeaders(schema: unknown, args: JsonObject, headers: IncomingHttpHeaders): void {
  const properties = isJsonObject(schema) && isJsonObject(schema.properties) ? schema.properties : {};
  for (const [name, property] of Object.entries(properties)) {
    const label = isJsonObject(property) ? property["x-mcp-header"] : undefined;
    if (typeof label !== "string") continue;
    const header = `mcp-param-${label.toLowerCase()}`;
    const value = args[name];
    if (value === undefined || value === null) {
      if (headers[header] !== undefined) {
        throw new Fault("HeaderMismatch", `header \`${header}\` is there, but argument \`${name}\` is not`, {
          field: header,
        });
      }
      continue;
    }
    if (typeof value === "object") continue;
    checkHeader(headers, header, String(value));
  }
}
