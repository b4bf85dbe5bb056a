// What a caller may read of a failure to reach a server. Where it is, how it is started and which secrets it uses are the
// operator's affair: that text goes to the log, under the trace id.

import { type ErrorType, Fault } from "../mcp/index.js";

/** Texts about reaching a server, whatever they name. */
const PHRASES = /cannot be (reached|started)|may not be reached|redirects|no such program|getaddrinfo|spawn /i;
/** URLs, IPv4 and IPv6 addresses, `host:port`, and absolute or home paths. */
const PLACES =
  /:\/\/|\b\d{1,3}(\.\d{1,3}){3}\b|\[[0-9a-f:.]*:[0-9a-f:.]*\]|\b[0-9a-f]*::[0-9a-f:.]*|[\w.-]+:\d{2,5}\b|(^|[\s`'"(=])(~?\/|[A-Za-z]:\\)[\w.@-]/i;
const HINT = "the operator finds the reason in the log under the trace id";

export function callerFault(server: string, error: unknown): Fault {
  if (!(error instanceof Fault)) {
    const operator = error instanceof Error ? error.message : String(error);
    return new Fault("Unavailable", `server \`${server}\` cannot be used: ${HINT}`, {
      operator,
      cause: error,
      extra: { server, delivered: false },
    });
  }
  const { type, message, detail } = error;
  // The server's own words are an answer like any other, and obligations apply to them.
  if (detail.downstream !== undefined) return error;
  const { wwwAuthenticate, ...extra } = detail.extra ?? {};
  const isRevealing = reveals(message);
  if (!isRevealing && wwwAuthenticate === undefined && !detail.suggestions?.some(reveals)) return error;
  return new Fault(type, isRevealing ? wording(type, server) : message, {
    ...detail,
    extra,
    operator: [message, wwwAuthenticate].filter((text) => typeof text === "string").join("; "),
    ...(detail.suggestions === undefined ? {} : { suggestions: detail.suggestions.filter((text) => !reveals(text)) }),
  });
}

function reveals(text: string): boolean {
  return PHRASES.test(text) || PLACES.test(text);
}

function wording(type: ErrorType, server: string): string {
  switch (type) {
    case "Unavailable":
      return `server \`${server}\` is unavailable: ${HINT}`;
    case "IoError":
      return `server \`${server}\` was lost before it answered: ${HINT}`;
    case "PolicyDeny":
      return `server \`${server}\` may not be reached from here: ${HINT}`;
    default:
      return `server \`${server}\` failed: ${HINT}`;
  }
}
