// What can go wrong between us and a server, as faults for the caller.

import { classify, type ErrorType, Fault, isJsonObject, type JsonValue } from "../index.js";
import { type Exchange, OverLimit } from "./http/exchange.js";
import type { ServerErrorObject } from "./types.js";

function fault(type: ErrorType, server: string, delivered: boolean, reason: string, more: Details = {}): Fault {
  const { suggestions, cause, ...extra } = more;
  return new Fault(type, reason, {
    extra: { server, delivered, ...extra },
    ...(suggestions === undefined ? {} : { suggestions }),
    ...(cause === undefined ? {} : { cause }),
  });
}

interface Details {
  readonly suggestions?: readonly string[];
  readonly cause?: unknown;
  readonly [extra: string]: unknown;
}

/** Nothing was sent, so the same call may be made again. */
export function serverUnavailable(server: string, why: string, more?: Details): Fault {
  return fault("Unavailable", server, false, `server \`${server}\` is unavailable: ${why}`, more);
}

/** The connection broke. When the request was sent already, its effect is not known. */
export function lost(server: string, delivered: boolean, why: string, cause?: unknown): Fault {
  if (!delivered) return serverUnavailable(server, why, { cause });
  return fault("IoError", server, true, `server \`${server}\` was lost before it answered: ${why}`, {
    cause,
    suggestions: ["Find out whether the call had its effect before it is made again"],
  });
}

export function timedOut(server: string, method: string, name: string | undefined, timeoutMs: number): Fault {
  const what = name === undefined ? method : `\`${name}\``;
  return fault("ToolTimeout", server, true, `${what} was not answered by \`${server}\` within ${timeoutMs} ms`, {
    ...(name === undefined ? {} : { tool_name: name }),
    timeout_ms: timeoutMs,
    timedOut: true,
    suggestions: ["Ask for less at once", "Raise the tool's timeout", "Check the server behind the tool"],
  });
}

/** The server broke the rules of the protocol in its answer to this call. */
export function nonsense(server: string, why: string): Fault {
  return fault("ToolExecution", server, true, `server \`${server}\` answered nonsense: ${why}`, {
    suggestions: ["Look at the server's log", "Report it to the author of the server"],
  });
}

export function tooLarge(server: string, why: string, delivered: boolean): Fault {
  return fault("TooLarge", server, delivered, why, { suggestions: ["Ask for less at once", "Raise maxMessageBytes"] });
}

export function tooMany(server: string, why: string): Fault {
  return fault("TooMany", server, false, `server \`${server}\`: ${why}`, { suggestions: ["Try again later"] });
}

/** The JSON-RPC error with which a server refused what was asked, as the cause of a fault. */
export class ServerRefusal extends Error {
  readonly error: ServerErrorObject;

  constructor(error: ServerErrorObject) {
    super(error.message);
    this.error = error;
  }
}

/** True when the request certainly never reached the server. */
export function neverSent(error: unknown): boolean {
  return error instanceof Fault && error.detail.extra?.delivered === false;
}

export function asServerFault(server: string, error: unknown, delivered: boolean): Fault {
  return error instanceof Fault ? error : lost(server, delivered, (error as Error)?.message ?? String(error), error);
}

/** A JSON-RPC error in the body is the cause of the fault. */
export function faultOfStatus(server: string, exchange: Exchange): Fault {
  const fault = statusFault(server, exchange);
  const cause = refusalIn(exchange.body);
  return cause === undefined ? fault : new Fault(fault.type, fault.message, { ...fault.detail, cause });
}

function refusalIn(body: string | undefined): ServerRefusal | undefined {
  if (body === undefined || body === "") return undefined;
  try {
    const value = JSON.parse(body) as JsonValue;
    // Servers differ in what they put where the id would be; the response belongs to this request alone.
    const read = classify(isJsonObject(value) ? { ...value, id: null } : value);
    return read.kind === "response" && "error" in read.message ? new ServerRefusal(read.message.error) : undefined;
  } catch {
    return undefined;
  }
}

function statusFault(server: string, exchange: Exchange): Fault {
  const { status, headers } = exchange;
  const challenge = headers["www-authenticate"];
  if (status === 401 || status === 403) {
    return withStatus(
      serverUnavailable(server, `it does not accept our credentials (HTTP ${status})`, {
        ...(typeof challenge === "string" ? { wwwAuthenticate: challenge } : {}),
        suggestions: ["Check the credentials configured for this server"],
      }),
      status,
    );
  }
  if (status === 429 || status === 503) {
    const after = retryAfterMs(headers["retry-after"]);
    return withStatus(
      serverUnavailable(
        server,
        `it asks for a rest (HTTP ${status})`,
        after === undefined ? {} : { retry_after_ms: after },
      ),
      status,
    );
  }
  if (status >= 300 && status < 400) {
    const to = typeof headers.location === "string" ? headers.location.slice(0, 200) : "nowhere";
    return withStatus(nonsense(server, `it redirects to ${to}, which is not followed; configure that address`), status);
  }
  if (status >= 500) return withStatus(lost(server, true, `it answered HTTP ${status}`), status);
  if (status >= 400) return withStatus(nonsense(server, `HTTP ${status} without a JSON-RPC answer`), status);
  return withStatus(nonsense(server, `HTTP ${status} without an answer to the request`), status);
}

export function withStatus(fault: Fault, status: number): Fault {
  return new Fault(fault.type, fault.message, { ...fault.detail, extra: { ...fault.detail.extra, status } });
}

export function faultOfError(server: string, exchange: Exchange, error: Error): Fault {
  if (error instanceof OverLimit) return tooLarge(server, `server \`${server}\`: ${error.message}`, true);
  if (error instanceof Fault && error.type === "TooLarge") return tooLarge(server, error.message, true);
  if (error instanceof Fault && error.type === "ParseError") return nonsense(server, error.message);
  return asServerFault(server, error, exchange.started);
}

/** Seconds or a date. */
function retryAfterMs(value: string | string[] | undefined): number | undefined {
  if (typeof value !== "string") return undefined;
  if (/^\d{1,6}$/.test(value)) return Number(value) * 1_000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
