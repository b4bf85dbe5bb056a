import { pass } from "./bits.js";
import type { Graph } from "./graph.js";
import type { Levels } from "./levels.js";

/** One round of the search: what each node still wants, what arrives for the next round, and where. */
export interface Round {
  readonly want: Uint32Array;
  /** 0 when a node wants nothing any more. */
  readonly open: Uint8Array;
  readonly arriving: Uint32Array;
  readonly isTouched: Uint8Array;
}

type Spread = (graph: Graph, levels: Levels, nodes: readonly number[], blocks: Int32Array, round: Round) => number[];

/** For graphs whose edges let everything through: nothing but words and sorted arrays in the innermost loop. */
export const spreadPlain: Spread = (graph, levels, nodes, blocks, { want, open, arriving, isTouched }) => {
  const { words, bits } = levels;
  const rows = graph.rows as NonNullable<Graph["rows"]>;
  const { start, edge, to } = rows;
  const touched: number[] = [];
  const live = new Int32Array(words);
  for (let i = 0; i < nodes.length; i++) {
    const node = nodes[i] as number;
    const block = (blocks[i] as number) * words;
    let count = 0;
    for (let w = 0; w < words; w++) if (bits[block + w] !== 0) live[count++] = w;
    const end = start[node + 1] as number;
    for (let e = start[node] as number; e < end; e++) {
      const target = to[edge[e] as number] as number;
      if (open[target] === 0) continue;
      const base = target * words;
      let fresh = 0;
      for (let k = 0; k < count; k++) {
        const w = live[k] as number;
        const wanted = want[base + w] as number;
        const now = (bits[block + w] as number) & wanted;
        if (now === 0) continue;
        want[base + w] = wanted ^ now;
        arriving[base + w] = (arriving[base + w] as number) | now;
        fresh = 1;
      }
      if (fresh === 0) continue;
      if (isTouched[target] === 0) touched.push(target);
      isTouched[target] = 1;
    }
  }
  for (let i = 0; i < touched.length; i++) {
    const node = touched[i] as number;
    let any = 0;
    for (let w = node * words; w < (node + 1) * words; w++) any |= want[w] as number;
    if (any === 0) open[node] = 0;
  }
  return touched;
};

/** For any graph: each edge is asked what it makes of the lanes. */
export const spreadAny: Spread = (graph, levels, nodes, blocks, { want, arriving, isTouched }) => {
  const { words, bits } = levels;
  const touched: number[] = [];
  for (let i = 0; i < nodes.length; i++) {
    const block = (blocks[i] as number) * words;
    const here = bits.subarray(block, block + words);
    for (const edge of graph.out(nodes[i] as number)) {
      const target = graph.to(edge);
      const passed = pass(graph.transfer(edge), here);
      let fresh = 0;
      for (let w = 0; w < words; w++) {
        const at = target * words + w;
        const wanted = want[at] as number;
        const now = (passed[w] as number) & wanted;
        if (now === 0) continue;
        want[at] = wanted ^ now;
        arriving[at] = (arriving[at] as number) | now;
        fresh = 1;
      }
      if (fresh === 0) continue;
      if (isTouched[target] === 0) touched.push(target);
      isTouched[target] = 1;
    }
  }
  return touched;
};
