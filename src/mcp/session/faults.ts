// What can go wrong between us and a server, in words for whoever called.

import { type ErrorType, Fault } from "../index.js";
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

/** The connection broke. When the request was on its way already, nobody knows what became of it. */
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
    suggestions: ["Look at the server's log", "Report it to whoever makes the server"],
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
