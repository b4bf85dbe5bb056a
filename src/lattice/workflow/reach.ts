import { type Graph, hasBit, pass, type Rows, type Transfer } from "./graph.js";
import { Levels } from "./levels.js";
import { type ReachState, type Shift, Update } from "./update.js";

/**
 * Which lanes reach which nodes of a graph, starting where `sources` says and passing only where `keep` has them, with
 * the fewest edges: a breadth-first search for all lanes at once, kept up to date when edges or sources change.
 */
export class Reach {
  readonly graph: Graph;
  readonly words: number;
  readonly #keep: Uint32Array;
  readonly #sources: Uint32Array;
  readonly #levels: Levels;
  readonly #reached: Uint32Array;

  /** `keep` and `sources` hold `words` words for each node; both are read and `sources` is changed by updates. */
  constructor(graph: Graph, words: number, keep: Uint32Array, sources: Uint32Array) {
    this.graph = graph;
    this.words = words;
    this.#keep = keep;
    this.#sources = sources;
    this.#levels = new Levels(graph.nodes, words);
    this.#reached = new Uint32Array(graph.nodes * words);
    this.#build();
  }

  /** All lanes at a node. A view: copy it before a change. */
  at(node: number): Uint32Array {
    return this.#reached.subarray(node * this.words, (node + 1) * this.words);
  }

  has(node: number, lane: number): boolean {
    return (((this.#reached[node * this.words + (lane >>> 5)] as number) >>> (lane & 31)) & 1) === 1;
  }

  /** Edges from a source to the node, the fewest; -1 when the lane does not arrive. */
  distance(node: number, lane: number): number {
    return this.#levels.levelAt(node, lane);
  }

  /** The edges of a shortest way of a lane to a node, first edge first; undefined when it does not arrive. */
  path(node: number, lane: number): number[] | undefined {
    const length = this.distance(node, lane);
    if (length < 0) return undefined;
    const edges: number[] = [];
    let [at, carried] = [node, lane];
    for (let level = length - 1; level >= 0; level--) {
      const step = this.#stepBack(at, carried, level);
      edges[level] = step.edge;
      at = this.graph.from(step.edge);
      carried = step.lane;
    }
    return edges;
  }

  #stepBack(node: number, lane: number, level: number): { edge: number; lane: number } {
    const { plain } = this.graph;
    if (plain !== undefined) {
      const { start, edge, other } = plain.in;
      const end = start[node + 1] as number;
      for (let e = start[node] as number; e < end; e++) {
        const block = this.#levels.find(other[e] as number, level);
        if (block !== -1 && hasBit(this.#levels.bits, block * this.words, lane))
          return { edge: edge[e] as number, lane };
      }
    }
    for (const edge of this.graph.in(node)) {
      const block = this.#levels.find(this.graph.from(edge), level);
      if (block === -1) continue;
      const { mask, moves } = this.graph.transfer(edge);
      const at = block * this.words;
      if ((mask === undefined || hasBit(mask, 0, lane)) && hasBit(this.#levels.bits, at, lane)) return { edge, lane };
      const move = moves.find(([s, t]) => t === lane && hasBit(this.#levels.bits, at, s));
      if (move !== undefined) return { edge, lane: move[0] };
    }
    throw new Error(`lane ${lane} is at node ${node} but came from nowhere`);
  }

  #build(): void {
    const { words } = this;
    const { nodes } = this.graph;
    const levels = this.#levels;
    const want = this.#keep.slice();
    const open = new Uint8Array(nodes).fill(1);
    const arriving = new Uint32Array(this.#reached.length);
    const isTouched = new Uint8Array(nodes);
    const block = new Int32Array(nodes).fill(-1);
    let frontier: number[] = [];
    for (let node = 0; node < nodes; node++) {
      let any = 0;
      for (let at = node * words; at < (node + 1) * words; at++) {
        const starts = (this.#sources[at] as number) & (want[at] as number);
        arriving[at] = starts;
        want[at] = (want[at] as number) ^ starts;
        any |= starts;
      }
      if (any !== 0) frontier.push(node);
    }
    for (let level = 0; frontier.length > 0; level++) {
      for (const node of frontier) {
        block[node] = levels.add(node, level);
        isTouched[node] = 0;
        open[node] = this.#settle(node, (block[node] as number) * words, arriving, want);
      }
      const next = spread(this.graph, levels, { want, open, frontier, block, arriving, isTouched });
      for (const node of frontier) block[node] = -1;
      frontier = next;
    }
  }

  /** Writes what arrived at a node into its block; 0 when the node wants nothing any more. */
  #settle(node: number, to: number, arriving: Uint32Array, want: Uint32Array): 0 | 1 {
    const { bits } = this.#levels;
    const base = node * this.words;
    let any = 0;
    for (let w = 0; w < this.words; w++) {
      const arrived = arriving[base + w] as number;
      bits[to + w] = arrived;
      this.#reached[base + w] = (this.#reached[base + w] as number) | arrived;
      arriving[base + w] = 0;
      any |= want[base + w] as number;
    }
    return any === 0 ? 0 : 1;
  }

  addEdge(from: number, to: number, transfer: Transfer): { edge: number; shifts: Shift[] } {
    const edge = this.graph.add(from, to, transfer);
    const update = new Update(this.#state());
    for (let block = this.#levels.head[from] as number; block !== -1; block = this.#levels.next(block)) {
      update.offer(to, this.#levels.levelOf(block) + 1, this.#through(edge, block));
    }
    update.improve();
    return { edge, shifts: update.shifts() };
  }

  removeEdge(edge: number): Shift[] {
    const update = new Update(this.#state());
    const [from, to] = [this.graph.from(edge), this.graph.to(edge)];
    for (let block = this.#levels.head[from] as number; block !== -1; block = this.#levels.next(block)) {
      update.doubt(to, this.#levels.levelOf(block) + 1, this.#through(edge, block));
    }
    this.graph.remove(edge);
    update.withdraw();
    update.improve();
    return update.shifts();
  }

  /** Replaces the lanes that start at a node. */
  setSources(node: number, lanes: Uint32Array): Shift[] {
    const update = new Update(this.#state());
    const gone = new Uint32Array(this.words);
    const come = new Uint32Array(this.words);
    for (let w = 0; w < this.words; w++) {
      const at = node * this.words + w;
      const before = this.#sources[at] as number;
      const after = lanes[w] as number;
      gone[w] = before & ~after;
      come[w] = after & ~before;
      this.#sources[at] = after;
    }
    update.doubt(node, 0, gone);
    update.withdraw();
    update.offer(node, 0, come);
    update.improve();
    return update.shifts();
  }

  #through(edge: number, block: number): Uint32Array {
    const at = block * this.words;
    return pass(this.graph.transfer(edge), this.#levels.bits.subarray(at, at + this.words));
  }

  #state(): ReachState {
    return {
      graph: this.graph,
      levels: this.#levels,
      reached: this.#reached,
      keep: this.#keep,
      sources: this.#sources,
    };
  }
}

/** One round of the search for all nodes at once. */
interface SpreadRound {
  /** Lanes that a node keeps and does not have yet. */
  readonly want: Uint32Array;
  /** 0 when a node wants nothing any more. */
  readonly open: Uint8Array;
  /** Nodes that got lanes in the last round, and for each node the block that holds them, -1 for none. */
  readonly frontier: readonly number[];
  readonly block: Int32Array;
  /** Lanes for the next round. */
  readonly arriving: Uint32Array;
  readonly isTouched: Uint8Array;
}

/** Pulling looks at every node that still wants something; below this share of all edges, pushing looks at less. */
const PUSH_SHARE = 0.05;

/** Carries the lanes of the last round over every edge; returns the nodes where some arrived. */
function spread(graph: Graph, levels: Levels, round: SpreadRound): number[] {
  const { plain } = graph;
  if (plain === undefined) return spreadByTransfer(graph, levels, round);
  let edges = 0;
  for (const node of round.frontier) edges += (plain.out.start[node + 1] as number) - (plain.out.start[node] as number);
  return edges < plain.out.edge.length * PUSH_SHARE ? push(plain.out, levels, round) : pull(plain.in, levels, round);
}

function push(rows: Rows, levels: Levels, { want, open, frontier, block, arriving, isTouched }: SpreadRound): number[] {
  const { words, bits } = levels;
  const { start, other } = rows;
  const touched: number[] = [];
  for (let i = 0; i < frontier.length; i++) {
    const node = frontier[i] as number;
    const source = (block[node] as number) * words;
    const end = start[node + 1] as number;
    for (let e = start[node] as number; e < end; e++) {
      const target = other[e] as number;
      if (open[target] === 0) continue;
      const fresh = take(bits, source, want, arriving, target * words, words);
      if (fresh !== 0 && isTouched[target] === 0) {
        isTouched[target] = 1;
        touched.push(target);
      }
    }
  }
  return touched;
}

function pull(rows: Rows, levels: Levels, { want, open, block, arriving }: SpreadRound): number[] {
  const { words, bits } = levels;
  const { start, other } = rows;
  const touched: number[] = [];
  for (let target = 0; target < open.length; target++) {
    if (open[target] === 0) continue;
    let fresh = 0;
    const end = start[target + 1] as number;
    for (let e = start[target] as number; e < end; e++) {
      const source = block[other[e] as number] as number;
      if (source >= 0) fresh |= take(bits, source * words, want, arriving, target * words, words);
    }
    if (fresh !== 0) touched.push(target);
  }
  return touched;
}

/** Moves what is wanted and there. No branch inside: which words have news cannot be predicted. */
function take(
  bits: Uint32Array,
  source: number,
  want: Uint32Array,
  arriving: Uint32Array,
  target: number,
  words: number,
): number {
  let fresh = 0;
  for (let w = 0; w < words; w++) {
    const wanted = want[target + w] as number;
    const now = (bits[source + w] as number) & wanted;
    want[target + w] = wanted ^ now;
    arriving[target + w] = (arriving[target + w] as number) | now;
    fresh |= now;
  }
  return fresh;
}

/** For any graph: each edge is asked what it makes of the lanes. */
function spreadByTransfer(graph: Graph, levels: Levels, round: SpreadRound): number[] {
  const { want, frontier, block, arriving, isTouched } = round;
  const { words, bits } = levels;
  const touched: number[] = [];
  for (const node of frontier) {
    const at = (block[node] as number) * words;
    const here = bits.subarray(at, at + words);
    for (const edge of graph.out(node)) {
      const target = graph.to(edge);
      const passed = pass(graph.transfer(edge), here);
      const fresh = take(passed, 0, want, arriving, target * words, words);
      if (fresh !== 0 && isTouched[target] === 0) {
        isTouched[target] = 1;
        touched.push(target);
      }
    }
  }
  return touched;
}
