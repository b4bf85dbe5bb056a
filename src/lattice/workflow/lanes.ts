import type { Inclusion, InclusionOptions } from "../inclusion/includes.js";
import { includesType } from "../inclusion/includes.js";
import { NO_VALUE, typeKey, type ValueType } from "../inclusion/type.js";
import { setBit } from "./bits.js";
import { PASS, type Transfer } from "./graph.js";
import type { Delegation, Workflow } from "./model.js";

/** A capability as it arrives after some of the narrowings of its arguments, whatever the order. */
export interface Lane {
  readonly capability: string;
  readonly type: ValueType;
}

/** More narrowings than these of one capability are left out: its scope is then taken for larger than it is. */
const MAX_NARROWINGS = 6;

/**
 * One lane for each capability and each set of narrowings that a way through the workflow can collect. Narrowing is
 * then nothing but moving from lane to lane, and the analysis of names and of arguments is one search.
 */
export class Lanes {
  readonly list: readonly Lane[];
  readonly words: number;
  /** Capabilities for which some narrowings were left out. */
  readonly simplified: readonly string[];
  readonly #of = new Map<string, { readonly first: number; readonly narrowings: readonly string[] }>();
  readonly #options: InclusionOptions;
  readonly #answers = new Map<number, Inclusion>();
  readonly #typeNumbers = new Map<string, number>();
  readonly #numberOf = new WeakMap<ValueType, number>();

  constructor(workflow: Workflow, options: InclusionOptions) {
    this.#options = options;
    const narrowings = new Map<string, Map<string, ValueType>>();
    for (const delegation of workflow.delegations) {
      for (const [capability, type] of delegation.arguments ?? []) {
        let types = narrowings.get(capability);
        if (types === undefined) narrowings.set(capability, (types = new Map()));
        types.set(typeKey(type), type);
      }
    }
    const list: Lane[] = [];
    const simplified: string[] = [];
    for (const [name, { arguments: type }] of workflow.capabilities) {
      const all = [...(narrowings.get(name) ?? [])];
      if (all.length > MAX_NARROWINGS) simplified.push(name);
      const kept = all.slice(0, MAX_NARROWINGS);
      this.#of.set(name, { first: list.length, narrowings: kept.map(([key]) => key) });
      for (let set = 0; set < 2 ** kept.length; set++) {
        const chosen = kept.filter((_, i) => ((set >> i) & 1) === 1).map(([, narrowing]) => narrowing);
        list.push({ capability: name, type: chosen.length === 0 ? type : { is: "all", of: [type, ...chosen] } });
      }
    }
    this.list = list;
    this.simplified = simplified;
    this.words = Math.max(1, Math.ceil(list.length / 32));
  }

  /** The lane of a capability with its arguments as the server takes them. */
  whole(capability: string): number {
    return this.#of.get(capability)?.first ?? -1;
  }

  /** All lanes of a capability. */
  of(capability: string): readonly number[] {
    const lanes = this.#of.get(capability);
    if (lanes === undefined) return [];
    return Array.from({ length: 2 ** lanes.narrowings.length }, (_, set) => lanes.first + set);
  }

  bits(lanes: Iterable<number>): Uint32Array {
    const bits = new Uint32Array(this.words);
    for (const lane of lanes) setBit(bits, 0, lane);
    return bits;
  }

  /** What a delegation lets through; undefined when it narrows by arguments for which there is no lane yet. */
  transfer({ only, arguments: narrowed }: Delegation): Transfer | undefined {
    if (only === undefined && (narrowed === undefined || narrowed.size === 0)) return PASS;
    const passed = new Set((only ?? [...this.#of.keys()]).flatMap((capability) => this.of(capability)));
    const moves: [number, number][] = [];
    for (const [capability, type] of narrowed ?? []) {
      const lanes = this.#of.get(capability);
      if (lanes === undefined || (only !== undefined && !only.includes(capability))) continue;
      const bit = lanes.narrowings.indexOf(typeKey(type));
      if (bit === -1 && lanes.narrowings.length < MAX_NARROWINGS) return undefined;
      if (bit === -1) continue;
      for (let set = 0; set < 2 ** lanes.narrowings.length; set++) {
        if (((set >> bit) & 1) === 1) continue;
        passed.delete(lanes.first + set);
        moves.push([lanes.first + set, lanes.first + (set | (1 << bit))]);
      }
    }
    return { mask: this.bits(passed), moves };
  }

  /** Whether all arguments of a lane are among `allowed`; remembered, because agents share allow lists. */
  within(lane: number, allowed: ValueType): Inclusion {
    const key = this.#typeNumber(allowed) * this.list.length + lane;
    let answer = this.#answers.get(key);
    if (answer === undefined) {
      answer = includesType((this.list[lane] as Lane).type, allowed, this.#options);
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

  /** Whether no arguments at all are left: then nobody can use it. */
  isDead(lane: number): boolean {
    return this.within(lane, NO_VALUE).answer === "yes";
  }
}
