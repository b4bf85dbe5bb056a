import { EMPTY_ROOT, HASH_BYTES, nodeHashInto } from "./hash.js";

/** Enough heights for 2^53 leaves. */
const MAX_HEIGHT = 54;
/** Tiles hold 256 hashes, so only every eighth height is stored (C2SP tlog-tiles). */
export const TILE_HEIGHT = 8;

/** Receives each hash that belongs into a tile, in order: level 0 are the leaves, level n covers 256^n of them. */
export type TileSink = (level: number, bytes: Buffer, at: number) => void;

/**
 * The right edge of an RFC 6962 Merkle tree: one hash for each set bit of the size.
 * Appending costs one interior hash a leaf on average and no memory that grows with the log.
 */
export class Tree {
  #size = 0;
  readonly #nodes = Buffer.alloc(MAX_HEIGHT * HASH_BYTES);
  readonly #carry = Buffer.alloc(HASH_BYTES);
  readonly #sink: TileSink | undefined;

  constructor(sink?: TileSink) {
    this.#sink = sink;
  }

  get size(): number {
    return this.#size;
  }

  /** Appends a leaf given as base64. */
  push(leaf: string): void {
    this.#carry.write(leaf, 0, HASH_BYTES, "base64");
    this.#sink?.(0, this.#carry, 0);
    let height = 0;
    // Arithmetic instead of bit operators: sizes go beyond 2^31.
    for (let rest = this.#size; rest % 2 === 1; rest = (rest - 1) / 2) {
      nodeHashInto(this.#nodes, height * HASH_BYTES, this.#carry, 0, this.#carry, 0);
      height++;
      if (height % TILE_HEIGHT === 0) this.#sink?.(height / TILE_HEIGHT, this.#carry, 0);
    }
    this.#carry.copy(this.#nodes, height * HASH_BYTES);
    this.#size++;
  }

  root(): string {
    if (this.#size === 0) return EMPTY_ROOT;
    const acc = Buffer.alloc(HASH_BYTES);
    let started = false;
    let height = 0;
    for (let rest = this.#size; rest > 0; rest = Math.floor(rest / 2), height++) {
      if (rest % 2 === 0) continue;
      if (started) nodeHashInto(this.#nodes, height * HASH_BYTES, acc, 0, acc, 0);
      else this.#nodes.copy(acc, 0, height * HASH_BYTES, (height + 1) * HASH_BYTES);
      started = true;
    }
    return acc.toString("base64");
  }

  /** The hashes of the right edge, largest subtree first. */
  edge(): Buffer[] {
    const edge: Buffer[] = [];
    let height = 0;
    for (let rest = this.#size; rest > 0; rest = Math.floor(rest / 2), height++) {
      if (rest % 2 === 1) {
        edge.unshift(Buffer.from(this.#nodes.subarray(height * HASH_BYTES, (height + 1) * HASH_BYTES)));
      }
    }
    return edge;
  }

  /** Continues a tree of `size` leaves from its right edge (as `edge()` gives it). */
  resume(size: number, edge: readonly Buffer[]): void {
    if (this.#size !== 0) throw new Error("a tree resumes only while it is empty");
    let next = edge.length;
    let height = 0;
    for (let rest = size; rest > 0; rest = Math.floor(rest / 2), height++) {
      if (rest % 2 === 0) continue;
      const node = edge[--next];
      if (node === undefined || node.length !== HASH_BYTES) {
        throw new RangeError(`a tree of ${size} leaves does not have this right edge`);
      }
      node.copy(this.#nodes, height * HASH_BYTES);
    }
    if (next !== 0) throw new RangeError(`a tree of ${size} leaves has ${edge.length - next} edge hashes`);
    this.#size = size;
  }
}
