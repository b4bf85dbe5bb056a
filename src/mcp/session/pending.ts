// One call at a server, from the moment it is sent until there is exactly one end to it: an answer, a failure, the
// caller's change of mind, or the clock.

import type { Fault, JsonObject } from "../index.js";
import { nonsense, timedOut } from "./faults.js";
import { ByteRate } from "./rate.js";
import type { SessionAnswer, SessionCall, SessionContext } from "./types.js";

/** `gaveUp` says why nobody waits for the answer any more; undefined when it came, or never will. */
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
  /** Questions of the server that wait for their answer. */
  questions = 0;
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

  /** Nobody waits any more: the server is to be told, and what it still says is dropped. */
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
