// Bytes on their way to becoming a text.

import { isUtf8 } from "node:buffer";
import { type ByteBudget, Charge } from "../index.js";

const EMPTY = Buffer.alloc(0);
const FIRST_CAPACITY = 512;

/** Undefined when the bytes are not UTF-8: a replacement character would be a text that was not sent. */
export function decodeUtf8(bytes: Buffer): string | undefined {
  return isUtf8(bytes) ? bytes.toString("utf8") : undefined;
}

export const HEAD_BYTES = 4096;

/** The beginning of bytes that are no message. */
export function headOf(bytes: Buffer): string {
  return bytes.toString("latin1", 0, HEAD_BYTES);
}

/**
 * Gathers one message out of chunks. The chunks are copied: keeping them would cost an object for each, and a peer
 * that sends single bytes would make us hold a hundred times what it sent. Memory follows what has really arrived,
 * never what was announced, and nothing is kept between messages.
 */
export class ByteStore {
  length = 0;
  #bytes: Buffer = EMPTY;
  /** What the bytes are charged to: their capacity, which is what they cost. */
  readonly charge: Charge;

  constructor(budget?: ByteBudget) {
    this.charge = new Charge(budget);
  }

  /** False when the shared budget is used up; the store is then unchanged. */
  append(chunk: Buffer, start = 0, end = chunk.length): boolean {
    const needed = this.length + end - start;
    if (needed > this.#bytes.length && !this.#grow(needed)) return false;
    chunk.copy(this.#bytes, this.length, start, end);
    this.length = needed;
    return true;
  }

  /** All bytes so far; the store is empty afterwards. */
  take(): Buffer {
    const taken = this.#bytes.subarray(0, this.length);
    this.clear();
    return taken;
  }

  /** What has come of it, up to a bound. */
  head(): string {
    return headOf(this.#bytes.subarray(0, this.length));
  }

  last(): number | undefined {
    return this.length === 0 ? undefined : this.#bytes[this.length - 1];
  }

  clear(): void {
    this.charge.set(0);
    this.#bytes = EMPTY;
    this.length = 0;
  }

  #grow(needed: number): boolean {
    const generous = Math.max(FIRST_CAPACITY, needed, this.#bytes.length * 2);
    const capacity = this.charge.set(generous) ? generous : this.charge.set(needed) ? needed : 0;
    if (capacity === 0) return false;
    const larger = Buffer.allocUnsafeSlow(capacity);
    this.#bytes.copy(larger, 0, 0, this.length);
    this.#bytes = larger;
    return true;
  }
}
