// Follows the records of a log and names the one that is wrong. A broken link shows only that one of two neighbours
// was changed; the line after them shows which one. So every line is checked when the next one is known.

/** One line as it was found. */
export interface SeenRecords {
  /** Undefined when the line is not a record. */
  readonly seq: number | undefined;
  readonly prev: string | undefined;
  readonly leaf: string;
  /** The leaf hash the tiles hold for this place, where they do. */
  readonly tile: string | undefined;
  readonly segment: string;
  readonly line: number;
}

export type ProblemKind =
  | "altered"
  | "missing"
  | "misplaced"
  | "truncated"
  | "checkpoint"
  | "tiles"
  | "pruned"
  | "unreadable";

export interface LedgerProblem {
  readonly kind: ProblemKind;
  /** The record concerned, where it is known. */
  readonly seq: number | undefined;
  readonly segment: string | undefined;
  readonly line: number | undefined;
  /** The problem as one sentence. */
  readonly message: string;
}

export class HashChain {
  readonly #report: (problem: LedgerProblem) => void;
  #expected: number;
  /** What the next record has to name as its `prev`; undefined after a line already found wrong. */
  #leaf: string | undefined;
  #last: SeenRecords | undefined;
  #held: SeenRecords | undefined;

  constructor(first: number, prev: string | undefined, report: (problem: LedgerProblem) => void) {
    this.#expected = first;
    this.#leaf = prev;
    this.#report = report;
  }

  push(next: SeenRecords): void {
    if (this.#held !== undefined) this.#check(this.#held, next);
    this.#held = next;
  }

  end(): void {
    if (this.#held !== undefined) this.#check(this.#held, undefined);
    this.#held = undefined;
  }

  #check(line: SeenRecords, next: SeenRecords | undefined): void {
    if (line.seq === undefined) {
      this.#addProblem("altered", this.#expected, line, "is not a record any more: the line was changed");
      this.#advance(line, undefined);
    } else if (line.seq === this.#expected) {
      this.#judgeLink(line, next);
    } else {
      this.#judgeOrder(line, line.seq, next);
    }
  }

  #judgeLink(line: SeenRecords, next: SeenRecords | undefined): void {
    const seq = this.#expected;
    if (this.#leaf === undefined || line.prev === this.#leaf) return this.#advance(line, line.leaf);
    const last = this.#last;
    const isVouchedFor = next === undefined ? line.tile === line.leaf : next.prev === line.leaf;
    const lastIsVouchedFor = last === undefined || (last.tile === last.leaf && !isVouchedFor);
    if (next !== undefined ? isVouchedFor && last !== undefined : !lastIsVouchedFor) {
      this.#addProblem("altered", seq - 1, last as SeenRecords, `was changed: record ${seq} names another hash for it`);
      return this.#advance(line, line.leaf);
    }
    this.#addProblem("altered", seq, line, `was changed: it does not continue record ${seq - 1}`);
    this.#advance(line, undefined);
  }

  #judgeOrder(line: SeenRecords, seq: number, next: SeenRecords | undefined): void {
    const expected = this.#expected;
    // No record follows the last one to confirm its position; its link to the record before does.
    const continues = next === undefined && this.#leaf !== undefined && line.prev === this.#leaf;
    if (next?.seq === expected + 1 || continues) {
      this.#addProblem("altered", expected, line, `was changed: its seq reads ${seq}`);
      return this.#advance(line, undefined);
    }
    if (seq < expected) {
      // What follows still continues the record before this one.
      return this.#addProblem("misplaced", seq, line, `stands after record ${expected - 1}: inserted or moved`);
    }
    if (next?.seq === expected) {
      return this.#addProblem("misplaced", seq, line, `stands before record ${expected}: inserted or moved`);
    }
    const which = seq - 1 === expected ? `record ${expected} is` : `records ${expected} to ${seq - 1} are`;
    const message = `${which} missing before ${line.segment} line ${line.line}, which holds record ${seq}`;
    this.#report({ kind: "missing", seq: expected, segment: line.segment, line: line.line, message });
    this.#expected = seq;
    this.#advance(line, line.leaf);
  }

  #advance(line: SeenRecords, leaf: string | undefined): void {
    this.#expected++;
    this.#leaf = leaf;
    this.#last = line;
  }

  #addProblem(kind: ProblemKind, seq: number, { segment, line }: SeenRecords, what: string): void {
    this.#report({ kind, seq, segment, line, message: `record ${seq} (${segment} line ${line}) ${what}` });
  }
}
