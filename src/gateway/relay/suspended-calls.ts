// A downstream server of the older revisions asks while its call runs; a 2026-07-28 client is asked by ending the
// exchange. In between the call is parked: it goes on when the client comes back with the answers, or ends when
// nobody does.

import { randomBytes } from "node:crypto";
import { type ByteBudget, Charge, Fault, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { InputRequest, LogLevel } from "../../mcp/server/index.js";
import { Cancel } from "../../pipeline/index.js";
import type { UpstreamAnswer } from "../../upstream/index.js";

interface Question {
  readonly key: string;
  readonly request: InputRequest;
  readonly resolve: (answer: JsonObject) => void;
  readonly reject: (fault: Fault) => void;
}

/** What a round of the call comes to: the answer, or questions. */
export type SuspendedTurn =
  | { readonly answer: UpstreamAnswer }
  | { readonly questions: Readonly<Record<string, InputRequest>>; readonly id: string };

/** Who speaks for a call while it runs: its round here, or one at another replica. */
export interface Speaker {
  relayProgress(params: JsonObject): void;
  log(level: LogLevel, data: JsonValue, logger?: string): void;
  onStop(listener: (fault: Fault) => void): void;
}

const MAX_PARKED = 1_000;
const MAX_QUESTIONS = 64;
/** What a suspended call costs besides its texts. */
const CALL_BYTES = 8 * 1024;

/** One downstream call that may take several rounds with the client. */
export class SuspendedExchange {
  readonly cancel = new Cancel();
  readonly #questions = new Map<string, Question>();
  #speaker: Speaker | undefined;
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
    const questions = [...this.#questions.values()].map(({ request }) => 2 * JSON.stringify(request).length);
    return this.#charge.set(CALL_BYTES + this.#bytes + questions.reduce((sum, each) => sum + each, 0));
  }

  resume(): void {
    this.#charge.set(0);
  }

  get speaker(): Speaker | undefined {
    return this.#speaker;
  }

  begin(request: () => Promise<UpstreamAnswer>): void {
    this.#running = request();
    // Heard by whoever waits in `next`; a call that ends while it is parked has nobody yet.
    this.#running.catch(() => {});
  }

  /** The round that is under way speaks for the call: its progress, its cancellation. */
  attach(speaker: Speaker): void {
    this.#speaker = speaker;
    speaker.onStop((fault) => {
      if (this.#speaker === speaker) this.cancel.abort(fault);
    });
  }

  ask(method: InputRequest["method"], params: JsonObject): Promise<JsonObject> {
    if (this.#questions.size >= MAX_QUESTIONS) {
      return Promise.reject(new Fault("TooMany", `${MAX_QUESTIONS} questions of one call are already open`));
    }
    const key = `q${this.#count++}`;
    return new Promise((resolve, reject) => {
      this.#questions.set(key, { key, request: { method, params } as InputRequest, resolve, reject });
      this.#asked?.();
    });
  }

  /** Answers of the client to what was asked; a question that got none stays open. */
  take(responses: Readonly<Record<string, JsonObject>>): void {
    for (const [key, answer] of Object.entries(responses)) {
      this.#questions.get(key)?.resolve(answer);
      this.#questions.delete(key);
    }
  }

  /** Until the server answers, or asks something that nobody has answered. */
  async next(id: string): Promise<SuspendedTurn> {
    const running = this.#running as Promise<UpstreamAnswer>;
    if (this.#questions.size === 0) {
      const asked = new Promise<undefined>((resolve) => {
        this.#asked = () => resolve(undefined);
      });
      const answer = await Promise.race([running, asked]);
      this.#asked = undefined;
      if (answer) return { answer };
    }
    this.#speaker = undefined;
    const questions = Object.fromEntries([...this.#questions.values()].map(({ key, request }) => [key, request]));
    return { questions, id };
  }

  end(fault: Fault): void {
    this.resume();
    this.cancel.abort(fault);
    for (const question of this.#questions.values()) question.reject(fault);
    this.#questions.clear();
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
    if (this.#exchanges.size >= MAX_PARKED || !exchange.suspend()) {
      exchange.end(new Fault("TooMany", "too many calls wait for their clients"));
      throw new Fault("TooMany", "too many calls already wait for answers of their clients; answer or cancel some");
    }
    const timer = setTimeout(() => {
      this.#exchanges.delete(id);
      exchange.end(
        new Fault("ToolTimeout", `nobody answered the server's question within ${this.#ttlMs} ms`, {
          extra: { timeout_ms: this.#ttlMs, timedOut: true },
          suggestions: ["Repeat the call when somebody can answer"],
        }),
      );
    }, this.#ttlMs);
    timer.unref();
    this.#exchanges.set(id, { exchange, timer });
  }

  /** Once: the call goes on with whoever takes it, whose right to it was sealed into the state it brought. */
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
  return new Fault("InvalidParams", "the call that asked is over; begin it again", {
    field: "requestState",
    ...(cause === undefined ? {} : { cause }),
  });
}
