// The serving side of a lasting connection: texts in, answers out, and what is under way between the two.

import { type ByteBudget, Charge } from "../index.js";
import { HEAD_BYTES, headOf } from "./bytes.js";
import { ConnectionFlow, type Evictable } from "./connections.js";
import { Outbox, type Port } from "./outbox.js";
import {
  type Admission,
  type CallerFlow,
  type Channel,
  IN_FLIGHT_BYTES,
  type Malformed,
  type Peer,
  type Reply,
  type ResolvedLimits,
  type TransportHandler,
} from "./types.js";

/** How long a closed connection may take to hand over its last bytes. */
const FLUSH_MS = 2_000;
/** Messages of one connection that are handled in one turn of the event loop: one read may hold thousands. */
const PER_TURN = 16;
/** A message counts once more for each of these. */
const CHARS_PER_SHARE = 4_096;
/** What a message that waits for a later turn costs besides its text. */
const WAITING_BYTES = 256;
/** So many may wait although their budget is used up; a peer that sends more is cut off. */
const MAX_UNCHARGED = 64;
/** After a message that was refused because a budget is used up, the next ones wait this long. */
const BUSY_PAUSE_MS = 100;
/** Refused messages after which a caller that is not authenticated is disconnected. */
const MAX_ANONYMOUS_REFUSALS = 16;

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
  readonly #handler: TransportHandler;
  readonly #limits: ResolvedLimits;
  readonly #port: Port;
  readonly #outbox: Outbox;
  /** Whether its caller's messages are read. While one is under way the peer may have to answer requests, so they are. */
  readonly #flow: ConnectionFlow;
  readonly #underWay = new Set<ChannelReply>();
  #closeListeners: (() => void)[] = [];
  /** Arrived, and waiting for a later turn; nothing more is read meanwhile. */
  #later: (string | Malformed)[] = [];
  readonly #laterCharge = new Charge(undefined);
  #handled = 0;
  #isScheduled = false;
  /** The peer takes its answers too slowly. */
  #isSlow = false;
  #isBusy = false;
  #refusals = 0;
  #closeWhenQuiet = false;
  #activeAt = performance.now();
  #lastWaiting = 0;
  #movedAt = 0;

  constructor(peer: Peer, port: Port, handler: TransportHandler, limits: ResolvedLimits) {
    this.peer = peer;
    this.#handler = handler;
    this.#limits = limits;
    this.maxBytes = limits.maxMessageBytes;
    this.#port = port;
    this.#flow = new ConnectionFlow({ pause: () => port.pause(), resume: () => this.#read() });
    this.#outbox = new Outbox(
      port,
      limits,
      () => this.cut(),
      () => {
        this.#isSlow = false;
        this.#read();
      },
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
    if (admission.budget) {
      this.#outbox.chargeTo(admission.budget);
      this.#laterCharge.move(admission.budget);
    }
    if (admission.fault === undefined) this.#refusals = 0;
    this.onAdmitted(admission.budget);
  }

  authenticated(budget?: ByteBudget, flow?: CallerFlow): void {
    this.#flow.arrived(flow);
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
    this.#activeAt = performance.now();
    const more = this.#outbox.send(text);
    // Who does not take answers gets no more work done. (Only the serving side does this: if both did, two slow
    // readers would wait for each other for ever.)
    if (!more && !this.closed) {
      this.#isSlow = true;
      this.#port.pause();
    }
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
    this.#flow.close();
    this.#closeIfQuiet();
  }

  #closeIfQuiet(): void {
    if (this.#closeWhenQuiet && this.#underWay.size === 0 && this.#later.length === 0) this.close();
  }

  onClose(listener: () => void): void {
    if (this.closed) listener();
    else this.#closeListeners.push(listener);
  }

  /** The connection is gone, by either side. */
  gone(): void {
    if (this.closed) return;
    this.closed = true;
    this.#flow.close();
    this.#outbox.close();
    this.#later = [];
    this.#laterCharge.set(0);
    for (const reply of this.#underWay) reply.abort();
    this.#underWay.clear();
    const listeners = this.#closeListeners;
    this.#closeListeners = [];
    for (const listener of listeners) listener();
  }

  /** A text arrived. It is handled in this turn, or in a later one when this peer has had its share. */
  receive(text: string): void {
    this.#take(text, text.length);
  }

  /** Something arrived that is not a text; a handler without `malformed` leaves the peer unanswered, so it is closed. */
  receiveMalformed(problem: Malformed): void {
    this.#take(problem, HEAD_BYTES);
  }

  #take(arrived: string | Malformed, chars: number): void {
    if (this.closed) return;
    if (this.#handled < PER_TURN && this.#later.length === 0 && !this.#isBusy) this.#handle(arrived);
    else {
      this.#later.push(arrived);
      const isCharged = this.#laterCharge.set(this.#laterCharge.bytes + WAITING_BYTES + 2 * chars);
      if (!isCharged && this.#later.length > MAX_UNCHARGED) return this.cut();
      if (this.#later.length === 1) this.#port.pause();
    }
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.closed) return;
    this.#isScheduled = true;
    const wasBusy = this.#isBusy;
    const next = (): void => {
      this.#isScheduled = false;
      if (wasBusy) this.#isBusy = false;
      this.#next();
    };
    if (wasBusy) setTimeout(next, BUSY_PAUSE_MS);
    else setImmediate(next);
  }

  #next(): void {
    this.#handled = 0;
    let taken = 0;
    while (this.#handled < PER_TURN && taken < this.#later.length && !this.#isBusy && !this.closed) {
      this.#handle(this.#later[taken++] as string | Malformed);
    }
    if (this.closed) return;
    this.#later.splice(0, taken);
    if (this.#isBusy || this.#later.length > 0) return this.#schedule();
    if (taken === 0) return;
    this.#laterCharge.set(0);
    this.#read();
    this.#closeIfQuiet();
  }

  /** Reads from the peer again, unless there is a reason to wait. */
  #read(): void {
    const isHeld = this.#isSlow || this.#flow.isPaused || this.#later.length > 0;
    if (!isHeld && !this.closed) this.#port.resume();
  }

  #handle(arrived: string | Malformed): void {
    this.#handled += 1 + (typeof arrived === "string" ? Math.floor(arrived.length / CHARS_PER_SHARE) : 0);
    try {
      if (typeof arrived === "string") this.#handleText(arrived);
      else this.#handleMalformed(arrived);
    } catch (error) {
      this.#broken(error);
    }
  }

  #handleText(text: string): void {
    const reply = this.#begin();
    const { fault, budget } = this.#admission;
    if (fault === undefined) this.onMessage();
    if (budget && !reply.hold(budget, IN_FLIGHT_BYTES + 2 * text.length)) return this.#tooBusy(reply, text);
    this.#handler.message({ text, peer: this.peer, channel: this, reply });
  }

  #handleMalformed(problem: Malformed): void {
    const { refuse } = this.#admission;
    if (problem.kind === "too-large" && refuse) refuse(this.#begin());
    else if (this.#handler.malformed) this.#handler.malformed(problem, this.peer, this.#begin());
    else this.close(problem.message);
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
    this.#activeAt = performance.now();
    if (this.#underWay.size === 0 && this.#later.length === 0) this.#flow.rest();
    if (this.#admission.fault && ++this.#refusals > MAX_ANONYMOUS_REFUSALS) return this.#turnAway();
    this.#closeIfQuiet();
  }

  #begin(): ChannelReply {
    this.#activeAt = performance.now();
    const reply = new ChannelReply(this);
    this.#underWay.add(reply);
    return reply;
  }

  /** Nothing of what follows is read, so that it costs nothing. */
  #turnAway(): void {
    if (this.closed) return;
    this.close("authentication required");
    this.#port.pause();
  }

  #tooBusy(reply: ChannelReply, text: string): void {
    this.#isBusy = true;
    const message = "too many unanswered messages at once; send this one again later";
    const head = headOf(Buffer.from(text.slice(0, HEAD_BYTES)));
    if (this.#handler.malformed) this.#handler.malformed({ kind: "too-many", message, head }, this.peer, reply);
    else this.close(message);
  }

  /** A handler that throws breaks its own invariant; that costs this peer its connection and others nothing. */
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
