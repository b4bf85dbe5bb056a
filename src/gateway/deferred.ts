// A connection whose settings are still being read (secrets come from the store). To everyone else it is there already.

import { asFault } from "../mcp/index.js";
import type { Upstream, UpstreamAnswer, UpstreamCall, UpstreamHealth } from "../upstream/index.js";
import { callerFault } from "./caller-fault.js";

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
  containment: undefined,
  sandbox: undefined,
};

/** Called after each request; `error` is "" when the server returned a result. */
export type ObserveRequest = (method: string, seconds: number, error: string) => void;

/** `hide` takes out of a text what nobody may read. */
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
    throw callerFault(name, error);
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
        lastError: lastError && { ...lastError, message: hide(lastError.message) },
      };
    },
    close: async () => {
      isClosed = true;
      await making?.catch(() => {});
      await made?.close();
    },
  };
}
