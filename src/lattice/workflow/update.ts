import { type Graph, isZero, pass } from "./graph.js";
import type { Levels } from "./levels.js";

/** Lanes of one node that a change brought or took. */
export interface Shift {
  readonly node: number;
  readonly gained: Uint32Array;
  readonly lost: Uint32Array;
}

export interface ReachState {
  readonly graph: Graph;
  readonly levels: Levels;
  readonly reached: Uint32Array;
  readonly keep: Uint32Array;
  readonly sources: Uint32Array;
}

/** Lanes by node, waiting at one level. */
type Waiting = Map<number, Map<number, Uint32Array>>;

/**
 * One change to a search that is already done, at a cost in proportion to the lanes whose level changes (after
 * Ramalingam and Reps): first take back, level by level, whatever has lost its last support; then let those lanes, and
 * any that found a shorter way, arrive anew.
 */
export class Update {
  readonly #s: ReachState;
  readonly #words: number;
  readonly #doubts: Waiting = new Map();
  readonly #offers: Waiting = new Map();
  readonly #before = new Map<number, Uint32Array>();
  readonly #withdrawn = new Map<number, Uint32Array>();

  constructor(state: ReachState) {
    this.#s = state;
    this.#words = state.levels.words;
  }

  /** These lanes may have lost what carried them to the node at this level. */
  doubt(node: number, level: number, lanes: Uint32Array): void {
    const block = this.#s.levels.find(node, level);
    if (block === -1) return;
    const { bits } = this.#s.levels;
    const base = block * this.#words;
    this.#wait(this.#doubts, node, level, (w) => (lanes[w] as number) & (bits[base + w] as number));
  }

  /** These lanes can be at the node by this level. */
  offer(node: number, level: number, lanes: Uint32Array): void {
    const keep = this.#s.keep;
    const base = node * this.#words;
    const already = this.#upTo(node, level);
    this.#wait(
      this.#offers,
      node,
      level,
      (w) => (lanes[w] as number) & (keep[base + w] as number) & ~(already[w] as number),
    );
  }

  #wait(waiting: Waiting, node: number, level: number, lane: (word: number) => number): void {
    let list: Uint32Array | undefined;
    for (let w = 0; w < this.#words; w++) {
      const bits = lane(w);
      if (bits === 0) continue;
      list ??= this.#listFor(waiting, node, level);
      list[w] = (list[w] as number) | bits;
    }
  }

  #listFor(waiting: Waiting, node: number, level: number): Uint32Array {
    let nodes = waiting.get(level);
    if (nodes === undefined) waiting.set(level, (nodes = new Map()));
    let list = nodes.get(node);
    if (list === undefined) nodes.set(node, (list = new Uint32Array(this.#words)));
    return list;
  }

  /** Lanes that are at a node by a level. */
  #upTo(node: number, level: number): Uint32Array {
    const { levels } = this.#s;
    const lanes = new Uint32Array(this.#words);
    for (let block = levels.head[node] as number; block !== -1; block = levels.next(block)) {
      if (levels.levelOf(block) > level) continue;
      const base = block * this.#words;
      for (let w = 0; w < this.#words; w++) lanes[w] = (lanes[w] as number) | (levels.bits[base + w] as number);
    }
    return lanes;
  }

  withdraw(): void {
    for (let level = lowest(this.#doubts); level !== undefined; level = lowest(this.#doubts)) {
      const nodes = this.#doubts.get(level) ?? new Map<number, Uint32Array>();
      this.#doubts.delete(level);
      for (const [node, lanes] of nodes) {
        const supported = this.#support(node, level);
        for (let w = 0; w < this.#words; w++) lanes[w] = (lanes[w] as number) & ~(supported[w] as number);
        if (!isZero(lanes)) this.#takeBack(node, level, lanes);
      }
    }
    for (const [node, lanes] of this.#withdrawn) this.#offerAgain(node, lanes);
    this.#withdrawn.clear();
  }

  /** Lanes that something still carries to a node at a level. */
  #support(node: number, level: number): Uint32Array {
    const { graph, levels, sources } = this.#s;
    if (level === 0) return sources.slice(node * this.#words, (node + 1) * this.#words);
    const lanes = new Uint32Array(this.#words);
    for (const edge of graph.in(node)) {
      const block = levels.find(graph.from(edge), level - 1);
      if (block === -1) continue;
      const base = block * this.#words;
      const carried = pass(graph.transfer(edge), levels.bits.subarray(base, base + this.#words));
      for (let w = 0; w < this.#words; w++) lanes[w] = (lanes[w] as number) | (carried[w] as number);
    }
    return lanes;
  }

  #takeBack(node: number, level: number, lanes: Uint32Array): void {
    const { graph, levels, reached } = this.#s;
    this.#remember(node);
    const base = levels.find(node, level) * this.#words;
    let withdrawn = this.#withdrawn.get(node);
    if (withdrawn === undefined) this.#withdrawn.set(node, (withdrawn = new Uint32Array(this.#words)));
    for (let w = 0; w < this.#words; w++) {
      const gone = lanes[w] as number;
      levels.bits[base + w] = (levels.bits[base + w] as number) & ~gone;
      reached[node * this.#words + w] = (reached[node * this.#words + w] as number) & ~gone;
      withdrawn[w] = (withdrawn[w] as number) | gone;
    }
    for (const edge of graph.out(node)) this.doubt(graph.to(edge), level + 1, pass(graph.transfer(edge), lanes));
  }

  /** Every other way by which withdrawn lanes could still arrive. */
  #offerAgain(node: number, lanes: Uint32Array): void {
    const { graph, levels, sources } = this.#s;
    const only = (from: Uint32Array): Uint32Array => from.map((bits, w) => bits & (lanes[w] as number));
    this.offer(node, 0, only(sources.subarray(node * this.#words, (node + 1) * this.#words)));
    for (const edge of graph.in(node)) {
      for (let block = levels.head[graph.from(edge)] as number; block !== -1; block = levels.next(block)) {
        const base = block * this.#words;
        const carried = pass(graph.transfer(edge), levels.bits.subarray(base, base + this.#words));
        this.offer(node, levels.levelOf(block) + 1, only(carried));
      }
    }
  }

  improve(): void {
    for (let level = lowest(this.#offers); level !== undefined; level = lowest(this.#offers)) {
      const nodes = this.#offers.get(level) ?? new Map<number, Uint32Array>();
      this.#offers.delete(level);
      for (const [node, lanes] of nodes) {
        const already = this.#upTo(node, level);
        for (let w = 0; w < this.#words; w++) lanes[w] = (lanes[w] as number) & ~(already[w] as number);
        if (!isZero(lanes)) this.#arrive(node, level, lanes);
      }
    }
  }

  #arrive(node: number, level: number, lanes: Uint32Array): void {
    const { graph, levels, reached } = this.#s;
    this.#remember(node);
    const here = levels.add(node, level);
    for (let block = levels.head[node] as number; block !== -1; block = levels.next(block)) {
      const base = block * this.#words;
      const later = levels.levelOf(block) > level;
      if (block !== here && !later) continue;
      for (let w = 0; w < this.#words; w++) {
        const bits = levels.bits[base + w] as number;
        levels.bits[base + w] = block === here ? bits | (lanes[w] as number) : bits & ~(lanes[w] as number);
      }
    }
    for (let w = 0; w < this.#words; w++) {
      reached[node * this.#words + w] = (reached[node * this.#words + w] as number) | (lanes[w] as number);
    }
    for (const edge of graph.out(node)) this.offer(graph.to(edge), level + 1, pass(graph.transfer(edge), lanes));
  }

  #remember(node: number): void {
    if (!this.#before.has(node)) {
      this.#before.set(node, this.#s.reached.slice(node * this.#words, (node + 1) * this.#words));
    }
  }

  /** What came and went at each node in the end. Nodes where only a level changed are left out. */
  shifts(): Shift[] {
    const shifts: Shift[] = [];
    for (const [node, before] of this.#before) {
      this.#s.levels.tidy(node);
      const after = this.#s.reached.subarray(node * this.#words, (node + 1) * this.#words);
      const gained = before.map((bits, w) => (after[w] as number) & ~bits);
      const lost = before.map((bits, w) => bits & ~(after[w] as number));
      if (!isZero(gained) || !isZero(lost)) shifts.push({ node, gained, lost });
    }
    return shifts;
  }
}

function lowest(waiting: Waiting): number | undefined {
  let least: number | undefined;
  for (const level of waiting.keys()) if (least === undefined || level < least) least = level;
  return least;
}
