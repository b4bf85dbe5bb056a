// `deferredUpstream` is a connection whose settings are still being read (secrets come from the store), and what a caller
// may read of a failure to reach its server: addresses, commands and secrets are for the log, under the trace id.

import { asFault, type ErrorType, Fault } from "../mcp/index.js";
import type { Upstream, UpstreamAnswer, UpstreamCall, UpstreamHealth } from "../upstream/index.js";

const NOT_YET: UpstreamHealth = {
  state: "idle",
  transport: "stdio",
  revision: undefined,
  circuit: "closed",
  retryAt: undefined,
  inFlight: 0,
  queued: 0,
  counts: {
    calls: 0,
    results: 0,
    errors: 0,
    failures: 0,
    timeouts: 0,
    cancelled: 0,
    refused: 0,
    strayAnswers: 0,
    malformed: 0,
    refusedMessages: 0,
  },
  restarts: 0,
  lastError: undefined,
  stderr: "",
  pid: undefined,
  exit: undefined,
  containment: undefined,
  sandbox: undefined,
};

/** Called after each request; `error` is "" when the server returned a result. */
export type ObserveRequest = (method: string, seconds: number, error: string) => void;

/** `hide` removes secrets from a text. */
export function deferredUpstream(
  name: string,
  make: () => Promise<Upstream>,
  hide: (text: string) => string = (text) => text,
  observe: ObserveRequest = () => {},
): Upstream {
  let made: Upstream | undefined;
  let failure: Error | undefined;
  let making: Promise<Upstream> | undefined;
  let isClosed = false;
  const listeners = new Set<Parameters<Upstream["onChange"]>[0]>();
  const ready = (): Promise<Upstream> => {
    if (made) return Promise.resolve(made);
    making ??= make()
      .then((upstream) => {
        made = upstream;
        upstream.onChange((change) => {
          for (const listener of listeners) listener(change);
        });
        return upstream;
      })
      .catch((error: Error) => {
        // A secret that is missing now may be there at the next try.
        making = undefined;
        failure = error;
        throw error;
      });
    return making;
  };
  const forCaller = (error: unknown): never => {
    throw callerFault(name, error, hide);
  };
  const request = (call: UpstreamCall): Promise<UpstreamAnswer> => {
    const startedAt = performance.now();
    const end = (error: string): void => observe(call.method, (performance.now() - startedAt) / 1_000, error);
    return (made ? made.request(call) : ready().then((upstream) => upstream.request(call))).then(
      (answer) => {
        end(answer.kind === "error" ? "jsonrpc" : "");
        return answer;
      },
      (error: unknown) => {
        end(asFault(error).type);
        return forCaller(error);
      },
    );
  };
  return {
    name,
    get state() {
      return isClosed ? "stopped" : (made?.state ?? (failure ? "failed" : "idle"));
    },
    get revision() {
      return made?.revision;
    },
    start: () =>
      ready()
        .then((upstream) => upstream.start())
        .catch(forCaller),
    catalogue: () =>
      ready()
        .then((upstream) => upstream.catalogue())
        .catch(forCaller),
    request,
    watch: (uri) =>
      ready()
        .then((upstream) => upstream.watch(uri))
        .catch(forCaller),
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    health: () => {
      const health = made?.health() ?? {
        ...NOT_YET,
        ...(making ? { state: "starting" as const } : {}),
        ...(failure ? { state: "failed" as const, lastError: { at: Date.now(), message: failure.message } } : {}),
      };
      const { lastError, stderr } = health;
      return {
        ...health,
        stderr: hide(stderr),
        lastError: lastError && {
          ...lastError,
          message: hide(lastError.message),
          ...(lastError.cause === undefined ? {} : { cause: hide(lastError.cause) }),
        },
      };
    },
    close: async () => {
      isClosed = true;
      await making?.catch(() => {});
      await made?.close();
    },
  };
}

/** Texts about reaching a server, whatever they name. */
const PHRASES = /cannot be (reached|started)|may not be reached|redirects|no such program|getaddrinfo|spawn /i;
/** URLs, IPv4 and IPv6 addresses, `host:port`, and absolute or home paths. */
const ADDRESSES =
  /:\/\/|\b\d{1,3}(\.\d{1,3}){3}\b|\[[0-9a-f:.]*:[0-9a-f:.]*\]|\b[0-9a-f]*::[0-9a-f:.]*|[\w.-]+:\d{2,5}\b|(^|[\s`'"(=])(~?\/|[A-Za-z]:\\)[\w.@-]/i;
const HINT = "the operator finds the reason in the log under the trace id";

export function callerFault(server: string, error: unknown, hide = (text: string): string => text): Fault {
  if (!(error instanceof Fault)) {
    const operator = error instanceof Error ? error.message : String(error);
    return new Fault("Unavailable", `server \`${server}\` cannot be used: ${HINT}`, {
      operator,
      cause: error,
      extra: { server, delivered: false },
    });
  }
  const { type, message, detail } = error;
  // The server's own error is an answer like any other, and obligations apply to it.
  if (detail.downstream !== undefined) return error;
  const { wwwAuthenticate, ...extra } = detail.extra ?? {};
  const isRevealing = reveals(message);
  const { operator = message } = detail;
  if (!isRevealing && wwwAuthenticate === undefined && !detail.suggestions?.some(reveals)) {
    return detail.operator === undefined ? error : new Fault(type, message, { ...detail, operator: hide(operator) });
  }
  return new Fault(type, isRevealing ? callerText(type, server) : message, {
    ...detail,
    extra,
    operator: hide([operator, wwwAuthenticate].filter((text) => typeof text === "string").join("; ")),
    ...(detail.suggestions === undefined ? {} : { suggestions: detail.suggestions.filter((text) => !reveals(text)) }),
  });
}

function reveals(text: string): boolean {
  return PHRASES.test(text) || ADDRESSES.test(text);
}

function callerText(type: ErrorType, server: string): string {
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
