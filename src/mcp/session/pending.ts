// One call at a server, from the moment it is sent until there is exactly one end to it: an answer, a failure, the
// caller's change of mind, or the clock.

import type { Fault, JsonObject } from "../index.js";
import { nonsense, timedOut } from "./faults.js";
import type { SessionAnswer, SessionCall, SessionContext } from "./types.js";

/** `gaveUp` says why the answer is not awaited any more; undefined when it came, or never will. */
export type OnOver = (pending: PendingRequest, gaveUp: string | undefined) => void;

export class PendingRequest {
  readonly id: number;
  readonly call: SessionCall;
  readonly settled: Promise<SessionAnswer>;
  /** The request may have reached the server. */
  delivered = false;
  over = false;
  /** HTTP: the exchange that the answer comes in. */
  exchange: { abort(): void; readonly status?: number } | undefined = undefined;
  /** Questions of the server that wait for their answer, and all that there were. */
  questions = 0;
  asked = 0;
  readonly #around: SessionContext;
  readonly #onOver: OnOver;
  #resolve!: (answer: SessionAnswer) => void;
  #reject!: (fault: Fault) => void;
  #timer: NodeJS.Timeout | undefined;
  #leftMs: number;
  #since = 0;
  readonly #until: number;
  #messages: ByteRate | undefined;

  constructor(id: number, call: SessionCall, around: SessionContext, onOver: OnOver) {
    this.id = id;
    this.call = call;
    this.#around = around;
    this.#onOver = onOver;
    this.#leftMs = call.timeoutMs;
    this.settled = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (call.timeoutMs > 0) this.#timer = setTimeout(onTimeout, call.timeoutMs, this);
    if (call.timeoutMs > 0) this.#since = performance.now();
    this.#until = call.totalMs === undefined ? 0 : this.#since + call.totalMs;
    call.cancel?.onAbort((fault) => this.stop(fault));
  }

  answer(answer: SessionAnswer): void {
    if (this.#end(undefined)) this.#resolve(answer);
  }

  fail(fault: Fault): void {
    if (this.#end(undefined)) this.#reject(fault);
  }

  /** The answer is not awaited any more: the server is notified, and what it still sends is dropped. */
  stop(fault: Fault): void {
    if (this.#end(fault.message)) this.#reject(fault);
  }

  expire(): void {
    const { method, name, timeoutMs } = this.call;
    this.stop(timedOut(this.#around.server, method, name, timeoutMs));
  }

  progress(params: JsonObject): void {
    const hook = this.call.hooks?.progress;
    if (!this.#counted(hook !== undefined)) return;
    if (this.#until > 0) this.#restart();
    const { progressToken: _, ...rest } = params;
    hook?.(rest);
  }

  log(params: JsonObject): void {
    const hook = this.call.hooks?.log;
    if (this.#counted(hook !== undefined)) hook?.(params);
  }

  /** A call may be talked about only so much. */
  counted(): boolean {
    return this.#counted(true);
  }

  /** The server waits for us, so its clock stands still. */
  pause(): void {
    this.asked++;
    if (this.questions++ > 0 || this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#leftMs = Math.max(1, this.#leftMs - (performance.now() - this.#since));
  }

  resume(): void {
    if (--this.questions > 0 || this.over || this.call.timeoutMs === 0) return;
    this.#since = performance.now();
    this.#timer = setTimeout(onTimeout, this.#leftMs, this);
  }

  #restart(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#since = performance.now();
    this.#leftMs = Math.max(1, Math.min(this.call.timeoutMs, this.#until - this.#since));
    this.#timer = setTimeout(onTimeout, this.#leftMs, this);
  }

  #counted(wanted: boolean): boolean {
    if (this.over) return false;
    if (!wanted) this.#around.counts.refusedMessages++;
    const { maxMessagesPerCall } = this.#around.limits;
    this.#messages ??= new ByteRate(maxMessagesPerCall);
    if (this.#messages.take()) return wanted;
    this.stop(nonsense(this.#around.server, `more than ${maxMessagesPerCall} messages in ten seconds for one call`));
    return false;
  }

  #end(gaveUp: string | undefined): boolean {
    if (this.over) return false;
    this.over = true;
    clearTimeout(this.#timer);
    this.#onOver(this, gaveUp);
    return true;
  }
}

function onTimeout(pending: PendingRequest): void {
  pending.expire();
}

export class PendingTable {
  readonly #slots: (PendingRequest | undefined)[];
  readonly #mask: number;
  #lastId = 0;
  #size = 0;

  constructor(atLeast: number) {
    const capacity = 2 ** Math.ceil(Math.log2(atLeast));
    this.#slots = Array.from({ length: capacity }, () => undefined);
    this.#mask = capacity - 1;
  }

  get size(): number {
    return this.#size;
  }

  /** An id that was never used before; undefined when there is no room. One after the other, so that they stay short. */
  nextId(): number | undefined {
    if (this.#size > this.#mask) return undefined;
    // A call that takes long keeps its place, and the ids that would fall on it are left out.
    do this.#lastId++;
    while (this.#slots[this.#lastId & this.#mask] !== undefined);
    return this.#lastId;
  }

  add(pending: PendingRequest): void {
    this.#slots[pending.id & this.#mask] = pending;
    this.#size++;
  }

  get(id: unknown): PendingRequest | undefined {
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) return undefined;
    const found = this.#slots[id % (this.#mask + 1)];
    return found?.id === id ? found : undefined;
  }

  /** False when it was not there. */
  remove(pending: PendingRequest): boolean {
    const slot = pending.id & this.#mask;
    if (this.#slots[slot] !== pending) return false;
    this.#slots[slot] = undefined;
    this.#size--;
    return true;
  }

  *[Symbol.iterator](): Generator<PendingRequest> {
    for (const pending of this.#slots) if (pending !== undefined) yield pending;
  }
}

const WINDOW_MS = 10_000;

export class ByteRate {
  readonly #max: number;
  #count = 0;
  #since = Number.NEGATIVE_INFINITY;

  constructor(max: number) {
    this.#max = max;
  }

  /** False when this is one too many. */
  take(): boolean {
    const now = performance.now();
    if (now - this.#since > WINDOW_MS) {
      this.#since = now;
      this.#count = 0;
    }
    return ++this.#count <= this.#max;
  }
}
