import { pass } from "./bits.js";
import type { Graph, Rows } from "./graph.js";
import type { Levels } from "./levels.js";

/** One round of the search for all nodes at once. */
export interface SpreadRound {
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
export function spread(graph: Graph, levels: Levels, round: SpreadRound): number[] {
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
