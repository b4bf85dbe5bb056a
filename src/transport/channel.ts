// The serving side of a lasting connection: texts in, answers out, and what is under way between the two.

import { type ByteBudget, Charge } from "../protocol/index.js";
import { HEAD_BYTES, headOf } from "./bytes.js";
import type { Evictable } from "./connections.js";
import { IN_FLIGHT_BYTES, type ResolvedLimits } from "./limits.js";
import { Outbox, type Port } from "./outbox.js";
import type { Admission, Channel, Handler, Malformed, Peer, Reply } from "./types.js";

/** How long a closed connection may take to hand over its last bytes. */
const FLUSH_MS = 2_000;

export class ServerChannel implements Channel, Evictable {
  readonly peer: Peer;
  closed = false;
  /** What the peer may send now. */
  maxBytes: number;
  /** Called when that changes. */
  onAdmitted: (budget: ByteBudget | undefined) => void = () => {};
  onSweep: (now: number) => void = () => {};
  /** Called when a message of an admitted peer has arrived whole. */
  onMessage: () => void = () => {};
  #admission: Admission = {};
  readonly #handler: Handler;
  readonly #limits: ResolvedLimits;
  readonly #port: Port;
  readonly #outbox: Outbox;
  readonly #underWay = new Set<ChannelReply>();
  #closeListeners: (() => void)[] = [];
  #closeWhenQuiet = false;
  #activeAt = Date.now();
  #lastWaiting = 0;
  #movedAt = 0;

  constructor(peer: Peer, port: Port, handler: Handler, limits: ResolvedLimits) {
    this.peer = peer;
    this.#handler = handler;
    this.#limits = limits;
    this.maxBytes = limits.maxMessageBytes;
    this.#port = port;
    this.#outbox = new Outbox(
      port,
      limits,
      () => this.cut(),
      () => port.resume(),
    );
  }

  get address(): string {
    return this.peer.address;
  }

  /** What is known of the peer when it connects. */
  admit(admission: Admission): void {
    const { maxMessageBytes } = this.#limits;
    this.#admission = admission;
    this.maxBytes = Math.min(maxMessageBytes, admission.maxBytes ?? maxMessageBytes);
    if (admission.budget) this.#outbox.chargeTo(admission.budget);
    this.onAdmitted(admission.budget);
  }

  authenticated(budget?: ByteBudget): void {
    if (this.#admission.fault === undefined && this.#admission.budget === budget) return;
    this.admit(budget === undefined ? {} : { budget });
    this.onMessage();
  }

  get busy(): boolean {
    return this.#underWay.size > 0;
  }

  /** At once: a peer that is slow to say goodbye would still take the room. */
  evict(): void {
    this.cut();
  }

  send(text: string | Buffer): boolean {
    this.#activeAt = Date.now();
    const more = this.#outbox.send(text);
    // Who does not take answers gets no more work done. (Only the serving side does this: if both did, two slow
    // readers would wait for each other for ever.)
    if (!more && !this.closed) this.#port.pause();
    return more;
  }

  drained(): Promise<void> {
    return this.#outbox.drained();
  }

  close(reason?: string): void {
    if (this.closed) return;
    this.#port.end(reason);
    setTimeout(() => this.#port.destroy(), FLUSH_MS).unref();
    this.gone();
  }

  /** Closes at once; what is waiting is lost. */
  cut(): void {
    this.#port.destroy();
    this.gone();
  }

  /** Closes when nothing is under way any more. */
  closeWhenQuiet(): void {
    this.#closeWhenQuiet = true;
    if (this.#underWay.size === 0) this.close();
  }

  onClose(listener: () => void): void {
    if (this.closed) listener();
    else this.#closeListeners.push(listener);
  }

  /** The connection is gone, whoever ended it. */
  gone(): void {
    if (this.closed) return;
    this.closed = true;
    this.#outbox.close();
    for (const reply of this.#underWay) reply.abort();
    this.#underWay.clear();
    const listeners = this.#closeListeners;
    this.#closeListeners = [];
    for (const listener of listeners) listener();
  }

  /** A text arrived. */
  receive(text: string): void {
    if (this.closed) return;
    const reply = this.#begin();
    if (this.#admission.fault === undefined) this.onMessage();
    try {
      const { budget } = this.#admission;
      if (budget && !reply.hold(budget, IN_FLIGHT_BYTES + 2 * text.length)) return this.#tooBusy(reply, text);
      this.#handler.message({ text, peer: this.peer, channel: this, reply });
    } catch (error) {
      this.#broken(error);
    }
  }

  /** Something arrived that is no text; a handler that does not care leaves the peer without an answer, so it goes. */
  receiveMalformed(problem: Malformed): void {
    if (this.closed) return;
    const { refuse } = this.#admission;
    if (problem.kind === "too-large" && refuse) return refuse(this.#begin());
    if (this.#handler.malformed === undefined) {
      this.close(problem.message);
      return;
    }
    try {
      this.#handler.malformed(problem, this.peer, this.#begin());
    } catch (error) {
      this.#broken(error);
    }
  }

  /** Called now and then: closes the connection when it is idle, cuts it off when the peer takes nothing any more. */
  sweep(now: number): void {
    if (this.closed) return;
    this.onSweep(now);
    if (this.closed || this.#limits.idleMs === 0) return;
    const { waiting } = this.#port;
    if (waiting === 0 || waiting !== this.#lastWaiting) {
      this.#lastWaiting = waiting;
      this.#movedAt = now;
    }
    if (now - this.#movedAt >= this.#limits.idleMs) this.cut();
    else if (this.#underWay.size === 0 && now - this.#activeAt >= this.#limits.idleMs) this.close("idle");
  }

  settle(reply: ChannelReply): void {
    this.#underWay.delete(reply);
    this.#activeAt = Date.now();
    if (this.#closeWhenQuiet && this.#underWay.size === 0) this.close();
  }

  #begin(): ChannelReply {
    this.#activeAt = Date.now();
    const reply = new ChannelReply(this);
    this.#underWay.add(reply);
    return reply;
  }

  #tooBusy(reply: ChannelReply, text: string): void {
    const message = "too many unanswered messages at once; send this one again later";
    const head = headOf(Buffer.from(text.slice(0, HEAD_BYTES)));
    if (this.#handler.malformed) this.#handler.malformed({ kind: "too-many", message, head }, this.peer, reply);
    else this.close(message);
  }

  /** A handler that throws breaks its own invariant; that costs this peer its connection, nobody else anything. */
  #broken(error: unknown): void {
    process.emitWarning(error instanceof Error ? error : String(error));
    this.close("internal error");
  }
}

class ChannelReply implements Reply {
  ended = false;
  #charge: Charge | undefined;
  readonly #channel: ServerChannel;
  #aborted = false;
  #abortListeners: (() => void)[] = [];

  constructor(channel: ServerChannel) {
    this.#channel = channel;
  }

  /** Charges the message until it is answered. */
  hold(budget: ByteBudget, bytes: number): boolean {
    this.#charge = new Charge(budget);
    return this.#charge.set(bytes);
  }

  send(text: string): boolean {
    return this.ended ? false : this.#channel.send(text);
  }

  drained(): Promise<void> {
    return this.#channel.drained();
  }

  end(text?: string | Buffer): void {
    if (this.ended) return;
    if (text !== undefined) this.#channel.send(text);
    this.ended = true;
    this.#charge?.set(0);
    this.#channel.settle(this);
  }

  open(): void {}

  onAbort(listener: () => void): void {
    if (this.#aborted) listener();
    else if (!this.ended) this.#abortListeners.push(listener);
  }

  abort(): void {
    if (this.ended) return;
    this.ended = true;
    this.#charge?.set(0);
    this.#aborted = true;
    const listeners = this.#abortListeners;
    this.#abortListeners = [];
    for (const listener of listeners) listener();
  }
}
