import type { Inclusion, InclusionOptions } from "../inclusion/includes.js";
import { includesType } from "../inclusion/includes.js";
import { NO_VALUE, typeKey, type ValueType } from "../inclusion/type.js";
import { setBit } from "./bits.js";
import { PASS, type Transfer } from "./graph.js";
import type { Delegation, Workflow } from "./model.js";
import { collectedSets } from "./narrowings.js";

/** A capability as it arrives after some of the narrowings of its arguments, whatever the order. */
export interface Lane {
  readonly capability: string;
  readonly type: ValueType;
}

/** The lanes of one capability: one for each set of narrowings, written as the bits of a number. */
interface Bundle {
  readonly first: number;
  readonly narrowings: readonly string[];
  readonly sets: readonly number[];
  readonly laneOf: ReadonlyMap<number, number>;
}

/** Up to this many narrowings of one capability every set of them has a lane, so that any change finds its lanes. */
const MAX_CLOSED = 6;
/** Beyond that, only sets that some way collects have one, up to so many; narrowings past this number are left out. */
const MAX_NARROWINGS = 30;
const MAX_SETS = 1_024;

/**
 * One lane for each capability and each set of narrowings that a way through the workflow can collect. Narrowing is
 * then nothing but moving from lane to lane, and the analysis of names and of arguments is one search.
 */
export class Lanes {
  readonly list: readonly Lane[];
  readonly words: number;
  /** Capabilities for which narrowings were left out: their scope is taken for larger than it is. */
  readonly simplified: readonly string[];
  /** Whether a new delegation may collect a set that has no lane. */
  readonly isOpen: boolean;
  readonly #bundles = new Map<string, Bundle>();
  readonly #options: InclusionOptions;
  readonly #answers = new Map<string, Inclusion>();
  /** Many delegations narrow alike. */
  readonly #transfers = new Map<string, Transfer>();
  readonly #typeNumbers = new Map<string, number>();
  readonly #numberOf = new WeakMap<ValueType, number>();

  constructor(workflow: Workflow, options: InclusionOptions) {
    this.#options = options;
    const list: Lane[] = [];
    const simplified: string[] = [];
    let isOpen = false;
    const narrowings = this.#narrowings(workflow);
    for (const [name, { arguments: type }] of workflow.capabilities) {
      const all = [...(narrowings.get(name) ?? [])];
      const isClosed = all.length <= MAX_CLOSED;
      const kept = all.slice(0, MAX_NARROWINGS);
      const found = isClosed
        ? undefined
        : collectedSets(
            workflow,
            name,
            kept.map(([key]) => key),
            MAX_SETS,
          );
      const chosen = isClosed || found !== undefined ? kept : kept.slice(0, MAX_CLOSED);
      const sets = found ?? Array.from({ length: 2 ** chosen.length }, (_, set) => set);
      if (chosen.length < all.length) simplified.push(name);
      if (found !== undefined) isOpen = true;
      const laneOf = new Map(sets.map((set, i) => [set, list.length + i]));
      this.#bundles.set(name, { first: list.length, narrowings: chosen.map(([key]) => key), sets, laneOf });
      for (const set of sets) {
        const parts = chosen.filter((_, i) => ((set >> i) & 1) === 1).map(([, narrowing]) => narrowing);
        list.push({ capability: name, type: parts.length === 0 ? type : { is: "all", of: [type, ...parts] } });
      }
    }
    this.list = list;
    this.simplified = simplified;
    this.isOpen = isOpen;
    this.words = Math.max(1, Math.ceil(list.length / 32));
  }

  /** Every narrowing of every capability that takes something away, by how it is written. */
  #narrowings({ capabilities, delegations }: Workflow): Map<string, Map<string, ValueType>> {
    const found = new Map<string, Map<string, ValueType>>();
    const idle = new Set<string>();
    for (const delegation of delegations) {
      for (const [capability, type] of delegation.arguments ?? []) {
        const key = typeKey(type);
        const types = found.get(capability) ?? new Map<string, ValueType>();
        if (types.has(key) || idle.has(`${capability} ${key}`)) continue;
        const whole = capabilities.get(capability)?.arguments;
        if (whole === undefined || this.#includes(whole, type).answer === "yes") idle.add(`${capability} ${key}`);
        else found.set(capability, types.set(key, type));
      }
    }
    return found;
  }

  /** The lane of a capability with its arguments as the server takes them. */
  whole(capability: string): number {
    return this.#bundles.get(capability)?.first ?? -1;
  }

  /** All lanes of a capability. */
  of(capability: string): readonly number[] {
    const bundle = this.#bundles.get(capability);
    return bundle === undefined ? [] : bundle.sets.map((_, i) => bundle.first + i);
  }

  bits(lanes: Iterable<number>): Uint32Array {
    const bits = new Uint32Array(this.words);
    for (const lane of lanes) setBit(bits, 0, lane);
    return bits;
  }

  /** What a delegation lets through; undefined when it narrows by arguments for which there are no lanes yet. */
  transfer(delegation: Delegation): Transfer | undefined {
    const { only, arguments: narrowed } = delegation;
    if (only === undefined && (narrowed === undefined || narrowed.size === 0)) return PASS;
    const types = [...(narrowed ?? [])].map(([capability, type]) => [capability, this.#typeNumber(type)]);
    const key = JSON.stringify([only, types]);
    const known = this.#transfers.get(key);
    if (known !== undefined) return known;
    const transfer = this.#makeTransfer(delegation);
    if (transfer !== undefined) this.#transfers.set(key, transfer);
    return transfer;
  }

  #makeTransfer({ only, arguments: narrowed }: Delegation): Transfer | undefined {
    const passed = new Set((only ?? [...this.#bundles.keys()]).flatMap((capability) => this.of(capability)));
    const moves: [number, number][] = [];
    for (const [capability, type] of narrowed ?? []) {
      const bundle = this.#bundles.get(capability);
      if (bundle === undefined || (only !== undefined && !only.includes(capability))) continue;
      const bit = bundle.narrowings.indexOf(typeKey(type));
      if (bit === -1) {
        const isIdle = this.within(bundle.first, type).answer === "yes";
        if (isIdle || this.simplified.includes(capability)) continue;
        return undefined;
      }
      for (const set of bundle.sets) {
        if (((set >> bit) & 1) === 1) continue;
        const from = bundle.laneOf.get(set) as number;
        passed.delete(from);
        // Where no way collects the larger set, no way brings the smaller one here.
        const to = bundle.laneOf.get(set | (1 << bit));
        if (to !== undefined) moves.push([from, to]);
      }
    }
    return { mask: this.bits(passed), moves };
  }

  /** Whether all arguments of a lane are among `allowed`. */
  within(lane: number, allowed: ValueType): Inclusion {
    return this.#includes((this.list[lane] as Lane).type, allowed);
  }

  /** Whether no arguments at all are left: then nobody can use it. */
  isDead(lane: number): boolean {
    return this.within(lane, NO_VALUE).answer === "yes";
  }

  /** Remembered, because agents share servers and allow lists. */
  #includes(left: ValueType, right: ValueType): Inclusion {
    const key = `${this.#typeNumber(left)} ${this.#typeNumber(right)}`;
    let answer = this.#answers.get(key);
    if (answer === undefined) {
      answer = includesType(left, right, this.#options);
      this.#answers.set(key, answer);
    }
    return answer;
  }

  #typeNumber(type: ValueType): number {
    let number = this.#numberOf.get(type);
    if (number === undefined) {
      const key = typeKey(type);
      number = this.#typeNumbers.get(key) ?? this.#typeNumbers.size;
      this.#typeNumbers.set(key, number);
      this.#numberOf.set(type, number);
    }
    return number;
  }
}
