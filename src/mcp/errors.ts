// The one table of errors. Everything that fails, in any room and on any transport, is one of these kinds;
// nothing else in the code knows a JSON-RPC code or an HTTP status.

/** Four families that a caller can tell apart (U6). */
export type ErrorFamily = "protocol" | "tool" | "policy" | "audit";

interface ErrorRow {
  readonly family: ErrorFamily;
  /** The stable name in `error.data.code`. */
  readonly code: string;
  /** JSON-RPC code for revisions up to 2025-11-25. */
  readonly legacy: number;
  /** JSON-RPC code for 2026-07-28, where our own codes must stay outside −32768…−32000. */
  readonly modern: number;
  readonly http: number;
  /** Can the same call succeed later without anyone changing it? */
  readonly retryable: boolean;
  /** A model can act on it, so on `tools/call` it is a result with `isError: true`. */
  readonly forModel: boolean;
  readonly message: string;
}

function row(
  family: ErrorFamily,
  code: string,
  legacy: number,
  modern: number,
  http: number,
  flags: "" | "retry" | "model" | "retry model",
  message: string,
): ErrorRow {
  return {
    family,
    code,
    legacy,
    modern,
    http,
    retryable: flags.includes("retry"),
    forModel: flags.includes("model"),
    message,
  };
}

export const ERRORS = {
  ParseError: row("protocol", "PARSE_ERROR", -32700, -32700, 400, "", "Parse error"),
  InvalidRequest: row("protocol", "INVALID_REQUEST", -32600, -32600, 400, "", "Invalid request"),
  MethodNotFound: row("protocol", "METHOD_NOT_FOUND", -32601, -32601, 404, "", "Method not found"),
  InvalidParams: row("protocol", "INVALID_PARAMS", -32602, -32602, 400, "", "Invalid params"),
  InternalError: row("protocol", "INTERNAL", -32603, -32603, 500, "retry", "Internal error"),
  HeaderMismatch: row("protocol", "HEADER_MISMATCH", -32600, -32020, 400, "", "Header mismatch"),
  MissingCapability: row("protocol", "MISSING_CAPABILITY", -32600, -32021, 400, "", "Missing client capability"),
  UnsupportedVersion: row("protocol", "UNSUPPORTED_VERSION", -32602, -32022, 400, "", "Unsupported protocol version"),
  WrongPhase: row("protocol", "WRONG_PHASE", -32600, -32600, 400, "", "Not allowed in this phase of the connection"),
  SessionNotFound: row("protocol", "SESSION_NOT_FOUND", -32001, -31001, 404, "", "Session not found"),
  TooLarge: row("protocol", "TOO_LARGE", -32600, -32600, 413, "", "Over a size limit"),
  TooMany: row("protocol", "TOO_MANY", -32000, -31000, 429, "retry", "Too many at once"),
  ToolNotFound: row("protocol", "TOOL_NOT_FOUND", -32602, -32602, 404, "", "Unknown tool"),
  ResourceNotFound: row("protocol", "RESOURCE_NOT_FOUND", -32002, -32602, 404, "", "Resource not found"),
  PromptNotFound: row("protocol", "PROMPT_NOT_FOUND", -32602, -32602, 404, "", "Unknown prompt"),
  ValidationError: row("protocol", "INVALID_ARGS", -32602, -32602, 400, "model", "Invalid arguments"),
  AuthenticationError: row("policy", "UNAUTHENTICATED", -32004, -31004, 401, "", "Authentication required"),
  AuthorizationError: row("policy", "FORBIDDEN", -32005, -31005, 403, "", "Not allowed"),
  PolicyDeny: row("policy", "POLICY_DENY", -32005, -31005, 403, "model", "Denied by policy"),
  ChallengePending: row("policy", "CHALLENGE", -32006, -31006, 403, "retry model", "Action requires approval"),
  GuardrailBlocked: row("policy", "GUARDRAIL_BLOCKED", -32007, -31007, 403, "model", "Blocked by a guardrail"),
  RateLimited: row("policy", "RATE_LIMITED", -32008, -31008, 429, "retry model", "Over a rate limit"),
  ToolExecution: row("tool", "TOOL_FAILURE", -32003, -31003, 502, "retry model", "Tool failed"),
  ToolTimeout: row("tool", "TIMEOUT", -32003, -31003, 504, "retry model", "Tool timed out"),
  Unavailable: row("tool", "UNAVAILABLE", -32003, -31003, 503, "retry model", "The server behind it is unavailable"),
  Downstream: row("tool", "DOWNSTREAM_ERROR", -32003, -31003, 502, "", "The server behind it answered with an error"),
  Cancelled: row("tool", "CANCELLED", -32800, -31800, 499, "", "Cancelled"),
  IoError: row("tool", "IO_ERROR", -32003, -31003, 500, "model", "Input or output failed"),
  OutputTruncated: row("tool", "OUTPUT_TRUNCATED", -32003, -31003, 200, "model", "Output was truncated"),
  OutputInvalid: row("tool", "OUTPUT_INVALID", -32003, -31003, 502, "model", "The tool's answer breaks its own schema"),
  AuditFailure: row("audit", "AUDIT_FAILURE", -32009, -31009, 503, "retry", "The audit ledger cannot be written"),
} as const satisfies Record<string, ErrorRow>;

export type ErrorType = keyof typeof ERRORS;

/** The path where every HTTP endpoint serves the page about errors, without a credential. */
export const ERROR_PAGE_PATH = "/docs/errors";
let documentationBase = ERROR_PAGE_PATH;

/** Sets the address of the page that `documentation_url` names; until then it is relative to the server's own address. */
export function setDocumentationBase(url: string): void {
  documentationBase = url;
}

/**
 * `_meta` key that names who made a message: `gateway`, or `server:NAME`. A gateway removes it from everything that
 * servers send, so a client can tell the gateway's own denials and approval requests from a server's imitation.
 */
export const ORIGIN_META = "portcullis/origin";
export const GATEWAY_ORIGIN: { readonly [ORIGIN_META]: "gateway" } = { [ORIGIN_META]: "gateway" };
/** `_meta` key of the error object, where a failed result cannot carry it as structured content. */
export const ERROR_META = "portcullis/error";

/** The error object of G4: `error.data`, and the structured content of a failed tool result. */
export interface ErrorData {
  code: string;
  error_type: ErrorType;
  reason: string;
  trace_id: string;
  retryable: boolean;
  suggestions: string[];
  documentation_url: string;
  rule?: string;
  field?: string;
  [extra: string]: unknown;
}

export interface FaultDetail {
  rule?: string;
  field?: string;
  suggestions?: readonly string[];
  /** Where this failure differs from others of its type. */
  retryable?: boolean;
  /** More facts for the caller, e.g. `tool_name`, `timeout_ms`, `challenge`. */
  extra?: Readonly<Record<string, unknown>>;
  /** HTTP's `WWW-Authenticate`: where to get a credential that would do. */
  authenticate?: string;
  /** What a downstream server said, to be passed on in its own words. */
  downstream?: { readonly code: number; readonly message: string; readonly data?: unknown };
  /** For the operator's log alone, under the trace id: it may name addresses, paths or secrets. Never sent. */
  operator?: string;
  cause?: unknown;
}

/** An expected failure with everything a caller needs to know; thrown or returned, it maps to the wire in one place. */
export class Fault extends Error {
  readonly type: ErrorType;
  readonly detail: FaultDetail;
  constructor(type: ErrorType, reason: string, detail: FaultDetail = {}) {
    super(reason, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = "Fault";
    this.type = type;
    this.detail = detail;
  }
  get code(): string {
    return ERRORS[this.type].code;
  }
  get family(): ErrorFamily {
    return ERRORS[this.type].family;
  }
}

export function errorData(fault: Fault, traceId: string): ErrorData {
  const { code } = ERRORS[fault.type];
  const { rule, field, suggestions, extra, retryable = ERRORS[fault.type].retryable } = fault.detail;
  return {
    code,
    error_type: fault.type,
    reason: fault.message,
    ...(rule === undefined ? {} : { rule }),
    ...(field === undefined ? {} : { field }),
    trace_id: traceId,
    retryable,
    suggestions: [...(suggestions ?? [])],
    documentation_url: `${documentationBase}#${code.toLowerCase()}`,
    ...extra,
  };
}

export type Era = "legacy" | "modern";

export interface WireError {
  code: number;
  message: string;
  data: ErrorData;
}

export function wireError(fault: Fault, era: Era, traceId: string): WireError {
  const entry = ERRORS[fault.type];
  const data = errorData(fault, traceId);
  const { downstream } = fault.detail;
  if (!downstream) return { code: entry[era], message: `${entry.message}: ${fault.message}`, data };
  return {
    code: codeFor(era, downstream.code),
    message: fault.message,
    data: { ...extraOf(downstream.data), ...data },
  };
}

/** Codes that one era retired and the other still has. */
function codeFor(era: Era, code: number): number {
  const { legacy, modern } = ERRORS.ResourceNotFound;
  return era === "modern" && code === legacy ? modern : code;
}

/** A server's own data stands beside ours and never in place of it. */
function extraOf(data: unknown): Record<string, unknown> {
  if (data === undefined) return {};
  return typeof data === "object" && data !== null && !Array.isArray(data) ? { ...data } : { downstream: data };
}

export function httpStatus(fault: Fault): number {
  return ERRORS[fault.type].http;
}

/** Codes of a store that cannot be reached; by code, because this module knows nothing of stores. */
const STORE_OUTAGES: ReadonlySet<unknown> = new Set(["STORAGE_UNAVAILABLE", "STORAGE_UNCERTAIN"]);
/** Tells an outage of the gateway's own store from one of a server behind it. */
export const STORE_OUTAGE = { component: "store", retry_after_ms: 1_000 } as const;

/** More calls arrive than are served: refused before anything is decided for them. */
export const OVERLOAD = { component: "gateway", retry_after_ms: 1_000 } as const;

/** The error of a caller whose call needs the store while it does not answer. Nothing was decided about the call. */
export function storeUnavailable(cause?: unknown): Fault {
  return new Fault("Unavailable", "the gateway's store does not answer at the moment; the call did not run", {
    ...(cause === undefined ? {} : { cause }),
    suggestions: ["Try again in a moment"],
    extra: STORE_OUTAGE,
  });
}

export function isStoreOutage(error: unknown): boolean {
  return STORE_OUTAGES.has((error as { code?: unknown } | undefined)?.code);
}

/** The gateway cannot serve the call at the moment: over HTTP the answer has the status and `Retry-After` of the error. */
export function isGatewayOutage(fault: Fault): boolean {
  const component = fault.detail.extra?.component;
  if (component === OVERLOAD.component) return fault.type === "Unavailable" || fault.type === "TooMany";
  return fault.type === "Unavailable" && component === STORE_OUTAGE.component;
}

/**
 * A store that is away is an outage, which passes. Anything else that is not a Fault is a defect of ours: the caller learns
 * that, and nothing of our insides.
 */
export function asFault(error: unknown): Fault {
  if (error instanceof Fault) return error;
  if (isStoreOutage(error)) return storeUnavailable(error);
  return new Fault("InternalError", "an unexpected error stopped this call; the trace id finds it in the log", {
    cause: error,
    suggestions: ["Look for the trace id in the server's log"],
  });
}
