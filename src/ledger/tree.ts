import { hash } from "node:crypto";

export const HASH_BYTES = 32;

/** The `prev` of the very first record: 32 zero bytes. */
export const NO_PREV = Buffer.alloc(HASH_BYTES).toString("base64");

/** Root of a tree without leaves (RFC 6962, 2.1). */
export const EMPTY_ROOT = hash("sha256", "", "base64");

// One-shot hashing with a string result is about twice as fast as one with a Buffer result (measured on Node 20),
// so hashes travel as base64 text and are decoded only where bytes are needed.

/** RFC 6962 leaf hash of `bytes[start..end)`. The byte before `start` is borrowed for the 0x00 prefix and restored. */
export function leafHashInPlace(bytes: Buffer, start: number, end: number): string {
  const borrowed = bytes[start - 1] as number;
  bytes[start - 1] = 0;
  const digest = hash("sha256", bytes.subarray(start - 1, end), "base64");
  bytes[start - 1] = borrowed;
  return digest;
}

/** RFC 6962 leaf hash of one line, without its newline. */
export function leafHash(line: Uint8Array | string): string {
  const bytes = typeof line === "string" ? Buffer.from(line) : line;
  const prefixed = Buffer.allocUnsafe(bytes.length + 1);
  prefixed[0] = 0;
  prefixed.set(bytes, 1);
  return hash("sha256", prefixed, "base64");
}

const pair = Buffer.alloc(1 + 2 * HASH_BYTES);
pair[0] = 1;

/** RFC 6962 interior hash of two hashes, written to `out` at `at`; `out` may hold the inputs as well. */
export function nodeHashInto(
  left: Buffer,
  leftAt: number,
  right: Buffer,
  rightAt: number,
  out: Buffer,
  at: number,
): void {
  left.copy(pair, 1, leftAt, leftAt + HASH_BYTES);
  right.copy(pair, 1 + HASH_BYTES, rightAt, rightAt + HASH_BYTES);
  out.write(hash("sha256", pair, "binary"), at, HASH_BYTES, "latin1");
}

export function nodeHash(left: Buffer, right: Buffer): Buffer {
  const out = Buffer.allocUnsafe(HASH_BYTES);
  nodeHashInto(left, 0, right, 0, out, 0);
  return out;
}

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

/** Where the stored hashes of a tree come from: `count` consecutive hashes of a tile level. */
export type HashSource = (level: number, first: number, count: number) => Promise<Buffer>;

/** Hash of the complete subtree of 2^height leaves that is the `index`-th of its height. */
async function subtree(source: HashSource, height: number, index: number): Promise<Buffer> {
  const level = Math.floor(height / TILE_HEIGHT);
  let width = 2 ** (height % TILE_HEIGHT);
  const hashes = await source(level, index * width, width);
  let nodes: Buffer[] = [];
  for (let i = 0; i < width; i++) nodes.push(hashes.subarray(i * HASH_BYTES, (i + 1) * HASH_BYTES));
  for (; width > 1; width /= 2) {
    const parents: Buffer[] = [];
    for (let i = 0; i < width; i += 2) parents.push(nodeHash(nodes[i] as Buffer, nodes[i + 1] as Buffer));
    nodes = parents;
  }
  return nodes[0] as Buffer;
}

/** The complete subtrees that make up leaves [from, to), as the RFC splits them, left to right. */
// INVARIANT: `from` is a multiple of every power of two up to to - from, as all ranges of the RFC's recursion are.
function subtreesOf(from: number, to: number): { height: number; index: number }[] {
  const parts: { height: number; index: number }[] = [];
  for (let at = from; at < to; ) {
    let height = 0;
    while (2 ** (height + 1) <= to - at) height++;
    parts.push({ height, index: at / 2 ** height });
    at += 2 ** height;
  }
  return parts;
}

async function rangeHash(source: HashSource, from: number, to: number): Promise<Buffer> {
  let acc: Buffer | undefined;
  for (const part of subtreesOf(from, to).reverse()) {
    const hash = await subtree(source, part.height, part.index);
    acc = acc === undefined ? hash : nodeHash(hash, acc);
  }
  return acc as Buffer;
}

/** The right edge of the tree of the first `size` leaves, largest subtree first. */
export async function edgeAt(source: HashSource, size: number): Promise<Buffer[]> {
  const edge: Buffer[] = [];
  for (const part of subtreesOf(0, size)) edge.push(await subtree(source, part.height, part.index));
  return edge;
}

export async function rootAt(source: HashSource, size: number): Promise<string> {
  return size === 0 ? EMPTY_ROOT : (await rangeHash(source, 0, size)).toString("base64");
}

/** The largest power of two that is smaller than n (n > 1). */
function split(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/** RFC 6962 2.1.1: the hashes that lead from leaf `index` to the root of the first `size` leaves, leaf first. */
export async function inclusionPath(source: HashSource, index: number, size: number): Promise<Buffer[]> {
  const path: Buffer[] = [];
  let from = 0;
  let to = size;
  while (to - from > 1) {
    const middle = from + split(to - from);
    if (index < middle) {
      path.unshift(await rangeHash(source, middle, to));
      to = middle;
    } else {
      path.unshift(await rangeHash(source, from, middle));
      from = middle;
    }
  }
  return path;
}

/** RFC 6962 2.1.2: the hashes that show that the tree of `older` leaves is a prefix of the tree of `newer`. */
export async function consistencyPath(source: HashSource, older: number, newer: number): Promise<Buffer[]> {
  if (older === 0 || older === newer) return [];
  const path: Buffer[] = [];
  let from = 0;
  let to = newer;
  let wholeOldTree = true;
  while (older !== to) {
    const middle = from + split(to - from);
    if (older <= middle) {
      path.unshift(await rangeHash(source, middle, to));
      to = middle;
    } else {
      path.unshift(await rangeHash(source, from, middle));
      from = middle;
      wholeOldTree = false;
    }
  }
  if (!wholeOldTree) path.unshift(await rangeHash(source, from, to));
  return path;
}

/** The root that follows from a leaf and its path (RFC 9162, 2.1.3.2), or undefined when the path cannot fit. */
export function rootFromInclusion(
  leaf: Buffer,
  index: number,
  size: number,
  path: readonly Buffer[],
): Buffer | undefined {
  if (!(index >= 0 && index < size)) return undefined;
  let position = index;
  let last = size - 1;
  let hash = leaf;
  for (const sibling of path) {
    if (last === 0) return undefined;
    if (position % 2 === 1 || position === last) {
      hash = nodeHash(sibling, hash);
      while (position % 2 === 0 && position !== 0) {
        position = Math.floor(position / 2);
        last = Math.floor(last / 2);
      }
    } else {
      hash = nodeHash(hash, sibling);
    }
    position = Math.floor(position / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? hash : undefined;
}

/** Whether `path` shows that the tree (older, olderRoot) is a prefix of (newer, newerRoot) (RFC 9162, 2.1.4.2). */
export function consistent(
  older: number,
  olderRoot: string,
  newer: number,
  newerRoot: string,
  path: readonly Buffer[],
): boolean {
  if (older > newer) return false;
  if (older === newer) return path.length === 0 && olderRoot === newerRoot;
  if (older === 0) return path.length === 0 && olderRoot === EMPTY_ROOT;
  const hashes = [...path];
  const oldTreeIsComplete = subtreesOf(0, older).length === 1;
  if (oldTreeIsComplete) hashes.unshift(Buffer.from(olderRoot, "base64"));
  let position = older - 1;
  let last = newer - 1;
  while (position % 2 === 1) {
    position = Math.floor(position / 2);
    last = Math.floor(last / 2);
  }
  let oldHash = hashes[0];
  let newHash = hashes[0];
  if (oldHash === undefined || newHash === undefined) return false;
  for (const hash of hashes.slice(1)) {
    if (last === 0) return false;
    if (position % 2 === 1 || position === last) {
      oldHash = nodeHash(hash, oldHash);
      newHash = nodeHash(hash, newHash);
      while (position % 2 === 0 && position !== 0) {
        position = Math.floor(position / 2);
        last = Math.floor(last / 2);
      }
    } else {
      newHash = nodeHash(newHash, hash);
    }
    position = Math.floor(position / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 && oldHash.toString("base64") === olderRoot && newHash.toString("base64") === newerRoot;
}
