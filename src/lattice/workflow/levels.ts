/**
 * For every node and lane: whether the lane reaches the node, and after how many edges at the earliest. A lane is one
 * bit; all lanes of a node are handled together, 32 at a time. The bits of a node are kept in one block for each level
 * at which some of them arrive first, so that levels, shortest paths and updates all read the same blocks.
 */
export class Levels {
  readonly words: number;
  /** First block of a node, -1 for none. */
  readonly head: Int32Array;
  #next: Int32Array;
  #level: Int32Array;
  #bits: Uint32Array;
  #used = 0;
  #free = -1;

  constructor(nodes: number, words: number) {
    this.words = words;
    this.head = new Int32Array(nodes).fill(-1);
    const blocks = Math.max(16, nodes);
    this.#next = new Int32Array(blocks);
    this.#level = new Int32Array(blocks);
    this.#bits = new Uint32Array(blocks * words);
  }

  /** All blocks one after the other, `words` each. Read again after every `add`: it may have moved. */
  get bits(): Uint32Array {
    return this.#bits;
  }

  next(block: number): number {
    return this.#next[block] as number;
  }

  levelOf(block: number): number {
    return this.#level[block] as number;
  }

  /** The block of a node at a level, -1 for none. */
  find(node: number, level: number): number {
    let block = this.head[node] as number;
    while (block !== -1 && this.#level[block] !== level) block = this.#next[block] as number;
    return block;
  }

  /** The block of a node at a level, made empty when there was none. */
  add(node: number, level: number): number {
    const found = this.find(node, level);
    if (found !== -1) return found;
    const block = this.#allocate();
    this.#level[block] = level;
    this.#next[block] = this.head[node] as number;
    this.head[node] = block;
    return block;
  }

  #allocate(): number {
    if (this.#free !== -1) {
      const block = this.#free;
      this.#free = this.#next[block] as number;
      return block;
    }
    if (this.#used === this.#next.length) this.#grow();
    return this.#used++;
  }

  #grow(): void {
    const blocks = this.#next.length * 2;
    const next = new Int32Array(blocks);
    next.set(this.#next);
    this.#next = next;
    const level = new Int32Array(blocks);
    level.set(this.#level);
    this.#level = level;
    const bits = new Uint32Array(blocks * this.words);
    bits.set(this.#bits);
    this.#bits = bits;
  }

  /** Gives back blocks of a node that have become empty. */
  tidy(node: number): void {
    let before = -1;
    for (let block = this.head[node] as number; block !== -1; ) {
      const after = this.#next[block] as number;
      if (this.#isEmpty(block)) {
        if (before === -1) this.head[node] = after;
        else this.#next[before] = after;
        this.#next[block] = this.#free;
        this.#free = block;
      } else before = block;
      block = after;
    }
  }

  #isEmpty(block: number): boolean {
    const { words } = this;
    const bits = this.#bits;
    for (let w = block * words; w < (block + 1) * words; w++) if (bits[w] !== 0) return false;
    return true;
  }

  /** The level at which a lane arrives at a node, -1 when it does not. */
  levelAt(node: number, lane: number): number {
    const { words } = this;
    const word = lane >>> 5;
    const bit = 1 << (lane & 31);
    for (let block = this.head[node] as number; block !== -1; block = this.#next[block] as number) {
      if (((this.#bits[block * words + word] as number) & bit) !== 0) return this.#level[block] as number;
    }
    return -1;
  }
}
