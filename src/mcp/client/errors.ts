// What a call can end with when it does not end well: four families, told apart by class and by `.family`.
// `code` is the stable name of the one error table; `data` is the error object as the server sent it.

import type { Challenge, Rule } from "../../policy/index.js";
import {
  ERROR_META,
  ERRORS,
  type ErrorFamily,
  type ErrorType,
  Fault,
  GATEWAY_ORIGIN,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  ORIGIN_META,
} from "../index.js";
import type { ToolResult } from "../server/index.js";
import { type ServerErrorObject, ServerRefusal } from "../session/index.js";

export interface ErrorDetail {
  /** The server's JSON-RPC code, when it answered with an error. */
  wireCode?: number;
  /** HTTP status, when there was one and no JSON-RPC answer. */
  status?: number;
  data?: JsonValue;
  /** The tool's own answer, when it answered with `isError: true`. */
  result?: ToolResult;
  rules?: readonly Rule[];
  suggestions?: readonly string[];
  cause?: unknown;
}

export abstract class McpError extends Error {
  abstract readonly family: ErrorFamily;
  readonly type: ErrorType;
  readonly code: string;
  readonly retryable: boolean;
  readonly wireCode?: number;
  readonly status?: number;
  readonly data?: JsonValue;
  readonly result?: ToolResult;
  readonly rules: readonly Rule[];
  readonly suggestions: readonly string[];

  constructor(type: ErrorType, message: string, detail: ErrorDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = new.target.name;
    this.type = type;
    this.code = ERRORS[type].code;
    this.retryable = ERRORS[type].retryable;
    this.rules = detail.rules ?? rulesIn(detail.data);
    this.suggestions = detail.suggestions ?? suggestionsIn(detail.data);
    if (detail.wireCode !== undefined) this.wireCode = detail.wireCode;
    if (detail.status !== undefined) this.status = detail.status;
    if (detail.data !== undefined) this.data = detail.data;
    if (detail.result !== undefined) this.result = detail.result;
  }

  /** The id that finds this call in the server's log, span and ledger. */
  get traceId(): string | undefined {
    const id = isJsonObject(this.data) ? this.data.trace_id : undefined;
    return typeof id === "string" ? id : undefined;
  }
}

/** What the server's error object says to do; nothing of it is believed to be more than text. */
function suggestionsIn(data: JsonValue | undefined): readonly string[] {
  const said = isJsonObject(data) ? data.suggestions : undefined;
  return Array.isArray(said) ? said.filter((each) => typeof each === "string") : [];
}

function rulesIn(data: JsonValue | undefined): readonly Rule[] {
  const rule = isJsonObject(data) ? data.rule : undefined;
  return typeof rule === "string" && rule !== "" ? [{ id: rule }] : [];
}

/** The conversation broke: a malformed or over-large message, an unknown method, a lost connection. */
export class ProtocolError extends McpError {
  readonly family = "protocol" as const;
}

/** The tool was reached and failed, or did not answer in time. */
export class ToolFailure extends McpError {
  readonly family = "tool" as const;
}

/** A gate, here or at the server, did not let the call through. Nothing ran. */
export class PolicyViolation extends McpError {
  readonly family = "policy" as const;
}

/** The call could not be put on record. */
export class AuditFailure extends McpError {
  readonly family = "audit" as const;
}

export interface WaitOptions {
  /** How long to wait for a person; 10 minutes unless said. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** A challenge held by a gate here, or what a remote gate said about the one it holds. */
export type ChallengeInfo = Challenge | RemoteChallenge;

export interface RemoteChallenge {
  readonly id: string;
  readonly remote: true;
  readonly reason: string;
  /** Everything the remote gate said: where to approve, when it expires. */
  readonly data: JsonObject;
}

/** The call waits for a person. `wait()` sits until the answer is there and then runs the very same call. */
export class ChallengeRequired extends PolicyViolation {
  readonly challenge: ChallengeInfo;
  readonly #wait: (options: WaitOptions) => Promise<ToolResult>;
  constructor(challenge: ChallengeInfo, wait: (options: WaitOptions) => Promise<ToolResult>, detail: ErrorDetail = {}) {
    super("ChallengePending", ERRORS.ChallengePending.message, detail);
    this.challenge = challenge;
    this.#wait = wait;
  }
  wait(options: WaitOptions = {}): Promise<ToolResult> {
    return this.#wait(options);
  }
}

/** An error of the family the table gives this type. */
export function errorOf(type: ErrorType, message: string, detail: ErrorDetail = {}): McpError {
  switch (ERRORS[type].family) {
    case "protocol":
      return new ProtocolError(type, message, detail);
    case "tool":
      return new ToolFailure(type, message, detail);
    case "policy":
      return new PolicyViolation(type, message, detail);
    case "audit":
      return new AuditFailure(type, message, detail);
  }
}

/** Codes whose meaning JSON-RPC or MCP fixes; any other number means whatever its server says. */
const FIXED: readonly ErrorType[] = [
  "ParseError",
  "InvalidRequest",
  "MethodNotFound",
  "InvalidParams",
  "InternalError",
  "HeaderMismatch",
  "MissingCapability",
  "UnsupportedVersion",
];
const BY_CODE = new Map<number, ErrorType>([
  [ERRORS.ResourceNotFound.legacy, "ResourceNotFound"],
  ...FIXED.map((type): [number, ErrorType] => [ERRORS[type].modern, type]),
]);

/** A JSON-RPC error answer as one of the four families. */
export function errorFromAnswer(error: ServerErrorObject, method: string, status?: number): McpError {
  const detail: ErrorDetail = { wireCode: error.code, ...(status === undefined ? {} : { status }) };
  if (error.data !== undefined) detail.data = error.data;
  const described = errorObjectIn(error.data);
  if (described) return errorOf(described.error_type, error.message, detail);
  const fixed = BY_CODE.get(error.code);
  if (fixed) return errorOf(fixed, error.message, detail);
  return errorOf(method === "tools/call" ? "ToolExecution" : "InternalError", error.message, detail);
}

const BY_STATUS: readonly ErrorType[] = ["AuthenticationError", "AuthorizationError", "TooLarge", "RateLimited"];

/** An HTTP answer that carried no JSON-RPC answer. */
function errorFromStatus(status: number, message: string, detail: ErrorDetail = {}): McpError {
  const type = BY_STATUS.find((candidate) => ERRORS[candidate].http === status);
  return errorOf(type ?? (status >= 500 ? "InternalError" : "InvalidRequest"), message, { status, ...detail });
}

/** What a request failed with when there was no answer, as one of the four families. `reason` is that of its signal. */
export function errorFromFault(error: unknown, method: string, reason?: unknown): McpError {
  if (error instanceof McpError) return error;
  if (!(error instanceof Fault)) {
    return new ProtocolError("IoError", (error as Error)?.message ?? String(error), { cause: error });
  }
  const { cause, suggestions, extra = {} } = error.detail;
  if (cause instanceof McpError) return cause;
  const status = typeof extra.status === "number" ? extra.status : undefined;
  if (cause instanceof ServerRefusal) return errorFromAnswer(cause.error, method, status);
  if (status !== undefined) {
    const said = typeof extra.wwwAuthenticate === "string" ? `; it asks for ${extra.wwwAuthenticate}` : "";
    return errorFromStatus(status, `the server answered ${method} with HTTP ${status} and no JSON-RPC answer${said}`);
  }
  switch (error.type) {
    case "ToolTimeout": {
      const message = `${method} was not answered within ${String(extra.timeout_ms)} ms`;
      const detail = { suggestions: ["Try again later", "Give this call a longer timeoutMs"] };
      return ofMethod(method, "ToolTimeout", message, detail);
    }
    case "Cancelled":
      return ofMethod(method, "Cancelled", error.message, reason === undefined ? {} : { cause: reason });
    case "ToolExecution":
      return new ProtocolError("InvalidRequest", error.message, { cause: error });
    case "Unavailable":
    case "IoError":
      return new ProtocolError("IoError", `the connection failed: ${error.message}`, { cause: cause ?? error });
    default:
      return new ProtocolError(error.type, error.message, { cause: error, ...(suggestions ? { suggestions } : {}) });
  }
}

function ofMethod(method: string, type: ErrorType, message: string, detail: ErrorDetail): McpError {
  return method === "tools/call" ? new ToolFailure(type, message, detail) : new ProtocolError(type, message, detail);
}

/** The error object of the table, if that is what this is. */
export interface DescribedError extends JsonObject {
  error_type: ErrorType;
  code: string;
}

export function errorObjectIn(value: unknown): DescribedError | undefined {
  if (!isJsonObject(value) || typeof value.error_type !== "string" || !Object.hasOwn(ERRORS, value.error_type)) {
    return undefined;
  }
  return ERRORS[value.error_type as ErrorType].code === value.code ? (value as DescribedError) : undefined;
}

/**
 * The error object of a failed tool result that a gateway made: its structured content, or an entry of its `_meta`. A
 * tool's own failure has none, whatever it looks like: gateways remove the mark from what servers send.
 */
export function errorObjectOf({ isError, structuredContent, _meta }: ToolResult): DescribedError | undefined {
  if (isError !== true || !isJsonObject(_meta) || _meta[ORIGIN_META] !== GATEWAY_ORIGIN[ORIGIN_META]) return undefined;
  return errorObjectIn(_meta[ERROR_META]) ?? errorObjectIn(structuredContent);
}

/** A failed tool result as an error: of the family its error object names, otherwise a tool failure. */
export function errorFromResult(result: ToolResult, tool: string): McpError {
  const described = errorObjectOf(result);
  const blocks: unknown[] = Array.isArray(result.content) ? result.content : [];
  const said = blocks.find((block) => isJsonObject(block) && typeof block.text === "string") as
    | { text: string }
    | undefined;
  const text = said?.text ?? `tool \`${tool}\` failed without saying why`;
  if (!described) return new ToolFailure("ToolExecution", text, { result });
  const reason = typeof described.reason === "string" ? described.reason : text;
  const rules = typeof described.rule === "string" ? [{ id: described.rule }] : [];
  return errorOf(described.error_type, reason, { data: described, result, rules });
}
