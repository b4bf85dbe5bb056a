// An ECMAScript expression as a small program, for languages that have no engine for it. The programs are run by keeping
// the set of places they can be at, so that matching takes time in proportion to the text, whatever the expression.

import { type AST, RegExpParser } from "@eslint-community/regexpp";
import { CharSet, JS } from "refa";
import { charactersOf, type SingleCharacter } from "../../schema/documents/index.js";
import type { Pattern } from "./node.js";

export interface PatternProgram {
  /** Reads code points; otherwise UTF-16 units. */
  readonly unicode: boolean;
  /** Sets of characters as ranges: low, high, low, high, … */
  readonly sets: readonly (readonly number[])[];
  /** Instructions of three numbers each; see `OP`. */
  readonly code: readonly number[];
}

const OP = {
  /** set: read one character of it. */
  char: 0,
  /** a, b: go on at both. */
  split: 1,
  /** a: go on there. */
  jump: 2,
  /** 0 start, 1 end, 2 start of line, 3 end of line, 4 boundary of a word, 5 none. */
  assert: 3,
  /** negated, end: the program that follows must (not) match from here; then go on at `end`. */
  look: 4,
  match: 5,
} as const;

const MAX_SOURCE = 4_096;

class Beyond extends Error {}

/** The program, or why there is none. */
export function compilePattern(pattern: Pattern, maxSize: number): PatternProgram | string {
  if (pattern.source.length > MAX_SOURCE) return `is longer than ${MAX_SOURCE} characters`;
  try {
    return new Assembler(pattern, maxSize).run();
  } catch (error) {
    if (error instanceof Beyond) return error.message;
    return "is written in a syntax that is not known here";
  }
}

class Assembler {
  readonly #source: string;
  readonly #flags: { unicode: boolean; ignoreCase: boolean; multiline: boolean; dotAll: boolean };
  readonly #maxSize: number;
  readonly #sets: number[][] = [];
  readonly #places = new Map<string, number>();
  readonly #code: number[] = [];

  constructor({ source, flags }: Pattern, maxSize: number) {
    this.#source = source;
    this.#maxSize = maxSize;
    this.#flags = {
      unicode: flags.includes("u"),
      ignoreCase: flags.includes("i"),
      multiline: flags.includes("m"),
      dotAll: flags.includes("s"),
    };
  }

  run(): PatternProgram {
    const parser = new RegExpParser({ ecmaVersion: 2025 });
    const { alternatives } = parser.parsePattern(this.#source, 0, this.#source.length, this.#flags.unicode);
    this.#alternatives(alternatives);
    this.#put(OP.match);
    return { unicode: this.#flags.unicode, sets: this.#sets, code: this.#code };
  }

  get #here(): number {
    return this.#code.length / 3;
  }

  #put(op: number, a = 0, b = 0): number {
    if (this.#here >= this.#maxSize) throw new Beyond(`needs more than ${this.#maxSize} steps (maxPatternSize)`);
    this.#code.push(op, a, b);
    return this.#here - 1;
  }

  #patch(at: number, operand: 1 | 2, value: number): void {
    this.#code[at * 3 + operand] = value;
  }

  #alternatives(all: readonly AST.Alternative[]): void {
    const ends: number[] = [];
    for (const [i, alternative] of all.entries()) {
      const last = i === all.length - 1;
      const fork = last ? undefined : this.#put(OP.split);
      if (fork !== undefined) this.#patch(fork, 1, this.#here);
      for (const element of alternative.elements) this.#element(element);
      if (fork === undefined) continue;
      ends.push(this.#put(OP.jump));
      this.#patch(fork, 2, this.#here);
    }
    for (const end of ends) this.#patch(end, 1, this.#here);
  }

  #element(element: AST.Element): void {
    switch (element.type) {
      case "Character":
      case "CharacterSet":
      case "CharacterClass":
        this.#put(OP.char, this.#set(this.#characters(element)));
        return;
      case "Group":
        if (element.modifiers !== null) throw new Beyond("changes its flags on the way");
        this.#alternatives(element.alternatives);
        return;
      case "CapturingGroup":
        this.#alternatives(element.alternatives);
        return;
      case "Quantifier":
        this.#repeat(element);
        return;
      case "Assertion":
        this.#assertion(element);
        return;
      case "Backreference":
        throw new Beyond("refers back to what it has matched");
      default:
        throw new Beyond(`has an element ${element.type}`);
    }
  }

  #repeat({ element, min, max }: AST.Quantifier): void {
    for (let i = 0; i < min; i++) this.#element(element);
    if (max === Infinity) {
      const fork = this.#put(OP.split);
      this.#patch(fork, 1, this.#here);
      this.#element(element);
      this.#put(OP.jump, fork);
      this.#patch(fork, 2, this.#here);
      return;
    }
    const forks: number[] = [];
    for (let i = min; i < max; i++) {
      const fork = this.#put(OP.split);
      this.#patch(fork, 1, this.#here);
      forks.push(fork);
      this.#element(element);
    }
    for (const fork of forks) this.#patch(fork, 2, this.#here);
  }

  #assertion(element: AST.Assertion): void {
    const lines = this.#flags.multiline ? 2 : 0;
    switch (element.kind) {
      case "start":
        this.#put(OP.assert, lines);
        return;
      case "end":
        this.#put(OP.assert, lines + 1);
        return;
      case "word":
        this.#put(OP.assert, element.negate ? 5 : 4);
        return;
      case "lookahead": {
        const look = this.#put(OP.look, element.negate ? 1 : 0);
        this.#alternatives(element.alternatives);
        this.#put(OP.match);
        this.#patch(look, 2, this.#here);
        return;
      }
      default:
        throw new Beyond("looks behind");
    }
  }

  #characters(element: SingleCharacter): CharSet {
    const set = charactersOf(element, this.#flags, JS);
    if (typeof set === "string") throw new Beyond(set);
    return set;
  }

  #set(set: CharSet): number {
    const ranges = set.ranges.flatMap(({ min, max }) => [min, max]);
    const key = ranges.join();
    const known = this.#places.get(key);
    if (known !== undefined) return known;
    const place = this.#sets.push(ranges) - 1;
    this.#places.set(key, place);
    return place;
  }
}
