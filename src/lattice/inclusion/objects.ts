import {
  Best,
  type Formula,
  type Formulas,
  type InclusionOutcome,
  KIND,
  type Literal,
  none,
  type Solving,
  some,
  unknown,
} from "./formula.js";
import { namedFormula } from "./keywords.js";

/** Larger objects than this are not built as examples. */
const MAX_MEMBERS = 1_024;

interface Rule {
  readonly name: Formula;
  readonly value: Formula;
}

interface Box {
  readonly low: number;
  readonly high: number;
  /** Rules for one name each. */
  readonly forName: ReadonlyMap<string, readonly Formula[]>;
  /** Rules for sets of names. */
  readonly forNames: readonly Rule[];
  readonly needed: ReadonlyMap<string, readonly Formula[]>;
  readonly exists: readonly Rule[];
  readonly opaque: boolean;
}

/** A member that will be there: a fixed name, or any name that satisfies `names`. */
interface Member {
  readonly fixed: string | undefined;
  readonly names: readonly Formula[];
  readonly values: readonly Formula[];
}

function singleName(formula: Formula): string | undefined {
  const one = formula.op === "atom" && formula.holds && formula.atom.is === "oneOfStrings" ? formula.atom.values : [];
  return one.length === 1 ? one[0] : undefined;
}

function gather(f: Formulas, literals: readonly Literal[]): Box {
  let [low, high, opaque] = [0, Infinity, false];
  const forName = new Map<string, Formula[]>();
  const forNames: Rule[] = [];
  const needed = new Map<string, Formula[]>();
  const exists: Rule[] = [];
  const push = (map: Map<string, Formula[]>, name: string, value: Formula): void => {
    const list = map.get(name);
    if (list === undefined) map.set(name, [value]);
    else list.push(value);
  };
  for (const { atom, holds } of literals) {
    if (atom.is === "members" && holds) low = Math.max(low, atom.least);
    else if (atom.is === "members") high = Math.min(high, atom.least - 1);
    else if (atom.is === "values") {
      const name = singleName(atom.name);
      if (holds && name !== undefined) push(forName, name, atom.value);
      else if (holds) forNames.push(atom);
      else if (name !== undefined) push(needed, name, f.not(atom.value));
      else exists.push({ name: atom.name, value: f.not(atom.value) });
    } else opaque = true;
  }
  return { low, high, forName, forNames, needed, exists, opaque };
}

export function solveObject(solving: Solving, f: Formulas, literals: readonly Literal[]): InclusionOutcome {
  return new ObjectSearch(solving, f, gather(f, literals)).run();
}

class ObjectSearch {
  readonly #s: Solving;
  readonly #f: Formulas;
  readonly #box: Box;
  /** Every name that some rule singles out; all other names differ only by the sets they are in. */
  readonly #known: readonly string[];

  constructor(solving: Solving, f: Formulas, box: Box) {
    this.#s = solving;
    this.#f = f;
    this.#box = box;
    const listed = [...box.forNames, ...box.exists].flatMap(({ name }) => listedNames(name));
    this.#known = [...new Set([...box.forName.keys(), ...box.needed.keys(), ...listed])];
  }

  run(): InclusionOutcome {
    const { needed, high, low } = this.#box;
    if (needed.size > high || low > high) return none;
    if (low > MAX_MEMBERS) return unknown;
    const members: Member[] = [];
    for (const [name, values] of needed) {
      const member = this.#member(name, values);
      const outcome = this.#s.solve(member.values);
      if (outcome.is === "none") return outcome;
      members.push(member);
    }
    return this.#place(members, 0);
  }

  /** A member of a fixed name, with every rule that applies to that name. */
  #member(name: string, values: readonly Formula[]): Member {
    this.#s.spend(1 + (this.#box.forNames.length >> 4));
    const sets = this.#box.forNames.filter((rule) => this.#s.accepts(rule.name, name) === true);
    return {
      fixed: name,
      names: [],
      values: [...values, ...(this.#box.forName.get(name) ?? []), ...sets.map((rule) => rule.value)],
    };
  }

  /** Rules whose names could not be evaluated were left out: what was found is then a guess. */
  #certain(name: string): boolean {
    return this.#box.forNames.every((rule) => this.#s.accepts(rule.name, name) !== undefined);
  }

  /** Finds a member for each thing that must exist under some name, from obligation `next` on. */
  #place(members: readonly Member[], next: number): InclusionOutcome {
    const rule = this.#box.exists[next];
    if (rule === undefined) return this.#complete(members);
    this.#s.spend();
    const best = new Best();
    for (const [at, member] of members.entries()) {
      const joined = this.#join(member, rule);
      if (joined === undefined) continue;
      const outcome = this.#feasible(joined);
      if (best.add(outcome.is === "none" ? outcome : this.#place(members.with(at, joined), next + 1))) {
        return best.outcome;
      }
    }
    if (members.length >= this.#box.high) return best.outcome;
    for (const member of this.#newMembers(members, rule, best)) {
      if (best.add(this.#place([...members, member], next + 1))) break;
    }
    return best.outcome;
  }

  /** The member with one more rule to satisfy; undefined when its name is not one that the rule speaks of. */
  #join(member: Member, rule: Rule): Member | undefined {
    if (member.fixed === undefined) {
      return { ...member, names: [...member.names, rule.name], values: [...member.values, rule.value] };
    }
    if (this.#s.accepts(rule.name, member.fixed) === false) return undefined;
    return { ...member, values: [...member.values, rule.value] };
  }

  #feasible(member: Member): InclusionOutcome {
    if (member.fixed === undefined) {
      const name = this.#s.solve(member.names, KIND.string);
      if (name.is === "none") return name;
    }
    return this.#s.solve(member.values);
  }

  /** Every kind of member that could be added to satisfy a rule: known names, then the regions of all other names. */
  *#newMembers(members: readonly Member[], rule: Rule, best: Best): Iterable<Member> {
    this.#s.spend(1 + (this.#known.length >> 4));
    const there = new Set(members.map((member) => member.fixed));
    for (const name of this.#known) {
      if (there.has(name) || this.#s.accepts(rule.name, name) === false) continue;
      const member = this.#member(name, [rule.value]);
      const outcome = this.#s.solve(member.values);
      if (outcome.is === "none") best.add(outcome);
      else yield member;
    }
    yield* this.#regions([rule.name, this.#f.not(namedFormula(this.#f, this.#known))], [rule.value], 0, best);
  }

  /** Splits the names by which of the rules for sets of names apply. */
  *#regions(names: readonly Formula[], values: readonly Formula[], next: number, best: Best): Iterable<Member> {
    this.#s.spend();
    const possible = this.#s.solve(names, KIND.string);
    if (possible.is === "none") {
      best.add(possible);
      return;
    }
    const rule = this.#box.forNames[next];
    if (rule === undefined) {
      const outcome = this.#s.solve(values);
      if (outcome.is === "none") best.add(outcome);
      else yield { fixed: undefined, names, values };
      return;
    }
    yield* this.#regions([...names, this.#f.not(rule.name)], values, next + 1, best);
    yield* this.#regions([...names, rule.name], [...values, rule.value], next + 1, best);
  }

  /** Gives every member a name of its own and a value, and adds members until there are enough. */
  #complete(members: readonly Member[]): InclusionOutcome {
    const { low, high, opaque } = this.#box;
    const chosen = new Map<string, unknown>();
    let sure = !opaque;
    const add = (member: Member): InclusionOutcome => {
      const name = this.#nameOf(member, chosen);
      if (name.is !== "some") return name;
      const value = this.#s.solve(member.values);
      if (value.is !== "some") return value;
      sure &&= name.sure && value.sure && this.#certain(String(name.value));
      chosen.set(String(name.value), value.value);
      return value;
    };
    for (const member of members) {
      const outcome = add(member);
      // A name taken by an earlier member may have been free under another choice: no proof.
      if (outcome.is !== "some") return outcome.is === "none" && member.fixed !== undefined ? outcome : unknown;
    }
    while (chosen.size < low) {
      const relies = this.#extend(chosen, add);
      if (relies !== undefined) return relies;
    }
    if (chosen.size > high) return unknown;
    return some(Object.fromEntries(chosen), sure);
  }

  #nameOf(member: Member, chosen: ReadonlyMap<string, unknown>): InclusionOutcome {
    if (member.fixed !== undefined) return some(member.fixed, true);
    const free = this.#f.not(namedFormula(this.#f, [...chosen.keys()]));
    return this.#s.solve([...member.names, free], KIND.string);
  }

  /** One more member of any name; what it returns is why there can be none. */
  #extend(
    chosen: ReadonlyMap<string, unknown>,
    add: (member: Member) => InclusionOutcome,
  ): InclusionOutcome | undefined {
    this.#s.spend();
    const best = new Best();
    for (const name of this.#known) {
      if (chosen.has(name)) continue;
      const outcome = add(this.#member(name, []));
      if (outcome.is === "some") return undefined;
      best.add(outcome);
    }
    const taken = this.#f.not(namedFormula(this.#f, [...this.#known, ...chosen.keys()]));
    for (const member of this.#regions([taken], [], 0, best)) {
      const outcome = add(member);
      if (outcome.is === "some") return undefined;
      best.add(outcome);
    }
    // Every name that may occur is taken, whichever way the members were named.
    return best.outcome;
  }
}

/** Names that a formula lists, one by one or as exceptions. */
function listedNames(formula: Formula): readonly string[] {
  if (formula.op === "and" || formula.op === "or") return formula.list.flatMap(listedNames);
  return formula.op === "atom" && formula.atom.is === "oneOfStrings" ? formula.atom.values : [];
}
