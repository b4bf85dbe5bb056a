// The other HTTP doors: the event stream and the end of a handshake session, and `POST /tools/{name}` for callers
// that speak no MCP. Tools reached here take the same way through `call`.

import {
  asFault,
  ERROR_PAGE_PATH,
  errorData,
  Fault,
  httpStatus,
  isJsonObject,
  type JsonObject,
  parseStrict,
} from "../mcp/index.js";
import { Cancel, type DocumentKind, type RawResult } from "../pipeline/index.js";
import { authenticateHeader, retryHeader } from "./result-serializer.js";
import type { EndpointRequest, Endpoint } from "./endpoint.js";
import { ERROR_PAGE_HEADERS, errorPage } from "./error-page.js";
import { callNamed, PLAIN_REVISION, startNamedCall } from "./invoke.js";
import { refusedTrace } from "./rejected.js";

const TOOL_PATH = /^\/tools\/([^/]{1,512}(?:\/[^/]{1,512})*)$/;

const DOCUMENTS: Readonly<Record<string, DocumentKind>> = { "/openapi.json": "openapi", "/catalog.json": "catalog" };

/** False for a path that is nobody's. */
export function httpRoute(endpoint: Endpoint, request: EndpointRequest): boolean {
  if (request.path === endpoint.mcpPath) {
    void sessionDoor(endpoint, request);
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
      const asker = { principal, transport: request.peer.transport };
      request.reply.end(await endpoint.gateway.lists.document(endpoint.gateway, asker, document), {
        headers: JSON_TYPE,
      });
    });
    return true;
  }
  const tool = TOOL_PATH.exec(request.path)?.[1];
  if (tool === undefined) return false;
  void toolDoor(endpoint, request, tool);
  return true;
}

const JSON_TYPE = { "content-type": "application/json" };

async function withFaults({ gateway }: Endpoint, request: EndpointRequest, run: () => Promise<void>): Promise<void> {
  try {
    await run();
  } catch (error) {
    const fault = asFault(error);
    fail(request, fault, refusedTrace(gateway, request.peer, fault));
  }
}

function fail(request: EndpointRequest, fault: Fault, traceId: string): void {
  const headers = { ...JSON_TYPE, ...authenticateHeader(fault), ...retryHeader(fault) };
  request.reply.end(JSON.stringify({ error: errorData(fault, traceId) }), { status: httpStatus(fault), headers });
}

/** GET opens (or takes up again) the session's stream, DELETE ends the session; 2026-07-28 has neither. */
function sessionDoor(endpoint: Endpoint, request: EndpointRequest): Promise<void> {
  const { peer, reply, method } = request;
  const id = peer.headers?.["mcp-session-id"];
  if ((method !== "GET" && method !== "DELETE") || typeof id !== "string") {
    reply.end(undefined, { status: 405, headers: { allow: "POST" } });
    return Promise.resolve();
  }
  return withFaults(endpoint, request, async () => {
    const principal = await endpoint.identify(request);
    const session = endpoint.sessions.find(id, principal);
    if (method === "DELETE") {
      endpoint.endSession(session);
      return reply.end(undefined, { status: 204 });
    }
    if (!peer.headers?.accept?.includes("text/event-stream")) {
      return reply.end(undefined, { status: 406 });
    }
    const last = peer.headers["last-event-id"];
    const stream = endpoint.expiries.limit(reply, principal);
    if (typeof last === "string") return endpoint.resume(session, last, stream, principal);
    if (session.listening?.live) return reply.end(undefined, { status: 409 });
    reply.open();
    session.listening = session.streams.create(stream, principal.credential);
  });
}

async function toolDoor(endpoint: Endpoint, request: EndpointRequest, encoded: string): Promise<void> {
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
    reply.onAbort(() => cancel.abort(new Fault("Cancelled", "the client went away")));
    const traceparent = peer.headers?.traceparent;
    const { transport } = peer;
    const from = typeof traceparent === "string" ? traceparent : undefined;
    const span = startNamedCall(gateway, { principal, name, transport }, from);
    traceId = span.traceId;
    const render = (result: JsonObject | RawResult): string =>
      endpoint.serializer.result(result, PLAIN_REVISION, "tools/call");
    const answer = await callNamed(gateway, { principal, name, args: body, transport, cancel, span, render });
    if (!answer.ok) return fail(request, answer.fault, traceId);
    reply.end(answer.text, { headers: JSON_TYPE });
  } catch (error) {
    const fault =
      error instanceof URIError ? new Fault("InvalidRequest", "the path is no valid URI") : asDoorFault(error);
    fail(request, fault, traceId ?? refusedTrace(gateway, peer, fault));
  }
}

function asDoorFault(error: unknown): Fault {
  const parse = (error as { code?: string })?.code === "PARSE_ERROR";
  return parse ? new Fault("ParseError", (error as Error).message) : asFault(error);
}
