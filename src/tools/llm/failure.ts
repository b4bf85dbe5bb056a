// What went wrong at a provider, in words that a caller can act on and without a byte of the key.

import { Fault } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";

export interface Failure {
  readonly fault: Fault;
  /** The same question may be answered a moment later. */
  readonly retry: boolean;
  /** How long the provider asks to wait. */
  readonly afterMs: number | undefined;
}

const MAX_PROVIDER_CHARS = 300;
const RETRIED = new Set([408, 409, 425, 429, 500, 502, 503, 504, 529]);

export function llmFailureOf(error: unknown, apiKey: string | undefined): Failure {
  const inner = faultInside(error);
  if (inner !== undefined) return { fault: inner, retry: false, afterMs: undefined };
  const { status, headers } = error as { status?: unknown; headers?: unknown };
  if (typeof status === "number") return answered(status, headers, error, apiKey);
  // No answer, or one that broke off.
  const fault = new Fault("Unavailable", "the provider cannot be reached, or its answer broke off", {
    rule: "provider",
    cause: plain(error, apiKey),
    suggestions: ["try again later"],
  });
  return { fault, retry: true, afterMs: undefined };
}

function answered(status: number, headers: unknown, error: unknown, apiKey: string | undefined): Failure {
  const afterMs = headers instanceof Headers ? retryAfter(headers) : undefined;
  const retry = RETRIED.has(status);
  const extra = { status, ...(afterMs === undefined ? {} : { retry_after_ms: afterMs }) };
  const detail = { rule: "provider", cause: plain(error, apiKey), extra };
  if (status === 401 || status === 403) {
    const suggestions = ["the operator can check the application's key and what it may be used for"];
    const reason = `the provider refused the application's credential (${status})`;
    return { fault: new Fault("ToolExecution", reason, { ...detail, suggestions }), retry, afterMs };
  }
  if (retry) {
    const why = status === 429 ? "is over its rate limit" : status === 529 ? "is overloaded" : "has a problem";
    const suggestions = ["try again later"];
    const fault = new Fault("Unavailable", `the provider ${why} (${status})`, { ...detail, suggestions });
    return { fault, retry, afterMs };
  }
  if (status >= 300 && status < 400) {
    const suggestions = ["the operator can correct llm.baseUrl"];
    const fault = new Fault("ToolExecution", `the provider answers from another address (${status})`, {
      ...detail,
      suggestions,
    });
    return { fault, retry: false, afterMs };
  }
  const said = clean(providerText(error), apiKey);
  const fault = new Fault(
    "ToolExecution",
    `the provider refused the request (${status})${said && `: ${said}`}`,
    detail,
  );
  return { fault, retry, afterMs };
}

/** What the dialer or a limit of ours said; libraries wrap it, and so does `fetch`. */
function faultInside(error: unknown): Fault | undefined {
  let at: unknown = error;
  for (let depth = 0; depth < 5 && at !== undefined && at !== null; depth++) {
    if (at instanceof Fault) return at;
    at = (at as { cause?: unknown }).cause;
  }
  return undefined;
}

/** Both libraries keep the body's error object; OpenAI has the message in it, Anthropic one level further down. */
function providerText(error: unknown): string {
  const { error: body } = error as { error?: { message?: unknown; error?: { message?: unknown } } };
  const text = body?.error?.message ?? body?.message;
  return typeof text === "string" ? text : "";
}

function clean(text: string, apiKey: string | undefined): string {
  const without = apiKey === undefined ? text : text.split(apiKey).join("[redacted]");
  return visible(without.replace(/\b(sk|key|token)-[\w-]{6,}/gi, "[redacted]").slice(0, MAX_PROVIDER_CHARS));
}

/** For the operator's log: the libraries' own errors hold whole requests. */
function plain(error: unknown, apiKey: string | undefined): Error {
  const { status, name } = error as { status?: number; name?: string };
  const message = error instanceof Error ? error.message : String(error);
  return new Error(`${name ?? "error"}${status === undefined ? "" : ` ${status}`}: ${clean(message, apiKey)}`);
}

function retryAfter(headers: Headers): number | undefined {
  const ms = Number(headers.get("retry-after-ms") ?? Number.NaN);
  if (ms >= 0) return ms;
  const value = headers.get("retry-after");
  if (value === null) return undefined;
  const seconds = Number(value);
  const wait = Number.isNaN(seconds) ? Date.parse(value) - Date.now() : seconds * 1000;
  return wait >= 0 ? wait : undefined;
}
