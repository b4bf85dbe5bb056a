// From a request that may be asked to the text of its answer.

import type { Principal } from "../policy/index.js";
import {
  ASSUMED,
  Fault,
  httpStatus,
  isGatewayOutage,
  isJsonObject,
  type JsonObject,
  type Request,
  type RequestId,
  type Revision,
} from "../mcp/index.js";
import type { Peer, ReplyHead } from "../mcp/transports/index.js";
import { localRoute } from "./builtin.js";
import { call, type Cancel, type Conversation, type Gateway, type Route } from "../pipeline/index.js";
import {
  authenticateHeader,
  belongsInResult,
  type ResultSerializer,
  errorText,
  failedResult,
  retryHeader,
  successText,
} from "./result-serializer.js";
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
  if (fault.detail.authenticate !== undefined) {
    const head = { status: httpStatus(fault), headers: authenticateHeader(fault) };
    return { ok: false, text: errorText(request.id, fault, revision, traceId), head };
  }
  if (isGatewayOutage(fault)) {
    const head = { status: httpStatus(fault), headers: retryHeader(fault) };
    return { ok: false, text: errorText(request.id, fault, revision, traceId), head };
  }
  if (!asked.plain && belongsInResult(fault, request.method)) {
    const result = failedResult(fault, traceId, route, revision);
    const text = successText(request.id, serializer.result(result, revision, request.method));
    return { ok: false, text, head: undefined };
  }
  const status = revision.era === "modern" ? modernStatus(fault) : 200;
  return { ok: false, text: errorText(request.id, fault, revision, traceId), head: { status } };
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
