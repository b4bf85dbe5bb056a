/** What an edge lets through: lanes of `mask` as they are, and each lane of `moves` as another one. */
export interface Transfer {
  /** undefined: every lane. */
  readonly mask: Uint32Array | undefined;
  readonly moves: readonly (readonly [from: number, to: number])[];
}

export const PASS: Transfer = { mask: undefined, moves: [] };

/**
 * A directed graph with numbered nodes and edges that can be added and removed. The first edges stand in two sorted
 * arrays (by source and by target); later ones hang in lists beside them.
 */
export class Graph {
  readonly nodes: number;
  readonly #from: number[] | Uint32Array;
  readonly #to: number[] | Uint32Array;
  readonly #laterFrom: number[] = [];
  readonly #laterTo: number[] = [];
  readonly #laterTransfer: Transfer[] = [];
  readonly #transfers: ReadonlyMap<number, Transfer>;
  readonly #outStart: Uint32Array;
  readonly #outEdge: Uint32Array;
  readonly #inStart: Uint32Array;
  readonly #inEdge: Uint32Array;
  readonly #removed = new Set<number>();
  readonly #laterOut = new Map<number, number[]>();
  readonly #laterIn = new Map<number, number[]>();

  /** `transfers` by edge number; an edge that is not there lets everything through. */
  constructor(
    nodes: number,
    from: number[] | Uint32Array,
    to: number[] | Uint32Array,
    transfers: ReadonlyMap<number, Transfer> = new Map(),
  ) {
    this.nodes = nodes;
    this.#from = from;
    this.#to = to;
    this.#transfers = transfers;
    [this.#outStart, this.#outEdge] = sortedBy(nodes, from);
    [this.#inStart, this.#inEdge] = sortedBy(nodes, to);
  }

  get edges(): number {
    return this.#from.length + this.#laterFrom.length;
  }

  from(edge: number): number {
    const first = this.#from.length;
    return (edge < first ? this.#from[edge] : this.#laterFrom[edge - first]) as number;
  }

  to(edge: number): number {
    const first = this.#to.length;
    return (edge < first ? this.#to[edge] : this.#laterTo[edge - first]) as number;
  }

  transfer(edge: number): Transfer {
    const first = this.#from.length;
    if (edge < first) return this.#transfers.get(edge) ?? PASS;
    return this.#laterTransfer[edge - first] ?? PASS;
  }

  has(edge: number): boolean {
    return edge >= 0 && edge < this.edges && !this.#removed.has(edge);
  }

  out(node: number): readonly number[] | Uint32Array {
    return this.#list(node, this.#outStart, this.#outEdge, this.#laterOut);
  }

  in(node: number): readonly number[] | Uint32Array {
    return this.#list(node, this.#inStart, this.#inEdge, this.#laterIn);
  }

  #list(
    node: number,
    start: Uint32Array,
    edges: Uint32Array,
    later: Map<number, number[]>,
  ): readonly number[] | Uint32Array {
    const first = edges.subarray(start[node], start[node + 1]);
    const more = later.get(node);
    if (more === undefined && this.#removed.size === 0) return first;
    return [...first, ...(more ?? [])].filter((edge) => !this.#removed.has(edge));
  }

  add(from: number, to: number, transfer: Transfer = PASS): number {
    const edge = this.edges;
    this.#laterFrom.push(from);
    this.#laterTo.push(to);
    this.#laterTransfer.push(transfer);
    append(this.#laterOut, from, edge);
    append(this.#laterIn, to, edge);
    return edge;
  }

  remove(edge: number): void {
    this.#removed.add(edge);
  }

  /** The same graph with every edge turned round, letting everything through. */
  reversed(): Graph {
    const alive = Array.from({ length: this.edges }, (_, edge) => edge).filter((edge) => this.has(edge));
    return new Graph(
      this.nodes,
      alive.map((edge) => this.to(edge)),
      alive.map((edge) => this.from(edge)),
    );
  }

  /** The sorted arrays, for a loop over the whole graph before anything was added or removed. */
  get rows():
    | { readonly start: Uint32Array; readonly edge: Uint32Array; readonly to: number[] | Uint32Array }
    | undefined {
    if (this.#removed.size > 0 || this.#laterFrom.length > 0) return undefined;
    return { start: this.#outStart, edge: this.#outEdge, to: this.#to };
  }

  get hasTransfers(): boolean {
    return this.#transfers.size > 0;
  }
}

function append(lists: Map<number, number[]>, key: number, value: number): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/** Edge numbers grouped by an end, as row starts and a flat array. */
function sortedBy(nodes: number, ends: number[] | Uint32Array): [Uint32Array, Uint32Array] {
  const start = new Uint32Array(nodes + 1);
  for (const end of ends) start[end + 1] = (start[end + 1] as number) + 1;
  for (let node = 0; node < nodes; node++) start[node + 1] = (start[node + 1] as number) + (start[node] as number);
  const at = start.slice();
  const edge = new Uint32Array(ends.length);
  for (let e = 0; e < ends.length; e++) {
    const end = ends[e] as number;
    const slot = at[end] as number;
    edge[slot] = e;
    at[end] = slot + 1;
  }
  return [start, edge];
}
