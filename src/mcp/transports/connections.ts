// Bounds the connections of a listener, all of them and those of one address. When there is no room, a connection whose
// request is incomplete is evicted first, oldest first; then the one that has been idle longest. A connection with
// a complete request under way is never evicted, so neither idle nor unfinished connections can lock out others.

import type { CallerFlow, FlowConnection } from "./types.js";

export interface Evictable {
  /** A complete request is under way. */
  readonly busy: boolean;
  /** The remote address. */
  readonly address: string;
  evict(): void;
}

interface FromAddress<T> {
  readonly connections: Set<T>;
  lookAgainAt: number;
}

/** After a search that found no evictable connection the next search waits this long: searching costs more than refusing. */
const LOOK_AGAIN_MS = 100;

const MAX_LOOKS = 1_000;

export class Connections<T extends Evictable> {
  readonly #max: number;
  readonly #maxPerAddress: number;
  /** Connections whose request is incomplete, in the order in which it began. */
  readonly #incomplete = new Set<T>();
  /** The others, least recently used first. */
  readonly #settled = new Set<T>();
  readonly #addresses = new Map<string, FromAddress<T>>();
  #lookAgainAt = 0;

  constructor(max: number, maxPerAddress: number = max) {
    this.#max = max;
    this.#maxPerAddress = maxPerAddress;
  }

  get size(): number {
    return this.#incomplete.size + this.#settled.size;
  }

  /** False when there is no room: the caller refuses the connection. */
  admit(connection: T): boolean {
    const { address } = connection;
    const now = performance.now();
    const same = this.#addresses.get(address) ?? { connections: new Set<T>(), lookAgainAt: 0 };
    if (this.size >= this.#max && !this.#makeRoom(now)) return false;
    if (same.connections.size >= this.#maxPerAddress && !this.#makeRoomFor(same, now)) return false;
    this.#incomplete.add(connection);
    same.connections.add(connection);
    same.lookAgainAt = 0;
    this.#addresses.set(address, same);
    this.#lookAgainAt = 0;
    return true;
  }

  /** A request has begun to arrive. */
  began(connection: T): void {
    if (this.#settled.delete(connection)) this.#incomplete.add(connection);
  }

  /** The request has arrived whole, from a caller that may send it. */
  completed(connection: T): void {
    if (this.#incomplete.delete(connection) || this.#settled.delete(connection)) this.#settled.add(connection);
  }

  /** Evicts the oldest incomplete connection that fits; false when there is none among the oldest. */
  evictIncomplete(fits: (connection: T) => boolean): boolean {
    let looks = MAX_LOOKS;
    for (const connection of this.#incomplete) {
      if (looks-- === 0) return false;
      if (fits(connection) && this.#evict(connection)) return true;
    }
    return false;
  }

  remove(connection: T): void {
    this.#incomplete.delete(connection);
    this.#settled.delete(connection);
    const same = this.#addresses.get(connection.address);
    same?.connections.delete(connection);
    if (same?.connections.size === 0) this.#addresses.delete(connection.address);
  }

  *[Symbol.iterator](): Iterator<T> {
    yield* this.#incomplete;
    yield* this.#settled;
  }

  #makeRoom(now: number): boolean {
    if (now < this.#lookAgainAt) return false;
    for (const connection of this) if (this.#evict(connection)) return true;
    this.#lookAgainAt = now + LOOK_AGAIN_MS;
    return false;
  }

  #makeRoomFor(same: FromAddress<T>, now: number): boolean {
    if (now < same.lookAgainAt) return false;
    let idle: T | undefined;
    for (const connection of same.connections) {
      if (connection.busy) continue;
      if (this.#incomplete.has(connection)) return this.#evict(connection);
      idle ??= connection;
    }
    if (idle) return this.#evict(idle);
    same.lookAgainAt = now + LOOK_AGAIN_MS;
    return false;
  }

  #evict(connection: T): boolean {
    if (connection.busy) return false;
    this.remove(connection);
    connection.evict();
    return true;
  }
}

export class ConnectionFlow implements FlowConnection {
  /** Nothing is read from the connection now. */
  isPaused = false;
  readonly #source: FlowConnection;
  #flow: CallerFlow | undefined = undefined;
  /** It carries requests of several callers, as the connections of a proxy do: pausing it for one would stop others. */
  #isShared = false;
  #isClosed = false;

  constructor(source: FlowConnection) {
    this.#source = source;
  }

  /** A request of this caller arrived. */
  arrived(flow: CallerFlow | undefined): void {
    const current = this.#flow;
    if (flow === current) {
      current?.leave(this);
      this.resume();
    } else if (flow !== undefined && !this.#isShared && !this.#isClosed) this.#carry(flow);
  }

  /** Nothing is under way on the connection. */
  rest(): void {
    if (!this.#isClosed) this.#flow?.rest(this);
  }

  /** Reads on, whatever the caller's flow is: the server closes, or the connection has closed. */
  close(): void {
    this.#isClosed = true;
    this.#flow?.detach(this);
    this.#flow = undefined;
    this.resume();
  }

  pause(): void {
    if (this.isPaused) return;
    this.isPaused = true;
    this.#source.pause();
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    this.#source.resume();
  }

  #carry(flow: CallerFlow): void {
    const previous = this.#flow;
    previous?.detach(this);
    this.#isShared = previous !== undefined && !previous.isAnonymous;
    this.#flow = this.#isShared ? undefined : flow;
    this.#flow?.attach();
    this.resume();
  }
}
