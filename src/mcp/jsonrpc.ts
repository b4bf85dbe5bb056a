// JSON-RPC 2.0 as MCP uses it: requests, responses, notifications, batches; string and number ids.
// Messages stay the objects that were parsed, so unknown fields survive the round trip.

import { Fault } from "./errors.js";
import { isJsonObject, type JsonObject, type JsonValue } from "./json.js";

export type RequestId = string | number;

export interface Request {
  jsonrpc: "2.0";
  id: RequestId;
  method: string;
  params?: JsonObject;
}

export interface Notification {
  jsonrpc: "2.0";
  method: string;
  params?: JsonObject;
}

export interface SuccessResponse {
  jsonrpc: "2.0";
  id: RequestId;
  result: JsonObject;
}

export interface ErrorResponse {
  jsonrpc: "2.0";
  id: RequestId | null;
  error: { code: number; message: string; data?: JsonValue };
}

export type Response = SuccessResponse | ErrorResponse;
export type Message = Request | Notification | Response;

export type Classified =
  | { kind: "request"; message: Request }
  | { kind: "notification"; message: Notification }
  | { kind: "response"; message: Response }
  | { kind: "invalid"; id: RequestId | null; fault: Fault };

export function isRequestId(value: unknown): value is RequestId {
  return typeof value === "string" || (typeof value === "number" && Number.isInteger(value));
}

export function classify(value: JsonValue): Classified {
  if (!isJsonObject(value)) return invalid(null, "a message is a JSON object");
  const id = isRequestId(value.id) ? value.id : null;
  if (value.jsonrpc !== "2.0") return invalid(id, 'field `jsonrpc` must be "2.0"');
  if (typeof value.method === "string") {
    if (value.params !== undefined && !isJsonObject(value.params)) {
      return invalid(id, "field `params` must be an object");
    }
    if (!("id" in value)) return { kind: "notification", message: value as unknown as Notification };
    if (id === null) return invalid(null, "field `id` must be a string or an integer");
    return { kind: "request", message: value as unknown as Request };
  }
  if ("method" in value) return invalid(id, "field `method` must be a string");
  return classifyResponse(value, id);
}

function classifyResponse(value: JsonObject, id: RequestId | null): Classified {
  const hasResult = "result" in value;
  const hasError = "error" in value;
  if (hasResult === hasError) return invalid(id, "a message has `method`, or one of `result` and `error`");
  if (id === null && !(hasError && (value.id === null || value.id === undefined))) {
    return invalid(null, "field `id` must be a string or an integer");
  }
  if (hasResult && !isJsonObject(value.result)) return invalid(id, "field `result` must be an object");
  if (hasError) {
    const error = value.error;
    if (!isJsonObject(error) || typeof error.code !== "number" || typeof error.message !== "string") {
      return invalid(id, "field `error` must hold a number `code` and a string `message`");
    }
  }
  return { kind: "response", message: value as unknown as Response };
}

function invalid(id: RequestId | null, reason: string): Classified {
  return { kind: "invalid", id, fault: new Fault("InvalidRequest", reason) };
}

export type Phase = "new" | "initializing" | "active" | "closed";

/** Undefined when `method` may be asked now. */
export function phaseFault(phase: Phase, method: string): Fault | undefined {
  switch (phase) {
    case "active":
      return method === "initialize" ? wrong(method, "the handshake is already done") : undefined;
    case "new":
      return method === "initialize" || method === "ping"
        ? undefined
        : wrong(method, "send `initialize` first, or speak 2026-07-28 with its `_meta` fields");
    case "initializing":
      return method === "ping" ? undefined : wrong(method, "send `notifications/initialized` first");
    case "closed":
      return wrong(method, "the connection is closed; open a new one");
  }
}

function wrong(method: string, remedy: string): Fault {
  return new Fault("WrongPhase", `\`${method}\` is not allowed now: ${remedy}`, {
    rule: "phase",
    suggestions: [remedy],
  });
}
