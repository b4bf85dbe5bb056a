// The promise behind native matching, against an engine that counts: run a few thousand times with every change and
// hundreds of thousands of times in the long run.

import type { AST } from "@eslint-community/regexpp";
import fc from "fast-check";
import { expect } from "vitest";
import { safeLength } from "./matcher.js";
import { characterSet, isSingleCharacter, type ParsedPattern, parsePattern } from "./parse.js";

const atom = fc.constantFrom("a", "b", "[ab]", ".", "[^a]");
const { regex } = fc.letrec<{ regex: string }>((tie) => ({
  regex: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    atom,
    fc.tuple(tie("regex"), tie("regex")).map(([x, y]) => `${x}${y}`),
    fc.tuple(tie("regex"), tie("regex")).map(([x, y]) => `(?:${x}|${y})`),
    fc
      .tuple(tie("regex"), fc.constantFrom("*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"))
      .map(([x, quantifier]) => `(?:${x})${quantifier}`),
    tie("regex").map((x) => `(?:${x}|)`),
  ),
}));
const pattern = fc
  .tuple(fc.boolean(), regex, fc.boolean())
  .map(([start, middle, end]) => `${start ? "^" : ""}(?:${middle})${end ? "$" : ""}`);
const text = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 14 });
const TOO_MANY = 200_000;

/** A backtracking engine never takes more steps than were promised for a text of that length. */
export function boundHolds(cases: number): void {
  let compared = 0;
  fc.assert(
    fc.property(pattern, text, (source, input) => {
      const tree = parsePattern(source) as ParsedPattern;
      const engine = new Backtracker(tree);
      const matched = engine.search(input);
      if (engine.steps > TOO_MANY) return;
      expect(matched).toBe(new RegExp(source, "u").test(input));
      compared++;
      // One step less than it really took must not be promised for this length.
      expect(safeLength(tree, { left: 400_000 }, engine.steps - 1)).toBeLessThan(input.length);
    }),
    { numRuns: cases },
  );
  expect(compared).toBeGreaterThan(cases * 0.8);
}

/** A plain backtracking matcher that counts the characters it looks at. */
class Backtracker {
  steps = 0;
  readonly #pattern: ParsedPattern;
  constructor(pattern: ParsedPattern) {
    this.#pattern = pattern;
  }
  search(text: string): boolean {
    const { alternatives } = this.#pattern.tree;
    const anchored = alternatives.every(
      ({ elements: [first] }) => first?.type === "Assertion" && first.kind === "start",
    );
    for (let at = 0; at <= (anchored ? 0 : text.length); at++) {
      if (this.#any(alternatives, text, at, () => true)) return true;
    }
    return false;
  }
  #any(alternatives: readonly AST.Alternative[], text: string, at: number, then: (at: number) => boolean): boolean {
    return alternatives.some(({ elements }) => this.#all(elements, 0, text, at, then));
  }
  #all(
    elements: readonly AST.Element[],
    index: number,
    text: string,
    at: number,
    then: (at: number) => boolean,
  ): boolean {
    const element = elements[index];
    if (element === undefined) return then(at);
    return this.#one(element, text, at, (next) => this.#all(elements, index + 1, text, next, then));
  }
  #one(node: AST.Element, text: string, at: number, then: (at: number) => boolean): boolean {
    if (this.steps > TOO_MANY) return true;
    if (isSingleCharacter(node)) {
      this.steps++;
      const set = characterSet(node, this.#pattern.flags);
      return at < text.length && set?.has(text.charCodeAt(at)) === true && then(at + 1);
    }
    switch (node.type) {
      case "Assertion":
        return node.kind === "start" ? at === 0 && then(at) : at === text.length && then(at);
      case "Group":
        return this.#any(node.alternatives, text, at, then);
      case "Quantifier":
        return this.#repeat(node, 0, text, at, then);
      default:
        throw new Error(`not generated: ${node.type}`);
    }
  }
  #repeat(node: AST.Quantifier, done: number, text: string, at: number, then: (at: number) => boolean): boolean {
    const again = () =>
      done < node.max &&
      this.#one(node.element, text, at, (next) => {
        if (next === at && done >= node.min) return false;
        return this.#repeat(node, done + 1, text, next, then);
      });
    if (done < node.min) return again();
    return node.greedy ? again() || then(at) : then(at) || again();
  }
}
