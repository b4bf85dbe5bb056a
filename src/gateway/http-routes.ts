// HTTP routes beside MCP itself: the event stream and the end of a handshake session, `POST /tools/{name}` for callers
// without MCP, documents of the tools, and the page that `documentation_url` leads to.

import { readFileSync } from "node:fs";
import {
  asFault,
  ERROR_PAGE_PATH,
  ERRORS,
  errorData,
  Fault,
  httpStatus,
  isJsonObject,
  type JsonObject,
  LEGACY,
  parseStrict,
  type Revision,
} from "../mcp/index.js";
import { type Answer, Cancel, call, type RawResult, SILENT } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import type { CallSpan } from "../telemetry/index.js";
import { authenticateHeader, rejectedTrace, retryHeader } from "./answer.js";
import type { Gateway } from "./application-types.js";
import type { Endpoint, EndpointRequest } from "./endpoint.js";
import type { DocumentKind } from "./lists.js";

const TOOL_PATH = /^\/tools\/([^/]{1,512}(?:\/[^/]{1,512})*)$/;

const DOCUMENTS: Readonly<Record<string, DocumentKind>> = { "/openapi.json": "openapi", "/catalog.json": "catalog" };

/** False for an unknown path. */
export function httpRoute(endpoint: Endpoint, request: EndpointRequest): boolean {
  if (request.path === endpoint.mcpPath) {
    void serveSession(endpoint, request);
    return true;
  }
  if (request.path === ERROR_PAGE_PATH && request.method === "GET") {
    request.reply.end(errorPage(), { headers: ERROR_PAGE_HEADERS });
    return true;
  }
  const document = request.method === "GET" ? DOCUMENTS[request.path] : undefined;
  if (document !== undefined) {
    void withFaults(endpoint, request, async () => {
      const principal = await endpoint.identify(request);
      const caller = { principal, transport: request.peer.transport };
      request.reply.end(await endpoint.gateway.lists.document(endpoint.gateway, caller, document), {
        headers: JSON_TYPE,
      });
    });
    return true;
  }
  const tool = TOOL_PATH.exec(request.path)?.[1];
  if (tool === undefined) return false;
  void serveTool(endpoint, request, tool);
  return true;
}

const JSON_TYPE = { "content-type": "application/json" };

async function withFaults({ gateway }: Endpoint, request: EndpointRequest, run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    const fault = asFault(error);
    fail(request, fault, rejectedTrace(gateway, request.peer, fault));
  }
}

function fail(request: EndpointRequest, fault: Fault, traceId: string): void {
  const headers = { ...JSON_TYPE, ...authenticateHeader(fault), ...retryHeader(fault) };
  request.reply.end(JSON.stringify({ error: errorData(fault, traceId) }), { status: httpStatus(fault), headers });
}

/** GET opens or resumes the session's stream, DELETE ends the session; 2026-07-28 has neither. */
function serveSession(endpoint: Endpoint, request: EndpointRequest): Promise<void> {
  const { peer, reply, method } = request;
  const id = peer.headers?.["mcp-session-id"];
  if ((method !== "GET" && method !== "DELETE") || typeof id !== "string") {
    reply.end(undefined, { status: 405, headers: { allow: "POST" } });
    return Promise.resolve();
  }
  return withFaults(endpoint, request, async () => {
    const principal = await endpoint.identify(request);
    const session = endpoint.handshakes.sessions.find(id, principal);
    if (method === "DELETE") {
      endpoint.handshakes.end(session);
      return reply.end(undefined, { status: 204 });
    }
    if (!peer.headers?.accept?.includes("text/event-stream")) {
      return reply.end(undefined, { status: 406 });
    }
    const last = peer.headers["last-event-id"];
    const stream = endpoint.expiries.limit(reply, principal);
    if (typeof last === "string") return endpoint.handshakes.resume(session, last, stream, principal);
    if (session.listening?.live) return reply.end(undefined, { status: 409 });
    reply.open();
    session.listening = session.streams.create(stream, principal.credential);
  });
}

async function serveTool(endpoint: Endpoint, request: EndpointRequest, encoded: string): Promise<void> {
  const { reply, peer } = request;
  const { gateway } = endpoint;
  let traceId: string | undefined;
  try {
    if (request.method !== "POST") return reply.end(undefined, { status: 405, headers: { allow: "POST" } });
    const principal = await endpoint.identify(request);
    const name = decodeURIComponent(encoded);
    const { maxDepth, maxValues } = gateway.limits;
    const body = request.body === "" ? {} : parseStrict(request.body, maxDepth, maxValues);
    if (!isJsonObject(body)) throw new Fault("InvalidParams", "the body must be a JSON object of arguments");
    const cancel = new Cancel();
    reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client disconnected")));
    const traceparent = peer.headers?.traceparent;
    const { transport } = peer;
    const from = typeof traceparent === "string" ? traceparent : undefined;
    const span = startNamedCall(gateway, principal, name, transport, from);
    traceId = span.traceId;
    const render = (result: JsonObject | RawResult): string =>
      endpoint.serializer.result(result, PLAIN_REVISION, "tools/call");
    const answer = await callNamed(gateway, { principal, name, args: body, transport, cancel, span, render });
    if (!answer.ok) return fail(request, answer.fault, traceId);
    reply.end(answer.text, { headers: JSON_TYPE });
  } catch (error) {
    const fault =
      error instanceof URIError ? new Fault("InvalidRequest", "the path is not a valid URI") : asRouteFault(error);
    fail(request, fault, traceId ?? rejectedTrace(gateway, peer, fault));
  }
}

function asRouteFault(error: unknown): Fault {
  const parse = (error as { code?: string })?.code === "PARSE_ERROR";
  return parse ? new Fault("ParseError", (error as Error).message) : asFault(error);
}

/** The revision whose result form such callers receive. */
const PLAIN_REVISION = LEGACY[0] as Revision;

interface NamedCall {
  readonly principal: Principal;
  readonly name: string;
  readonly args: JsonObject;
  readonly transport: string;
  readonly cancel: Cancel;
  readonly span: CallSpan;
  readonly render: (result: JsonObject | RawResult) => string;
}

export function startNamedCall(
  gateway: Gateway,
  { app, agent }: Principal,
  tool: string,
  transport: string,
  traceparent?: string,
): CallSpan {
  const revision = PLAIN_REVISION.name;
  return gateway.telemetry.startCall({ method: "tools/call", tool, app, agent, transport, revision, traceparent });
}

export function callNamed(gateway: Gateway, named: NamedCall): Promise<Answer> {
  const { name, args, ...rest } = named;
  return call(gateway, {
    ...rest,
    method: "tools/call",
    params: { name, arguments: args },
    requestId: undefined,
    revision: PLAIN_REVISION,
    conversation: SILENT,
    depth: 0,
  });
}

let page: string | undefined;

const ERROR_PAGE_HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "cache-control": "public, max-age=3600",
};

function errorPage(): string {
  page ??= build();
  return page;
}

function build(): string {
  const texts = documentedTexts();
  const sections = Object.values(ERRORS).map(({ code, message, http, retryable }) => {
    const text = texts.get(code) ?? `${message}. HTTP ${http}; retry can help: ${retryable ? "yes" : "no"}.`;
    const paragraphs = text.split(/\n{2,}/).map((paragraph) => `<p>${inline(paragraph)}</p>`);
    return `<h2 id="${code.toLowerCase()}">${code}</h2>\n${paragraphs.join("\n")}`;
  });
  const head = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Portcullis errors</title></head>';
  return `${head}<body>\n<h1>Errors</h1>\n${sections.join("\n")}\n</body></html>\n`;
}

/** By code; empty where the package was installed without its documentation. */
function documentedTexts(): Map<string, string> {
  let text: string;
  try {
    text = readFileSync(new URL("../../docs/errors.md", import.meta.url), "utf8");
  } catch {
    return new Map();
  }
  const sections = text.split(/^## /m).slice(1);
  return new Map(sections.map((section) => [section.split("\n", 1)[0] as string, bodyOf(section)]));
}

function bodyOf(section: string): string {
  return section.slice(section.indexOf("\n")).trim();
}

function inline(text: string): string {
  const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return escaped.replace(/`([^`]+)`/g, "<code>$1</code>");
}
