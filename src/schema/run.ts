// One validation. It counts what it costs, collects the words when someone wants to know why, and notes which
// pattern questions it may not answer itself.

import type { JsonObject, JsonValue } from "../mcp/index.js";
import { escapePointer } from "./documents/index.js";
import type { Matcher } from "./pattern/matcher.js";
import type { Problem, SchemaLimits } from "./types.js";

/** True when the value passes. INVARIANT: a check never changes the value and never keeps it. */
export type KeywordCheck = (
  value: JsonValue,
  at: InstancePlace | undefined,
  run: ValidationRun,
  seen: SeenRefs | undefined,
) => boolean;

/** Position of a check in the value; undefined at the root, and everywhere while no messages are collected. */
export interface InstancePlace {
  readonly up: InstancePlace | undefined;
  readonly key: string | number;
}

type Words = Omit<Problem, "path">;

/** A problem, and how far off the value is; among alternatives the nearest one is worth explaining. */
export interface FoundProblems extends Words {
  at: InstancePlace | undefined;
  weight: number;
}

export const WRONG_TYPE = 100;

/** Thrown when a value cannot be judged within the limits, which counts as invalid. */
export class Undecided extends Error {}

/** What it takes to note one property or item. */
export const STEPS_PER_NOTE = 3;
/** What it takes to find the words for one problem. */
const STEPS_PER_PROBLEM = 200;
/** With fewer, asking an object for its keys costs hardly anything. */
const FEW_KEYS = 32;

/** Which properties and items some keyword has looked at, for `unevaluatedProperties` and `unevaluatedItems`. */
export class SeenRefs {
  readonly properties = new Set<string>();
  readonly indexes = new Set<number>();
  allProperties = false;
  allItems = false;
  items = 0;
  merge(other: SeenRefs, run: ValidationRun): void {
    run.spend(STEPS_PER_NOTE * (other.properties.size + other.indexes.size));
    for (const name of other.properties) this.properties.add(name);
    for (const index of other.indexes) this.indexes.add(index);
    this.allProperties ||= other.allProperties;
    this.allItems ||= other.allItems;
    this.items = Math.max(this.items, other.items);
  }
}

export type PatternAnswers = ReadonlyMap<Matcher, ReadonlyMap<string, boolean>>;

export class ValidationRun {
  /** Collects words; while undefined, the first failure decides. */
  problems: FoundProblems[] | undefined;
  /** What a worker has to answer before the outcome counts. */
  readonly questions: { matcher: Matcher; text: string }[] = [];
  depth = 0;
  readonly #limits: SchemaLimits;
  readonly #answers: PatternAnswers;
  #steps: number;
  /** Of objects with many: an object that several keywords look at is asked for its keys once. */
  readonly #keys = new Map<JsonObject, readonly string[]>();

  constructor(limits: SchemaLimits, answers: PatternAnswers, explain: boolean) {
    this.#limits = limits;
    this.#answers = answers;
    // Words are a courtesy: they may cost only a part of what the decision may.
    this.#steps = explain ? limits.maxSteps >> 3 : limits.maxSteps;
    this.problems = explain ? [] : undefined;
  }

  spend(steps: number): void {
    this.#steps -= steps;
    if (this.#steps < 0) {
      throw new Undecided(`checking takes more than ${this.#limits.maxSteps} steps; send less at once`);
    }
  }

  /** Charged as one step for each key. */
  keysOf(value: JsonObject): readonly string[] {
    const known = this.#keys.get(value);
    const keys = known ?? Object.keys(value);
    if (known === undefined && keys.length > FEW_KEYS) this.#keys.set(value, keys);
    this.spend(keys.length);
    return keys;
  }

  /** Is there nothing to gain from looking further after a failure? */
  get done(): boolean {
    return this.problems === undefined || this.problems.length >= this.#limits.maxProblems;
  }

  inside(check: KeywordCheck, value: JsonValue, key: string | number, at: InstancePlace | undefined): boolean {
    if (++this.depth > this.#limits.maxValueDepth) {
      throw new Undecided(`nesting is deeper than ${this.#limits.maxValueDepth} levels`);
    }
    const ok = check(value, this.problems === undefined ? undefined : { up: at, key }, this, undefined);
    this.depth--;
    return ok;
  }

  /** Always false, so that a check can end with it. */
  fail(at: InstancePlace | undefined, words: () => Words & { weight?: number }): false {
    if (this.problems !== undefined && this.problems.length < this.#limits.maxProblems) {
      this.spend(STEPS_PER_PROBLEM);
      this.problems.push({ at, weight: 1, ...words() });
    }
    return false;
  }

  /** Runs an action whose failure is not reported. */
  quietly<T>(action: () => T): T {
    const { problems } = this;
    this.problems = undefined;
    const result = action();
    this.problems = problems;
    return result;
  }

  /** Runs a check and hands over its words instead of keeping them. */
  apart(check: KeywordCheck, value: JsonValue, at: InstancePlace | undefined): FoundProblems[] {
    const { problems } = this;
    const found: FoundProblems[] = [];
    this.problems = found;
    check(value, at, this, undefined);
    this.problems = problems;
    return found;
  }

  /** Takes over words that were handed over before. */
  adopt(found: readonly FoundProblems[]): false {
    this.problems?.push(...found.slice(0, Math.max(0, this.#limits.maxProblems - this.problems.length)));
    return false;
  }

  matches(matcher: Matcher, text: string): boolean {
    this.spend(1 + (text.length >> 4));
    if (text.length <= matcher.safeLength) {
      try {
        return matcher.test(text);
      } catch {
        // The engine translates a pattern when it first runs, and finds only then that it is too large.
        throw new Undecided("a pattern of the schema is too large to run");
      }
    }
    const answer = this.#answers.get(matcher)?.get(text);
    if (answer !== undefined) return answer;
    this.questions.push({ matcher, text });
    return true;
  }
}

export function instancePathOf(at: InstancePlace | undefined): string {
  let path = "";
  for (let place = at; place !== undefined; place = place.up) path = `/${escapePointer(String(place.key))}${path}`;
  return path;
}
