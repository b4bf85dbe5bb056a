// One side of a stream between two replicas. What is sent arrives in order and whole, or the stream ends; a side that
// sends nothing for some time has ended it.

import { type ByteBudget, Charge, Fault, isJsonObject, type JsonObject } from "../../mcp/index.js";

export interface StreamListener {
  onMessage(body: JsonObject): void;
  /** Once. Without a fault the other side has ended it and sent everything. */
  onEnd(fault: Fault | undefined): void;
}

export interface StreamTimes {
  /** For the first sign of the other side. */
  readonly answerMs: number;
  /** Between two signs of life. */
  readonly beatMs: number;
  /** A side that sends nothing for so long is gone. */
  readonly silenceMs: number;
}

const MAX_PENDING = 1_000;
/** One message of the largest size, and some more. */
const MAX_PENDING_CHARS = 5 * 1024 * 1024;

export class ReplicaStream {
  readonly #post: (message: JsonObject) => Promise<void>;
  readonly #listener: StreamListener;
  readonly #forget: () => void;
  readonly #times: StreamTimes;
  #pending: JsonObject[] = [];
  #pendingChars = 0;
  readonly #charge: Charge;
  #opening: JsonObject | undefined;
  #isBegun = false;
  #isPosting = false;
  #isEnding = false;
  #isOver = false;
  #beat: NodeJS.Timeout | undefined;
  #silence: NodeJS.Timeout;

  constructor(
    post: (message: JsonObject) => Promise<void>,
    listener: StreamListener,
    forget: () => void,
    times: StreamTimes,
    budget?: ByteBudget,
  ) {
    this.#charge = new Charge(budget);
    this.#post = post;
    this.#listener = listener;
    this.#forget = forget;
    this.#times = times;
    this.#silence = this.#expect(times.answerMs);
  }

  get isOver(): boolean {
    return this.#isOver || this.#isEnding;
  }

  begin(opening: JsonObject): void {
    if (this.#isOver) return;
    this.#isBegun = true;
    this.#opening = opening;
    this.#beat = setInterval(() => this.#flush(true), this.#times.beatMs);
    this.#beat.unref();
    this.#flush(true);
  }

  send(body: JsonObject): void {
    if (this.isOver) return;
    this.#pending.push(body);
    this.#pendingChars += JSON.stringify(body).length;
    const isOver = this.#pending.length > MAX_PENDING || this.#pendingChars > MAX_PENDING_CHARS;
    if (isOver || !this.#charge.set(2 * this.#pendingChars)) {
      return this.fail(new Fault("TooMany", "replica send buffer overflow"));
    }
    this.#flush();
  }

  /** After everything that was sent. This side gets no more messages. */
  end(): void {
    if (this.isOver) return;
    this.#isEnding = true;
    this.#flush();
  }

  /** A message of the other side. */
  receive({ bodies, end }: JsonObject): void {
    if (this.isOver) return;
    clearTimeout(this.#silence);
    this.#silence = this.#expect(this.#times.silenceMs);
    for (const body of Array.isArray(bodies) ? bodies : []) if (isJsonObject(body)) this.#listener.onMessage(body);
    if (end === true) this.#over(undefined);
  }

  fail(fault: Fault): void {
    this.#over(fault);
  }

  #expect(ms: number): NodeJS.Timeout {
    const gone = new Fault("Unavailable", "the other replica does not answer");
    return setTimeout(() => this.#over(gone), ms).unref();
  }

  #over(fault: Fault | undefined): void {
    if (this.#isOver) return;
    const wasEnding = this.#isEnding;
    this.#isOver = true;
    this.#charge.set(0);
    clearInterval(this.#beat);
    clearTimeout(this.#silence);
    this.#forget();
    if (!wasEnding) this.#listener.onEnd(fault);
  }

  /** What was queued while the last message was sent goes as one. */
  #flush(isBeat = false): void {
    if (!this.#isBegun || this.#isPosting || this.#isOver) return;
    if (!isBeat && this.#pending.length === 0 && !this.#isEnding) return;
    const message: JsonObject = { ...this.#opening, bodies: this.#pending, ...(this.#isEnding ? { end: true } : {}) };
    const isLast = this.#isEnding;
    this.#opening = undefined;
    this.#pending = [];
    this.#pendingChars = 0;
    this.#isPosting = true;
    this.#post(message).then(
      () => {
        this.#isPosting = false;
        this.#charge.set(2 * this.#pendingChars);
        if (isLast) this.#over(undefined);
        else this.#flush();
      },
      (cause: unknown) => {
        this.#isPosting = false;
        this.#over(new Fault("Unavailable", "the other replica cannot be reached at the moment", { cause }));
      },
    );
  }
}
