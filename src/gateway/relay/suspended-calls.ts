// An upstream server of the older revisions sends requests while its call runs; a 2026-07-28 client gets them by the end of
// the exchange. In between the call is suspended: it continues when the client returns with the answers, or ends after a
// timeout.

import { randomBytes } from "node:crypto";
import { type ByteBudget, Charge, Fault, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { InputRequest, LogLevel } from "../../mcp/server/index.js";
import { Cancel } from "../../pipeline/index.js";
import type { UpstreamAnswer } from "../../upstream/index.js";

interface OpenRequest {
  readonly key: string;
  readonly request: InputRequest;
  readonly resolve: (answer: JsonObject) => void;
  readonly reject: (fault: Fault) => void;
}

/** The result of one round of the call: the answer, or requests to the client. */
export type SuspendedTurn =
  | { readonly answer: UpstreamAnswer }
  | { readonly requests: Readonly<Record<string, InputRequest>>; readonly id: string };

/** Where the progress of a call goes while it runs: its round here, or one at another replica. */
export interface RoundOutput {
  relayProgress(params: JsonObject): void;
  log(level: LogLevel, data: JsonValue, logger?: string): void;
  onStop(listener: (fault: Fault) => void): void;
}

const MAX_SUSPENDED = 1_000;
const MAX_REQUESTS = 64;
/** What a suspended call costs besides its texts. */
const CALL_BYTES = 8 * 1024;

/** One downstream call that may take several rounds with the client. */
export class SuspendedExchange {
  readonly cancel = new Cancel();
  readonly #requests = new Map<string, OpenRequest>();
  #output: RoundOutput | undefined;
  #running: Promise<UpstreamAnswer> | undefined;
  #asked: (() => void) | undefined;
  #count = 0;
  readonly #bytes: number;
  #charge: Charge;

  /** `bytes` of the call are kept while it waits for its client, at the expense of `budget`. */
  constructor(bytes = 0, budget?: ByteBudget) {
    this.#bytes = bytes;
    this.#charge = new Charge(budget);
  }

  /** False when its caller keeps too much already. */
  suspend(): boolean {
    const requests = [...this.#requests.values()].map(({ request }) => 2 * JSON.stringify(request).length);
    return this.#charge.set(CALL_BYTES + this.#bytes + requests.reduce((sum, each) => sum + each, 0));
  }

  resume(): void {
    this.#charge.set(0);
  }

  get output(): RoundOutput | undefined {
    return this.#output;
  }

  begin(request: () => Promise<UpstreamAnswer>): void {
    this.#running = request();
    // `next` reports the failure; a call that ends while it is suspended has no reader yet.
    this.#running.catch(() => {});
  }

  /** The current round of the call: it gets the progress, and its cancellation ends the call. */
  attach(output: RoundOutput): void {
    this.#output = output;
    output.onStop((fault) => {
      if (this.#output === output) this.cancel.abort(fault);
    });
  }

  ask(method: InputRequest["method"], params: JsonObject): Promise<JsonObject> {
    if (this.#requests.size >= MAX_REQUESTS) {
      return Promise.reject(new Fault("TooMany", `${MAX_REQUESTS} requests of one call are already open`));
    }
    const key = `q${this.#count++}`;
    return new Promise((resolve, reject) => {
      this.#requests.set(key, { key, request: { method, params } as InputRequest, resolve, reject });
      this.#asked?.();
    });
  }

  /** Answers of the client; a request without an answer stays open. */
  take(responses: Readonly<Record<string, JsonObject>>): void {
    for (const [key, answer] of Object.entries(responses)) {
      this.#requests.get(key)?.resolve(answer);
      this.#requests.delete(key);
    }
  }

  /** Until the server answers, or sends a request that has no answer yet. */
  async next(id: string): Promise<SuspendedTurn> {
    const running = this.#running as Promise<UpstreamAnswer>;
    if (this.#requests.size === 0) {
      const asked = new Promise<undefined>((resolve) => {
        this.#asked = () => resolve(undefined);
      });
      const answer = await Promise.race([running, asked]);
      this.#asked = undefined;
      if (answer) {
        this.#rejectRequests(new Fault("Cancelled", "the call has ended"));
        return { answer };
      }
    }
    this.#output = undefined;
    const requests = Object.fromEntries([...this.#requests.values()].map(({ key, request }) => [key, request]));
    return { requests, id };
  }

  end(fault: Fault): void {
    this.resume();
    this.cancel.abort(fault);
    this.#rejectRequests(fault);
  }

  #rejectRequests(fault: Fault): void {
    for (const request of this.#requests.values()) request.reject(fault);
    this.#requests.clear();
  }
}

/** Calls that wait for their client, bounded in number and time. */
export class SuspendedCalls {
  readonly #exchanges = new Map<string, { exchange: SuspendedExchange; timer: NodeJS.Timeout }>();
  readonly #ttlMs: number;
  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  newId(): string {
    return randomBytes(12).toString("base64url");
  }

  put(id: string, exchange: SuspendedExchange): void {
    if (this.#exchanges.size >= MAX_SUSPENDED || !exchange.suspend()) {
      exchange.end(new Fault("TooMany", "too many calls wait for their clients"));
      throw new Fault("TooMany", "too many calls already wait for answers of their clients; answer or cancel some");
    }
    const timer = setTimeout(() => {
      this.#exchanges.delete(id);
      exchange.end(
        new Fault("ToolTimeout", `the client did not answer the request of the server within ${this.#ttlMs} ms`, {
          extra: { timeout_ms: this.#ttlMs, timedOut: true },
          suggestions: ["Repeat the call when a user can answer"],
        }),
      );
    }, this.#ttlMs);
    timer.unref();
    this.#exchanges.set(id, { exchange, timer });
  }

  /** Once: the encrypted state that names the call is the proof of the right to continue it. */
  take(id: string): SuspendedExchange {
    const found = this.#exchanges.get(id);
    if (!found) throw callIsOver();
    this.#exchanges.delete(id);
    clearTimeout(found.timer);
    found.exchange.resume();
    return found.exchange;
  }

  endAll(): void {
    for (const { exchange, timer } of this.#exchanges.values()) {
      clearTimeout(timer);
      exchange.end(new Fault("Cancelled", "the gateway is stopping"));
    }
    this.#exchanges.clear();
  }
}

export function callIsOver(cause?: unknown): Fault {
  return new Fault("InvalidParams", "the call that sent the requests is over; begin it again", {
    field: "requestState",
    ...(cause === undefined ? {} : { cause }),
  });
}
