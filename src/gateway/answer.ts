// From a request to the text of its answer: what is added to a result for a revision, and where a failure belongs.

import {
  ASSUMED,
  ERROR_META,
  ERRORS,
  errorData,
  Fault,
  GATEWAY_ORIGIN,
  httpStatus,
  isGatewayOutage,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  META,
  type Request,
  type RequestId,
  type Revision,
  wireError,
} from "../mcp/index.js";
import type { Implementation } from "../mcp/server/index.js";
import type { Peer, ReplyHead } from "../mcp/transports/index.js";
import { type Cancel, type Conversation, call, RawResult, type Route } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import { traceIdFrom } from "../telemetry/index.js";
import type { Gateway } from "./application-types.js";
import { localRoute } from "./builtin.js";
import { LIST_METHODS } from "./lists.js";
import type { Session } from "./session.js";

export interface IncomingRequest {
  request: Request;
  principal: Principal;
  revision: Revision;
  peer: Peer;
  conversation: Conversation;
  cancel: Cancel;
  session?: Session;
  /** A tool as a method of its own: its structured content is the result, its failures are errors. */
  plain?: boolean;
}

export interface RequestOutcome {
  ok: boolean;
  /** Undefined when the caller took its request back: nothing is sent, the exchange ends all the same. */
  text: string | undefined;
  head: ReplyHead | undefined;
}

export const UNANSWERED: RequestOutcome = { ok: false, text: undefined, head: { status: 202 } };

export async function answerRequest(
  gateway: Gateway,
  serializer: ResultSerializer,
  asked: IncomingRequest,
): Promise<RequestOutcome> {
  const { request, principal, revision, peer, conversation, cancel, session } = asked;
  const params = request.params ?? {};
  const meta = isJsonObject(params._meta) ? params._meta : undefined;
  const span = gateway.telemetry.startCall({
    method: request.method,
    tool: typeof params.name === "string" ? params.name : "",
    app: principal.app,
    agent: principal.agent,
    transport: peer.transport,
    revision: revision.name,
    requestId: request.id,
    sessionId: session?.id,
    traceparent: typeof meta?.traceparent === "string" ? meta.traceparent : undefined,
    tracestate: typeof meta?.tracestate === "string" ? meta.tracestate : undefined,
  });
  const answer = await call(gateway, {
    principal,
    method: request.method,
    params,
    route: localRoute(gateway, principal, revision, request.method, params, peer.transport, session),
    requestId: request.id,
    revision,
    transport: peer.transport,
    conversation,
    session: session?.id,
    cancel,
    render: (result) =>
      asked.plain ? plainText(result as JsonObject) : serializer.result(result, revision, request.method),
    span,
    depth: 0,
  });
  if (!answer.ok) return faulty(gateway, serializer, asked, answer.fault, answer.route, span.traceId);
  return { ok: true, text: successText(request.id, answer.text), head: undefined };
}

function faulty(
  gateway: Gateway,
  serializer: ResultSerializer,
  asked: IncomingRequest,
  fault: Fault,
  route: Route | undefined,
  traceId: string,
): RequestOutcome {
  const { request, revision } = asked;
  if (fault.type === "InternalError") {
    gateway.telemetry.log.error("a call failed unexpectedly", { error: String(fault.cause) }, traceId);
  }
  if (fault.detail.authenticate !== undefined || isGatewayOutage(fault)) {
    const headers = fault.detail.authenticate === undefined ? retryHeader(fault) : authenticateHeader(fault);
    const head = { status: httpStatus(fault), headers };
    return { ok: false, text: errorText(request.id, fault, revision, traceId), head };
  }
  if (!asked.plain && belongsInResult(fault, request.method)) {
    const result = failedResult(fault, traceId, route, revision);
    const text = successText(request.id, serializer.result(result, revision, request.method));
    return { ok: false, text, head: undefined };
  }
  const status = revision.era === "modern" ? modernStatus(fault) : 200;
  const head = { status, headers: status === 200 ? undefined : retryHeader(fault) };
  return { ok: false, text: errorText(request.id, fault, revision, traceId), head };
}

export function failed(id: RequestId, fault: Fault, traceId: string): RequestOutcome {
  return { ok: false, text: errorText(id, fault, ASSUMED, traceId), head: undefined };
}

function plainText(result: JsonObject): string {
  return JSON.stringify(result.structuredContent ?? result);
}

/** Where 2026-07-28 ties a status to an error; everything else is an answer like any other. */
function modernStatus(fault: Fault): number {
  switch (fault.type) {
    case "MethodNotFound":
    case "MissingCapability":
    case "UnsupportedVersion":
    case "HeaderMismatch":
    case "AuditFailure":
      return httpStatus(fault);
    default:
      return 200;
  }
}

/** How long a client of 2026-07-28 may keep a list that was filtered for it. */
const LIST_TTL_MS = 5_000;

export class ResultSerializer {
  readonly #serverInfo: Implementation;
  readonly #plain: string;
  readonly #list: string;
  readonly #read: string;

  constructor(serverInfo: Implementation) {
    this.#serverInfo = serverInfo;
    const tail = `"resultType":"complete","_meta":${JSON.stringify({ [META.serverInfo]: serverInfo })}`;
    this.#plain = tail;
    this.#list = `"ttlMs":${LIST_TTL_MS},"cacheScope":"private",${tail}`;
    this.#read = `"ttlMs":0,"cacheScope":"private",${tail}`;
  }

  /** The result object as text. */
  result(result: JsonObject | RawResult, revision: Revision, method: string): string {
    const raw = result instanceof RawResult;
    // The result of an upstream server that has an envelope is forwarded as it is, where this revision has envelopes.
    if (raw && result.value && hasEnvelope(result.value)) {
      if (!revision.resultType) return this.result(result.value, revision, method);
      if (result.value.resultType !== undefined) return `{${result.inside}}`;
      return this.result(result.value, revision, method);
    }
    if (!raw && !revision.resultType) return resultJson(withoutComplete(result));
    const inside = raw ? result.inside : this.#inside(result, method);
    if (!revision.resultType || (!raw && hasEnvelope(result))) return `{${inside}}`;
    const tail = LIST_METHODS.has(method)
      ? this.#list
      : method === "resources/read" || method === "server/discover"
        ? this.#read
        : this.#plain;
    return inside === "" ? `{${tail}}` : `{${inside},${tail}}`;
  }

  #inside(result: JsonObject, method: string): string {
    if (!hasEnvelope(result)) return resultJson(result).slice(1, -1);
    const meta = isJsonObject(result._meta) ? result._meta : {};
    const merged = {
      ...(method === "resources/read" ? { ttlMs: 0, cacheScope: "private" } : {}),
      resultType: "complete",
      ...result,
      _meta: { [META.serverInfo]: this.#serverInfo, ...meta },
    };
    return JSON.stringify(merged).slice(1, -1);
  }
}

/** Earlier revisions have no result types: `complete` is left out. */
function withoutComplete(result: JsonObject): JsonObject {
  if (result.resultType !== "complete") return result;
  const { resultType: _dropped, ...rest } = result;
  return rest;
}

/** A result that brings `_meta` or `resultType` of its own is merged instead of spliced. */
function hasEnvelope(result: JsonObject): boolean {
  return result._meta !== undefined || result.resultType !== undefined;
}

/** A failure that a model can act on is a result of the tool; every other one is a protocol error. */
function belongsInResult(fault: Fault, method: string): boolean {
  return method === "tools/call" && ERRORS[fault.type].forModel;
}

function failedResult(fault: Fault, traceId: string, route: Route | undefined, revision: Revision): JsonObject {
  const data = errorData(fault, traceId) as unknown as JsonObject;
  const entry = ERRORS[fault.type];
  const lines = [`${entry.message}: ${fault.message}`, ...(fault.detail.suggestions ?? [])];
  const text = fault.type === "ToolExecution" ? fault.message : lines.join("\n");
  const content = [{ type: "text", text }];
  // Clients of earlier revisions validate structured content against the tool's schema even when it failed, and then reject
  // the whole answer, or have none: there the object is a text block for models, and in `_meta` for programs.
  const isChecked = route?.hasOutputSchema === true && revision.era === "legacy";
  if (revision.structuredContent && !isChecked) {
    return { content, isError: true, structuredContent: data, _meta: GATEWAY_ORIGIN };
  }
  return {
    content: [...content, { type: "text", text: JSON.stringify(data) }],
    isError: true,
    _meta: { ...GATEWAY_ORIGIN, [ERROR_META]: data },
  };
}

export function successText(id: RequestId, resultText: string): string {
  return `{"jsonrpc":"2.0","id":${typeof id === "number" ? id : JSON.stringify(id)},"result":${resultText}}`;
}

export function errorText(id: RequestId | null, fault: Fault, revision: Revision, traceId: string): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: wireError(fault, revision.era, traceId) });
}

/** These pass by themselves: a bound of the gateway, and a ledger that cannot be written. */
const PASSES: ReadonlySet<Fault["type"]> = new Set(["TooMany", "AuditFailure"]);

/** When a caller that was refused only for now may try again. */
export function retryHeader(fault: Fault): Record<string, string> | undefined {
  const waitMs = fault.detail.extra?.retry_after_ms;
  if (typeof waitMs === "number") return { "retry-after": String(Math.max(1, Math.ceil(waitMs / 1_000))) };
  return PASSES.has(fault.type) ? { "retry-after": "1" } : undefined;
}

/** What a client needs to do about it: get a credential, or one with more scope. */
export function authenticateHeader(fault: Fault): Record<string, string> | undefined {
  const { authenticate } = fault.detail;
  if (authenticate !== undefined) return { "www-authenticate": authenticate };
  return fault.type === "AuthenticationError" ? { "www-authenticate": "Bearer" } : undefined;
}

/** Below this nothing is gained. */
const LONG_TEXT = 64 * 1024;

export function resultJson(result: JsonObject): string {
  const { content, structuredContent } = result;
  const block = Array.isArray(content) && content.length === 1 ? content[0] : undefined;
  if (!isJsonObject(block) || !isJsonObject(structuredContent)) return JSON.stringify(result);
  const { text } = block;
  if (typeof text !== "string" || text.length < LONG_TEXT || !Object.values(structuredContent).includes(text)) {
    return JSON.stringify(result);
  }
  const quoted = JSON.stringify(text);
  const write = (value: JsonValue): string => (value === text ? quoted : JSON.stringify(value));
  return objectJson(result, (value) => {
    if (value === structuredContent) return objectJson(structuredContent, write);
    return value === content ? `[${objectJson(block, write)}]` : JSON.stringify(value);
  });
}

/** Like `JSON.stringify`, what has no JSON is left out. */
function objectJson(object: JsonObject, write: (value: JsonValue) => string | undefined): string {
  // Put together with `+`, which copies nothing yet; `join` would.
  let members = "";
  for (const [key, value] of Object.entries(object)) {
    const json = write(value);
    if (json !== undefined) members += `${members === "" ? "" : ","}${JSON.stringify(key)}:${json}`;
  }
  return `{${members}}`;
}

/** Malformed messages are logged up to so many lines a second. */
const MAX_LINES = 20;
let second = 0;
let lines = 0;

export function rejectedTrace({ telemetry }: Pick<Gateway, "telemetry">, peer: Peer, fault: Fault): string {
  const traceId = traceIdFrom(peer.headers?.traceparent);
  const now = Math.floor(performance.now() / 1_000);
  if (now !== second) {
    second = now;
    lines = 0;
  }
  if (lines++ < MAX_LINES) {
    const { transport, address } = peer;
    telemetry.log.info("a message was rejected", { transport, from: address, problem: fault.message }, traceId);
  }
  return traceId;
}
