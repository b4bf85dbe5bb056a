// What an HTTP status without a JSON-RPC answer means.

import { classify, Fault, isJsonObject, type JsonValue } from "../../index.js";
import { ServerRefusal, asServerFault, lost, nonsense, tooLarge, serverUnavailable } from "../faults.js";
import { type Exchange, OverLimit } from "./exchange.js";

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
