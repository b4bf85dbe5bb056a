import { CharSet } from "refa";
import { Budget, BudgetExceeded } from "../errors.js";

/**
 * Regular languages over code points, closed under union, intersection and complement. Terms are hash-consed and kept
 * in a normal form in which union and intersection are associative, commutative and idempotent: that is what keeps the
 * number of different derivatives of a term finite (Brzozowski 1964; Owens, Reppy, Turon 2009).
 */
export type Language = { readonly id: number; readonly nullable: boolean } & (
  | { readonly op: "none" }
  | { readonly op: "empty" }
  | { readonly op: "set"; readonly set: CharSet }
  | { readonly op: "cat"; readonly head: Language; readonly tail: Language }
  | { readonly op: "or" | "and"; readonly list: readonly Language[] }
  | { readonly op: "not"; readonly of: Language }
  | { readonly op: "loop"; readonly of: Language; readonly min: number; readonly max: number }
);

type Shape = Language extends infer L ? (L extends Language ? Omit<L, "id"> : never) : never;

const MAX_CODE_POINT = 0x10ffff;
const DEFAULT_STEPS = 100_000;

export class Languages {
  #budget = new Budget("automaton steps", DEFAULT_STEPS);
  readonly #terms = new Map<string, Language>();
  readonly #derivatives = new Map<string, Language>();
  readonly #classes = new Map<number, readonly CharSet[]>();
  readonly none = this.#intern("none", { op: "none", nullable: false });
  /** The language that holds only the empty string. */
  readonly empty = this.#intern("empty", { op: "empty", nullable: true });
  readonly any = this.set(CharSet.all(MAX_CODE_POINT));
  readonly all = this.#intern(`loop 0 Infinity ${this.any.id}`, {
    op: "loop",
    of: this.any,
    min: 0,
    max: Infinity,
    nullable: true,
  });

  /** Runs work that may build terms; undefined when it needed more than `limit` steps. */
  bounded<T>(limit: number, work: () => T): T | undefined {
    const outer = this.#budget;
    this.#budget = new Budget("automaton steps", limit);
    try {
      return work();
    } catch (error) {
      if (error instanceof BudgetExceeded) return undefined;
      throw error;
    } finally {
      this.#budget = outer;
    }
  }

  spend(amount: number): void {
    this.#budget.spend(amount);
  }

  #intern(key: string, shape: Shape): Language {
    let term = this.#terms.get(key);
    if (term === undefined) {
      this.#budget.spend(1 + (key.length >> 6));
      term = { id: this.#terms.size, ...shape } as Language;
      this.#terms.set(key, term);
    }
    return term;
  }

  set(set: CharSet): Language {
    if (set.isEmpty) return this.none;
    return this.#intern(`set ${set.ranges.map((r) => `${r.min}-${r.max}`).join()}`, {
      op: "set",
      set,
      nullable: false,
    });
  }

  word(text: string): Language {
    const characters = [...text].map((c) => CharSet.fromCharacter(MAX_CODE_POINT, c.codePointAt(0) ?? 0));
    return characters.reduceRight<Language>((tail, set) => this.cat(this.set(set), tail), this.empty);
  }

  cat(head: Language, tail: Language): Language {
    if (head === this.none || tail === this.none) return this.none;
    if (head === this.empty) return tail;
    if (tail === this.empty) return head;
    if (head.op === "cat") return this.cat(head.head, this.cat(head.tail, tail));
    if (head === this.all && (tail === this.all || (tail.op === "cat" && tail.head === this.all))) return tail;
    return this.#intern(`cat ${head.id} ${tail.id}`, {
      op: "cat",
      head,
      tail,
      nullable: head.nullable && tail.nullable,
    });
  }

  or(...parts: readonly Language[]): Language {
    const flat = new Map<number, Language>();
    let sets: CharSet | undefined;
    const add = (part: Language): void => {
      if (part.op === "or") for (const inner of part.list) add(inner);
      else if (part.op === "set") sets = sets === undefined ? part.set : sets.union(part.set);
      else if (part !== this.none) flat.set(part.id, part);
    };
    for (const part of parts) add(part);
    if (sets !== undefined) {
      const merged = this.set(sets);
      flat.set(merged.id, merged);
    }
    if (flat.has(this.all.id)) return this.all;
    for (const part of flat.values()) if (part.op === "not" && flat.has(part.of.id)) return this.all;
    if (flat.has(this.empty.id) && [...flat.values()].some((p) => p !== this.empty && p.nullable)) {
      flat.delete(this.empty.id);
    }
    return this.#list("or", flat, this.none);
  }

  and(...parts: readonly Language[]): Language {
    const flat = new Map<number, Language>();
    let sets: CharSet | undefined;
    const add = (part: Language): void => {
      if (part.op === "and") for (const inner of part.list) add(inner);
      else if (part.op === "set") sets = sets === undefined ? part.set : sets.intersect(part.set);
      else if (part !== this.all) flat.set(part.id, part);
    };
    for (const part of parts) add(part);
    if (sets !== undefined) {
      const merged = this.set(sets);
      flat.set(merged.id, merged);
    }
    if (flat.has(this.none.id)) return this.none;
    if (flat.has(this.empty.id)) return [...flat.values()].every((p) => p.nullable) ? this.empty : this.none;
    for (const part of flat.values()) if (part.op === "not" && flat.has(part.of.id)) return this.none;
    return this.#list("and", flat, this.all);
  }

  #list(op: "or" | "and", flat: Map<number, Language>, unit: Language): Language {
    const list = [...flat.values()].toSorted((a, b) => a.id - b.id);
    if (list.length === 0) return unit;
    if (list.length === 1) return list[0] as Language;
    const nullable = op === "or" ? list.some((p) => p.nullable) : list.every((p) => p.nullable);
    return this.#intern(`${op} ${list.map((p) => p.id).join()}`, { op, list, nullable });
  }

  not(of: Language): Language {
    if (of.op === "not") return of.of;
    if (of === this.none) return this.all;
    if (of === this.all) return this.none;
    return this.#intern(`not ${of.id}`, { op: "not", of, nullable: !of.nullable });
  }

  loop(of: Language, min: number, max: number): Language {
    if (max === 0 || of === this.empty) return this.empty;
    if (of === this.none) return min === 0 ? this.empty : this.none;
    if (min === 1 && max === 1) return of;
    // A body that can be empty fills any number of rounds, so the lower bound says nothing.
    const low = of.nullable ? 0 : min;
    if (of.op === "loop" && of.min === 0 && of.max === Infinity) return of;
    return this.#intern(`loop ${low} ${max} ${of.id}`, {
      op: "loop",
      of,
      min: low,
      max,
      nullable: low === 0,
    });
  }

  /** What may follow `character`. */
  derive(of: Language, character: number): Language {
    switch (of.op) {
      case "none":
      case "empty":
        return this.none;
      case "set":
        return of.set.has(character) ? this.empty : this.none;
    }
    const key = `${of.id} ${character}`;
    let result = this.#derivatives.get(key);
    if (result === undefined) {
      result = this.#derive(of, character);
      this.#derivatives.set(key, result);
    }
    return result;
  }

  #derive(of: Exclude<Language, { op: "none" | "empty" | "set" }>, character: number): Language {
    switch (of.op) {
      case "cat": {
        const first = this.cat(this.derive(of.head, character), of.tail);
        return of.head.nullable ? this.or(first, this.derive(of.tail, character)) : first;
      }
      case "or":
        return this.or(...of.list.map((part) => this.derive(part, character)));
      case "and":
        return this.and(...of.list.map((part) => this.derive(part, character)));
      case "not":
        return this.not(this.derive(of.of, character));
      case "loop":
        return this.cat(this.derive(of.of, character), this.loop(of.of, Math.max(0, of.min - 1), of.max - 1));
    }
  }

  /** A partition of all characters such that derivatives by two characters of one class are equal. */
  classes(of: Language): readonly CharSet[] {
    let result = this.#classes.get(of.id);
    if (result === undefined) {
      result = this.#partition(of);
      this.#classes.set(of.id, result);
    }
    return result;
  }

  #partition(of: Language): readonly CharSet[] {
    switch (of.op) {
      case "none":
      case "empty":
        return [CharSet.all(MAX_CODE_POINT)];
      case "set":
        return [of.set, of.set.negate()].filter((set) => !set.isEmpty);
      case "cat":
        return of.head.nullable ? this.#refine(this.classes(of.head), this.classes(of.tail)) : this.classes(of.head);
      case "or":
      case "and":
        return of.list.map((part) => this.classes(part)).reduce((a, b) => this.#refine(a, b));
      case "not":
      case "loop":
        return this.classes(of.of);
    }
  }

  #refine(left: readonly CharSet[], right: readonly CharSet[]): readonly CharSet[] {
    if (left.length === 1 || left === right) return right;
    if (right.length === 1) return left;
    this.#budget.spend(left.length * right.length);
    return left.flatMap((a) => right.map((b) => a.intersect(b)).filter((set) => !set.isEmpty));
  }
}

/** A character of the class that a person can read, where there is one. */
function pick(set: CharSet): number {
  for (const range of READABLE) {
    const found = set.commonCharacter(range);
    if (found !== undefined) return found;
  }
  const first = set.ranges.find((range) => range.min < 0xd800 || range.max > 0xdfff) ?? set.ranges[0];
  if (first === undefined) return 0;
  return first.min >= 0xd800 && first.min <= 0xdfff ? Math.min(first.max, 0xe000) : first.min;
}

const READABLE = [
  { min: 0x61, max: 0x7a },
  { min: 0x41, max: 0x5a },
  { min: 0x30, max: 0x39 },
  { min: 0x21, max: 0x7e },
  { min: 0x20, max: 0x20 },
  { min: 0xa1, max: 0xd7ff },
];

/**
 * The shortest words of a language, at most `count`, one for each accepting state met. An empty list is a proof that
 * the language is empty: the search ends only when every derivative has been seen. Undefined when `limit` steps did
 * not suffice to find the first word or to see them all.
 */
export function wordsOfLanguage(
  languages: Languages,
  language: Language,
  count: number,
  limit: number,
): string[] | undefined {
  const found: string[] = [];
  const finished = languages.bounded(limit, () => search(languages, language, count, found));
  return finished === undefined && found.length === 0 ? undefined : found;
}

function search(languages: Languages, language: Language, count: number, found: string[]): true {
  type Step = { readonly term: Language; readonly from: Step | undefined; readonly character: number };
  const seen = new Set<number>([language.id]);
  const queue: Step[] = [{ term: language, from: undefined, character: 0 }];
  for (let at = 0; at < queue.length; at++) {
    const step = queue[at] as Step;
    if (step.term.nullable) {
      found.push(spell(step));
      if (found.length >= count) return true;
    }
    const classes = languages.classes(step.term);
    languages.spend(1 + classes.length);
    for (const set of classes) {
      const character = pick(set);
      const term = languages.derive(step.term, character);
      if (term === languages.none || seen.has(term.id)) continue;
      seen.add(term.id);
      queue.push({ term, from: step, character });
    }
  }
  return true;

  function spell(last: Step): string {
    const characters: string[] = [];
    for (let step: Step | undefined = last; step?.from !== undefined; step = step.from) {
      characters.push(String.fromCodePoint(step.character));
    }
    return characters.toReversed().join("");
  }
}

/** Whether a word is in a language: one derivative a character, never backtracking. */
export function matches(languages: Languages, language: Language, text: string): boolean {
  let term = language;
  for (const character of text) {
    term = languages.derive(term, character.codePointAt(0) ?? 0);
    if (term === languages.none) return false;
  }
  return term.nullable;
}
