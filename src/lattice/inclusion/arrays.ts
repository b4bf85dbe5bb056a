import { equalityKey } from "../../schema/documents/index.js";
import {
  Best,
  type Formula,
  type Formulas,
  type InclusionOutcome,
  type Literal,
  NOTHING,
  type Solving,
  some,
  unknown,
} from "./formula.js";
import { oneOfValues } from "./keywords.js";

/** Longer arrays than this are not built as examples. */
const MAX_ITEMS = 4_096;

interface Rule {
  readonly from: number;
  readonly to: number;
  readonly item: Formula;
}

interface Box {
  readonly low: number;
  readonly high: number;
  readonly every: readonly Rule[];
  /** Each needs its own position when `group` is the same. */
  readonly exists: readonly (Rule & { readonly group: number })[];
  /** Fewer than `below` items satisfy `item`. */
  readonly few: readonly { readonly below: number; readonly item: Formula }[];
  readonly unique: boolean | undefined;
  readonly opaque: boolean;
}

interface Supply {
  readonly values: readonly unknown[];
  readonly sure: boolean;
  readonly relies: number;
}

const MAX_COPIES = 64;

function gather(f: Formulas, literals: readonly Literal[]): Box | undefined {
  let [low, high, opaque] = [0, Infinity, false];
  const every: Rule[] = [];
  const exists: (Rule & { group: number })[] = [];
  const few: { below: number; item: Formula }[] = [];
  let unique: boolean | undefined;
  for (const [group, { atom, holds }] of literals.entries()) {
    if (atom.is === "size" && holds) low = Math.max(low, atom.least);
    else if (atom.is === "size") high = Math.min(high, atom.least - 1);
    else if (atom.is === "items" && holds) every.push(atom);
    else if (atom.is === "items") exists.push({ ...atom, item: f.not(atom.item), group });
    else if (atom.is === "count" && holds) {
      if (atom.least > MAX_COPIES) return undefined;
      const rule = { from: 0, to: Infinity, item: atom.item, group };
      for (let n = 0; n < atom.least; n++) exists.push(rule);
    } else if (atom.is === "count" && atom.least === 1) every.push({ from: 0, to: Infinity, item: f.not(atom.item) });
    else if (atom.is === "count") few.push({ below: atom.least, item: atom.item });
    else if (atom.is === "unique") unique = holds;
    else opaque = true;
  }
  return { low, high, every, exists, few, unique, opaque };
}

export function solveArray(solving: Solving, f: Formulas, literals: readonly Literal[]): InclusionOutcome {
  const box = gather(f, literals);
  return box === undefined ? unknown : new ArraySearch(solving, f, box).run();
}

class ArraySearch {
  readonly #s: Solving;
  readonly #f: Formulas;
  readonly #box: Box;
  /** From this position on every position has the same rules. */
  readonly #tail: number;

  constructor(solving: Solving, f: Formulas, box: Box) {
    this.#s = solving;
    this.#f = f;
    this.#box = box;
    const edges = [...box.every, ...box.exists].flatMap(({ from, to }) => [from, to]).filter(Number.isFinite);
    this.#tail = Math.max(0, ...edges);
  }

  run(): InclusionOutcome {
    const { low, exists, unique } = this.#box;
    const best = new Best();
    const high = this.#longest(best);
    // Items beyond these could be taken out of any array that satisfies the rules without breaking one.
    const enough = Math.max(low, this.#tail + exists.length + (unique === false ? 2 : 0));
    if (low > MAX_ITEMS) return unknown;
    for (let length = low; length <= Math.min(high, enough); length++) {
      this.#s.spend();
      if (best.add(this.#ofLength(length))) break;
    }
    return best.outcome;
  }

  #rulesAt(position: number): Formula[] {
    this.#s.spend(1 + (this.#box.every.length >> 4));
    return this.#box.every.filter(({ from, to }) => from <= position && position < to).map(({ item }) => item);
  }

  /** The greatest possible length: one short of the first position that no value can fill. */
  #longest(best: Best): number {
    const { high } = this.#box;
    for (let position = 0; position <= this.#tail && position < high; position++) {
      const outcome = this.#s.solve(this.#rulesAt(position));
      if (outcome.is !== "none") continue;
      best.add(outcome);
      return position;
    }
    return high;
  }

  #ofLength(length: number): InclusionOutcome {
    const slots = Array.from({ length }, (_, position) => this.#rulesAt(position));
    if (this.#box.unique !== false) return this.#place(slots, 0, -1, this.#tail);
    const best = new Best();
    // Two equal items somewhere; positions past the tail are interchangeable, so two of them stand for all.
    const span = Math.min(length, this.#tail + 2);
    for (let i = 0; i < span; i++) {
      for (let j = i + 1; j < span; j++) {
        const both = [...(slots[i] ?? []), ...(slots[j] ?? [])];
        const trial = slots.map((slot, at) => (at === i || at === j ? both : slot));
        if (best.add(this.#place(trial, 0, -1, Math.max(this.#tail, j + 1), [i, j]))) return best.outcome;
      }
    }
    return best.outcome;
  }

  /** Finds a position for each thing that must exist, from obligation `next` on. */
  #place(
    slots: Formula[][],
    next: number,
    after: number,
    used: number,
    equal?: readonly [number, number],
  ): InclusionOutcome {
    const rule = this.#box.exists[next];
    if (rule === undefined) return this.#fill(slots, equal);
    this.#s.spend();
    const best = new Best();
    const again = this.#box.exists[next + 1]?.group === rule.group;
    // Past `used` all positions are alike: the first of them stands for all.
    const last = Math.min(slots.length, rule.to, used + 1);
    for (let position = Math.max(rule.from, after + 1); position < last; position++) {
      const both = equal?.includes(position) ? equal : [position];
      const trial = slots.map((slot, at) => (both.includes(at) ? [...slot, rule.item] : slot));
      const outcome = this.#s.solve(trial[position] ?? []);
      const placed =
        outcome.is === "none"
          ? outcome
          : this.#place(trial, next + 1, again ? position : -1, Math.max(used, position + 1), equal);
      if (best.add(placed)) break;
    }
    return best.outcome;
  }

  #fill(slots: Formula[][], equal: readonly [number, number] | undefined): InclusionOutcome {
    const kept = this.#keepFew(slots);
    if (!Array.isArray(kept)) return kept;
    if (this.#box.unique === true) return this.#distinct(kept);
    const values: unknown[] = [];
    let sure = !this.#box.opaque;
    for (const [position, slot] of kept.entries()) {
      const outcome = this.#s.solve(slot);
      if (outcome.is !== "some") return outcome;
      // The second of two equal items takes the value of the first: rules for both stand in both.
      values.push(equal?.[1] === position ? values[equal[0]] : outcome.value);
      sure &&= outcome.sure;
    }
    return some(values, sure);
  }

  /** Keeps items out of what only few may satisfy, wherever they can be kept out. */
  #keepFew(slots: Formula[][]): Formula[][] | InclusionOutcome {
    let kept = slots;
    for (const { below, item } of this.#box.few) {
      const outside = this.#f.not(item);
      const outcomes = kept.map((slot) => this.#s.solve([...slot, outside]));
      const forced = outcomes.filter((outcome) => outcome.is === "none");
      if (forced.length >= below) {
        // With one such rule this is a proof; after another has already narrowed the slots it is not.
        const relies = Math.min(...forced.map((outcome) => (outcome.is === "none" ? outcome.relies : 0)));
        return kept === slots ? { is: "none", relies } : unknown;
      }
      kept = kept.map((slot, at) => (outcomes[at]?.is === "none" ? slot : [...slot, outside]));
    }
    return kept;
  }

  /** Different values for all positions: exact when the scarce positions are few, by matching them to their values. */
  #distinct(slots: Formula[][]): InclusionOutcome {
    const supply = new Map<string, Supply | undefined>();
    const keyOf = (slot: readonly Formula[]): string => [...new Set(slot.map((part) => part.id))].toSorted().join();
    for (const slot of slots) {
      if (!supply.has(keyOf(slot))) supply.set(keyOf(slot), this.#supply(slot, slots.length));
    }
    const offers = slots.map((slot) => supply.get(keyOf(slot)));
    const taken = new Map<string, number>();
    const assign = (position: number, tried: Set<string>): boolean => {
      for (const value of offers[position]?.values ?? []) {
        const text = equalityKey(value);
        if (tried.has(text)) continue;
        tried.add(text);
        const holder = taken.get(text);
        if (holder === undefined || assign(holder, tried)) {
          taken.set(text, position);
          return true;
        }
      }
      return false;
    };
    let sure = !this.#box.opaque;
    for (const [position, offer] of offers.entries()) {
      if (offer === undefined) return unknown;
      if (!assign(position, new Set())) {
        // The values offered are at least those that exist, so that no matching is a proof, unless `few` was a choice.
        const relies = Math.min(...offers.map((other) => other?.relies ?? 0));
        return this.#box.few.length === 0 ? { is: "none", relies } : unknown;
      }
      sure &&= offer.sure;
    }
    const byPosition = new Map([...taken].map(([text, position]) => [position, text]));
    return some(
      slots.map((_, position) => offers[position]?.values.find((v) => equalityKey(v) === byPosition.get(position))),
      sure,
    );
  }

  /** Up to `wanted` different values; fewer only when there are no others. */
  #supply(slot: readonly Formula[], wanted: number): Supply | undefined {
    const values: unknown[] = [];
    let sure = true;
    while (values.length < wanted) {
      const outcome = this.#s.solve([...slot, this.#f.not(oneOfValues(this.#f, values))]);
      if (outcome.is === "unknown") return undefined;
      if (outcome.is === "none") return { values, sure, relies: outcome.relies };
      sure &&= outcome.sure;
      values.push(outcome.value);
    }
    return { values, sure, relies: NOTHING };
  }
}
