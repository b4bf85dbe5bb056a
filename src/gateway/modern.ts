// Requests of 2026-07-28, which has no handshake: the `_meta` of a request decides, and on HTTP its headers must agree.

import type { IncomingHttpHeaders } from "node:http";
import {
  asFault,
  Fault,
  httpStatus,
  isJsonObject,
  type JsonObject,
  META,
  MODERN,
  type Request,
  SUPPORTED_VERSIONS,
  steadyNow,
} from "../mcp/index.js";
import type { LogLevel } from "../mcp/server/index.js";
import type { Peer } from "../mcp/transports/index.js";
import { Cancel, type Conversation, clip, findTool, isLogLevel, MCP_LOG_LEVELS } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { Gateway } from "./application-types.js";
import { keptCapabilities } from "./capabilities.js";
import type { Arrived, Endpoint } from "./endpoint.js";
import { takesStreams } from "./session.js";
import { filterOf, mayFollow } from "./subscriptions.js";

export async function serveModern(
  endpoint: Endpoint,
  request: Request,
  inbound: Arrived,
  principal: Principal,
): Promise<void> {
  const { reply, peer, channel } = inbound;
  const headers = peer.transport === "http" ? peer.headers : undefined;
  let facts: ModernFacts;
  try {
    facts = checkModern(request, headers);
    if (headers && request.method === "tools/call") checkParams(endpoint.gateway, request, principal, headers);
    if (!MODERN.methods.has(request.method)) {
      throw new Fault("MethodNotFound", `there is no method \`${clip(request.method)}\` in revision ${MODERN.name}`);
    }
  } catch (error) {
    const fault = asFault(error);
    return endpoint.reject(inbound, request.id, fault, MODERN, httpStatus(fault));
  }
  const conversation: Conversation = {
    clientCapabilities: facts.clientCapabilities,
    logLevel: facts.logLevel,
    notify: (method, params) =>
      takesStreams(inbound) && !hasExpired(principal) ? reply.send(note(method, params)) : true,
    drained: () => reply.drained(),
  };
  const cancel = new Cancel();
  // No session outlives the exchange: a stream that closes cancels its call.
  reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client closed the stream")));
  if (request.method === "subscriptions/listen")
    return listen(endpoint, request, inbound, principal, conversation, cancel);
  const underWay = endpoint.sessionOn(channel)?.underWay;
  const answer = await endpoint.answer(underWay, { request, principal, revision: MODERN, peer, conversation, cancel });
  reply.end(answer.text, answer.head);
}

/** Only for a tool that this caller reaches: for any other, `call` answers as it does for one that is missing. */
function checkParams(
  gateway: Gateway,
  request: Request,
  principal: Principal,
  headers: NonNullable<Peer["headers"]>,
): void {
  const { name, arguments: args } = request.params as JsonObject;
  const tool = typeof name === "string" ? findTool(gateway, principal, name) : undefined;
  if (tool && isJsonObject(args)) checkParamHeaders(tool.definition.inputSchema, args, headers);
}

async function listen(
  endpoint: Endpoint,
  request: Request,
  inbound: Arrived,
  principal: Principal,
  conversation: Conversation,
  cancel: Cancel,
): Promise<void> {
  const { reply, peer } = inbound;
  const granted = await endpoint.answer(undefined, {
    request,
    principal,
    revision: MODERN,
    peer,
    conversation,
    cancel,
  });
  if (!granted.ok) return reply.end(granted.text, granted.head);
  const finish = (): void => {
    stop();
    if (!reply.ended) reply.end(granted.text);
  };
  let stop = (): void => {};
  try {
    const filter = filterOf(request.params ?? {});
    if (filter.resourceSubscriptions) {
      const who = { principal, requestId: request.id, transport: peer.transport, conversation, cancel };
      filter.resourceSubscriptions = await mayFollow(endpoint.gateway, who, filter.resourceSubscriptions);
    }
    if (cancel.fault) return;
    const follow = (uri: string): (() => void) => endpoint.gateway.server.follow?.(uri) ?? (() => {});
    const { credential, agent } = principal;
    const unsubscribe = endpoint.subscriptions.listen(request.id, filter, reply, finish, follow, credential, agent);
    const forget = endpoint.expiries.add(principal.expiresAt, finish);
    stop = () => {
      forget();
      unsubscribe();
    };
  } catch (error) {
    return endpoint.reject(inbound, request.id, asFault(error), MODERN, httpStatus(asFault(error)));
  }
  const session = endpoint.sessionOn(inbound.channel);
  session?.underWay.set(request.id, cancel);
  cancel.onAbort(() => {
    session?.underWay.delete(request.id);
    stop();
    if (cancel.withdrawn && !reply.ended) reply.end();
  });
}

/** True for a message of the revision without a handshake. */
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

interface ModernFacts {
  clientCapabilities: JsonObject;
  logLevel: LogLevel | undefined;
}

/** Throws the faults of the revision, in the order of its specification. */
function checkModern(request: Request, headers: IncomingHttpHeaders | undefined): ModernFacts {
  const meta = request.params?._meta;
  const version = isJsonObject(meta) ? meta[META.protocolVersion] : undefined;
  const capabilities = isJsonObject(meta) ? meta[META.clientCapabilities] : undefined;
  if (typeof version !== "string") throw missing(META.protocolVersion);
  if (!isJsonObject(capabilities)) throw missing(META.clientCapabilities);
  if (headers) checkHeader(headers, "mcp-protocol-version", version);
  if (version !== MODERN.name) {
    throw new Fault("UnsupportedVersion", `revision \`${version}\` is not supported without a handshake`, {
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
  throw new Fault("InvalidParams", `\`_meta.${META.logLevel}\` must be one of ${MCP_LOG_LEVELS.join(", ")}`, {
    field: `params._meta.${META.logLevel}`,
  });
}

function missing(key: string): Fault {
  return new Fault("InvalidParams", `\`params._meta\` must hold \`${key}\``, { field: `params._meta.${key}` });
}

/** Proxies route by headers, so headers and body must agree. */
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
  const found = raw === undefined ? "is missing" : "has another value";
  throw new Fault("HeaderMismatch", `header \`${name}\` ${found}, the body has \`${expected.slice(0, 128)}\``, {
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
 * `x-mcp-header` in a tool's schema mirrors an argument into `Mcp-Param-*`: both are set and agree, or neither is set.
 */
function checkParamHeaders(schema: unknown, args: JsonObject, headers: IncomingHttpHeaders): void {
  const properties = isJsonObject(schema) && isJsonObject(schema.properties) ? schema.properties : {};
  for (const [name, property] of Object.entries(properties)) {
    const label = isJsonObject(property) ? property["x-mcp-header"] : undefined;
    if (typeof label !== "string") continue;
    const header = `mcp-param-${label.toLowerCase()}`;
    const value = args[name];
    if (value === undefined || value === null) {
      if (headers[header] !== undefined) {
        throw new Fault("HeaderMismatch", `header \`${header}\` is set, but argument \`${name}\` is missing`, {
          field: header,
        });
      }
      continue;
    }
    if (typeof value === "object") continue;
    checkHeader(headers, header, String(value));
  }
}

function hasExpired({ expiresAt }: Principal): boolean {
  return expiresAt !== undefined && expiresAt <= steadyNow();
}

function note(method: string, params: JsonObject): string {
  return JSON.stringify({ jsonrpc: "2.0", method, params });
}
