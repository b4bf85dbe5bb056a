/** What an edge lets through: lanes of `mask` as they are, and each lane of `moves` as another one. */
export interface Transfer {
  /** undefined: every lane. */
  readonly mask: Uint32Array | undefined;
  readonly moves: readonly (readonly [from: number, to: number])[];
}

export const PASS: Transfer = { mask: undefined, moves: [] };

/** Edges grouped by one end: those of node n stand at start[n] … start[n + 1], each with its other end. */
export interface Rows {
  readonly start: Uint32Array;
  readonly edge: Uint32Array;
  readonly other: Uint32Array;
}

/**
 * A directed graph with numbered nodes and edges that can be added and removed. The first edges stand in two sorted
 * arrays (by source and by target); later ones hang in lists beside them.
 */
export class Graph {
  readonly nodes: number;
  readonly #from: ArrayLike<number>;
  readonly #to: ArrayLike<number>;
  readonly #transfers: ReadonlyMap<number, Transfer>;
  readonly #out: Rows;
  readonly #in: Rows;
  readonly #later: { readonly from: number; readonly to: number; readonly transfer: Transfer }[] = [];
  readonly #laterOut = new Map<number, number[]>();
  readonly #laterIn = new Map<number, number[]>();
  readonly #removed = new Set<number>();

  /** `transfers` by edge number; an edge that is not there lets everything through. */
  constructor(
    nodes: number,
    from: ArrayLike<number>,
    to: ArrayLike<number>,
    transfers: ReadonlyMap<number, Transfer> = new Map(),
  ) {
    this.nodes = nodes;
    this.#from = from;
    this.#to = to;
    this.#transfers = transfers;
    this.#out = rowsOf(nodes, from, to);
    this.#in = rowsOf(nodes, to, from);
  }

  get edges(): number {
    return this.#from.length + this.#later.length;
  }

  from(edge: number): number {
    return (this.#from[edge] ?? this.#later[edge - this.#from.length]?.from) as number;
  }

  to(edge: number): number {
    return (this.#to[edge] ?? this.#later[edge - this.#to.length]?.to) as number;
  }

  transfer(edge: number): Transfer {
    if (edge < this.#from.length) return this.#transfers.get(edge) ?? PASS;
    return this.#later[edge - this.#from.length]?.transfer ?? PASS;
  }

  has(edge: number): boolean {
    return edge >= 0 && edge < this.edges && !this.#removed.has(edge);
  }

  out(node: number): ArrayLike<number> & Iterable<number> {
    return this.#list(node, this.#out, this.#laterOut);
  }

  in(node: number): ArrayLike<number> & Iterable<number> {
    return this.#list(node, this.#in, this.#laterIn);
  }

  #list(node: number, { start, edge }: Rows, later: Map<number, number[]>): ArrayLike<number> & Iterable<number> {
    const first = edge.subarray(start[node], start[node + 1]);
    const more = later.get(node);
    if (more === undefined && this.#removed.size === 0) return first;
    return [...first, ...(more ?? [])].filter((e) => !this.#removed.has(e));
  }

  add(from: number, to: number, transfer: Transfer = PASS): number {
    const edge = this.edges;
    this.#later.push({ from, to, transfer });
    append(this.#laterOut, from, edge);
    append(this.#laterIn, to, edge);
    return edge;
  }

  remove(edge: number): void {
    this.#removed.add(edge);
  }

  /** The sorted arrays, as long as they are the whole truth: no edge came, went, or holds anything back. */
  get plain(): { readonly out: Rows; readonly in: Rows } | undefined {
    const isPlain = this.#removed.size === 0 && this.#later.length === 0 && this.#transfers.size === 0;
    return isPlain ? { out: this.#out, in: this.#in } : undefined;
  }
}

function append(lists: Map<number, number[]>, key: number, value: number): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

function rowsOf(nodes: number, ends: ArrayLike<number>, others: ArrayLike<number>): Rows {
  const start = new Uint32Array(nodes + 1);
  for (let e = 0; e < ends.length; e++) {
    const end = ends[e] as number;
    start[end + 1] = (start[end + 1] as number) + 1;
  }
  for (let node = 0; node < nodes; node++) start[node + 1] = (start[node + 1] as number) + (start[node] as number);
  const at = start.slice();
  const edge = new Uint32Array(ends.length);
  const other = new Uint32Array(ends.length);
  for (let e = 0; e < ends.length; e++) {
    const end = ends[e] as number;
    const slot = at[end] as number;
    edge[slot] = e;
    other[slot] = others[e] as number;
    at[end] = slot + 1;
  }
  return { start, edge, other };
}

export function hasBit(bits: Uint32Array, offset: number, lane: number): boolean {
  return (((bits[offset + (lane >>> 5)] as number) >>> (lane & 31)) & 1) === 1;
}

export function setBit(bits: Uint32Array, offset: number, lane: number): void {
  const at = offset + (lane >>> 5);
  bits[at] = (bits[at] as number) | (1 << (lane & 31));
}

export function clearBit(bits: Uint32Array, offset: number, lane: number): void {
  const at = offset + (lane >>> 5);
  bits[at] = (bits[at] as number) & ~(1 << (lane & 31));
}

export function isZero(bits: Uint32Array): boolean {
  for (let w = 0; w < bits.length; w++) if (bits[w] !== 0) return false;
  return true;
}

/** Calls back for every lane that is set. */
export function eachLane(bits: Uint32Array, visit: (lane: number) => void): void {
  for (let w = 0; w < bits.length; w++) {
    for (let rest = bits[w] as number; rest !== 0; rest &= rest - 1) visit(w * 32 + 31 - Math.clz32(rest & -rest));
  }
}

/** What an edge makes of some lanes. The answer may be `bits` itself. */
export function pass({ mask, moves }: Transfer, bits: Uint32Array): Uint32Array {
  if (mask === undefined && moves.length === 0) return bits;
  const passed = bits.slice();
  if (mask !== undefined)
    for (let w = 0; w < passed.length; w++) passed[w] = (passed[w] as number) & (mask[w] as number);
  for (const [from, to] of moves) if (hasBit(bits, 0, from)) setBit(passed, 0, to);
  return passed;
}
