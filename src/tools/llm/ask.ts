// One question to the provider: bounded in time and tries, stopped when the caller stops.

import { setTimeout as pause } from "node:timers/promises";
import { Fault } from "../../mcp/index.js";
import { visible } from "../../telemetry/index.js";
import type { LlmAnswer, LlmLimits, LlmRequest, LlmSettings, Provider } from "./settings.js";

export interface LlmAsked extends LlmAnswer {
  readonly truncated: boolean;
}

export interface AskOptions {
  readonly limits: LlmLimits;
  readonly apiKey: string | undefined;
  readonly signal: AbortSignal;
  readonly onText: (text: string) => Promise<void>;
}

export async function ask(provider: Provider, question: LlmRequest, options: AskOptions): Promise<LlmAsked> {
  const { limits, signal } = options;
  const late = AbortSignal.timeout(limits.timeoutMs);
  const stop = new AbortController();
  const any = AbortSignal.any([signal, late, stop.signal]);
  let chars = 0;
  const onText = async (text: string): Promise<void> => {
    any.throwIfAborted();
    const room = limits.maxOutputChars - chars;
    chars += Math.min(text.length, room);
    if (text.length <= room) return await options.onText(text);
    const part = text.slice(0, room).replace(/[\ud800-\udbff]$/, "");
    if (part !== "") await options.onText(part);
    stop.abort();
  };
  for (let attempt = 0; ; attempt++) {
    try {
      const answer = await untilAborted(provider(question, { signal: any, onText }), any);
      return { ...answer, truncated: false };
    } catch (error) {
      if (stop.signal.aborted)
        return { model: question.model, finishReason: "length", usage: undefined, ignored: [], truncated: true };
      if (signal.aborted) throw signal.reason;
      if (late.aborted) throw tooLate(limits.timeoutMs);
      const { fault, retry, afterMs } = llmFailureOf(error, options.apiKey);
      const delayMs = afterMs ?? Math.min(limits.maxRetryDelayMs, 500 * 2 ** attempt) * (0.5 + Math.random() / 2);
      // What was passed on cannot be taken back, so an answer that broke off is not begun anew.
      if (!retry || chars > 0 || attempt >= limits.maxRetries || delayMs > limits.maxRetryDelayMs) throw fault;
      await pause(delayMs, undefined, { signal: any }).catch(() => undefined);
      if (signal.aborted) throw signal.reason;
      if (late.aborted) throw tooLate(limits.timeoutMs);
    }
  }
}

/** A library that does not notice the end of its time is left alone with what it does. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason);
    if (signal.aborted) aborted();
    signal.addEventListener("abort", aborted, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  });
}

function tooLate(timeoutMs: number): Fault {
  return new Fault("ToolTimeout", `the provider did not answer within ${timeoutMs} ms and was left`, {
    rule: "timeoutMs",
    extra: { tool_name: "core.llm.generate", timeout_ms: timeoutMs, timedOut: true },
    suggestions: ["ask for a shorter answer", "the operator can raise llm.limits.timeoutMs"],
  });
}

// What went wrong at a provider, in words that a caller can act on and without a byte of the key.

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

/** A fault of the dialer or of one of our limits; libraries wrap it, and so does `fetch`. */
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

// What of a provider's library reaches the network. Whatever a library reads from the environment or thinks of adding,
// a request goes to the operator's address only, with the few headers named here, and its answer has an end.

/** What is about the format. A credential is never among them: a library would also take one from the environment. */
const HEADERS = ["accept", "content-type", "anthropic-version"];

export function guardedFetch(
  fetch: typeof globalThis.fetch,
  { baseUrl, limits }: LlmSettings,
  apiKey: string | undefined,
): typeof globalThis.fetch {
  const home = new URL(baseUrl);
  return async (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (url.origin !== home.origin)
      throw new Fault("PolicyDeny", "the provider's address is another", { rule: "outbound" });
    const given = new Headers(init.headers);
    const headers = new Headers({ "user-agent": "portcullis" });
    for (const name of HEADERS) {
      const value = given.get(name);
      if (value !== null) headers.set(name, value);
    }
    if (apiKey !== undefined) headers.set("authorization", `Bearer ${apiKey}`);
    const { method, body, signal } = init;
    const settings: RequestInit = { headers, redirect: "manual" };
    if (method !== undefined) settings.method = method;
    if (body !== undefined) settings.body = body;
    if (signal !== undefined) settings.signal = signal;
    const response = await fetch(url, settings);
    return bounded(response, limits.maxResponseBytes);
  };
}

function bounded(response: Response, maxBytes: number): Response {
  if (response.body === null) return response;
  let size = 0;
  const counted = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.byteLength;
        if (size <= maxBytes) controller.enqueue(chunk);
        else controller.error(tooLong(maxBytes));
      },
    }),
  );
  return new Response(counted, { status: response.status, headers: new Headers([...response.headers]) });
}

function tooLong(maxBytes: number): Fault {
  return new Fault("ToolExecution", `the provider's answer has more than ${maxBytes} bytes`, {
    rule: "maxResponseBytes",
  });
}
