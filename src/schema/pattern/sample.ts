// A text that matches a pattern, for examples and suggestions. Made by walking the pattern once, then checked: what
// it does not understand (a lookahead, say) may spoil the result, and a wrong example is worse than none.

import type { AST } from "@eslint-community/regexpp";
import type { Matcher } from "./matcher.js";
import { charactersOf, isSingleCharacter, parsePattern } from "./parse.js";

const MAX_SAMPLE = 1_000;
const MAX_VISITED = 5_000;
const TRIES = 4;

export interface SampleLength {
  min?: number;
  max?: number;
}

/** Deterministic; other variants give other texts where the pattern leaves a choice. */
export function sampleOf(matcher: Matcher, variant = 0, length: SampleLength = {}): string | undefined {
  const pattern = parsePattern(matcher.source, matcher.flags);
  if (pattern === undefined) return undefined;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    try {
      const text = new Sampler(pattern.flags, variant + attempt, length).alternatives(pattern.tree.alternatives);
      if (text.length <= matcher.safeLength && fits(text, length) && matcher.test(text)) return text;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
  }
  return undefined;
}

function fits(text: string, { min = 0, max = MAX_SAMPLE }: SampleLength): boolean {
  const characters = [...text].length;
  return characters >= min && characters <= max;
}

class Sampler {
  readonly #flags: string;
  readonly #variant: number;
  readonly #length: SampleLength;
  readonly #groups = new Map<AST.CapturingGroup, string>();
  #choices = 0;
  #visited = 0;

  constructor(flags: string, variant: number, length: SampleLength) {
    this.#flags = flags;
    this.#variant = variant;
    this.#length = length;
  }

  alternatives(alternatives: readonly AST.Alternative[]): string {
    const chosen = alternatives[this.#variant % alternatives.length] as AST.Alternative;
    return chosen.elements.map((element) => this.#element(element)).join("");
  }

  #element(node: AST.Element): string {
    // Rounds that write nothing count too: repeated repetitions of nothing would never end.
    if (++this.#visited > MAX_VISITED) throw new RangeError("no sample");
    if (isSingleCharacter(node)) return this.#character(node);
    switch (node.type) {
      case "Group":
        return this.alternatives(node.alternatives);
      case "CapturingGroup": {
        const text = this.alternatives(node.alternatives);
        this.#groups.set(node, text);
        return text;
      }
      case "Quantifier":
        return this.#repeat(node);
      case "Backreference":
        return Array.isArray(node.resolved) ? "" : (this.#groups.get(node.resolved) ?? "");
      default:
        return "";
    }
  }

  #repeat({ min, max, element }: AST.Quantifier): string {
    const wanted = Math.max(min, Math.min(max, this.#length.min ?? 0), Math.min(max, 1 + (this.#variant % 4)));
    const times = Math.min(wanted, Math.max(min, this.#length.max ?? MAX_SAMPLE));
    if (times > MAX_SAMPLE) throw new RangeError("too long for a sample");
    let text = "";
    for (let i = 0; i < times; i++) text += this.#element(element);
    return text;
  }

  #character(node: Parameters<typeof charactersOf>[0]): string {
    const set = charactersOf(node, this.#flags);
    const pick = this.#choices++ + this.#variant;
    if (set === undefined || set.isEmpty) throw new RangeError("no sample");
    // Something a person would type, and not the same character all the time.
    const familiar = [...FAMILIAR].filter((letter) => set.has(letter.charCodeAt(0)));
    return familiar[pick % familiar.length] ?? String.fromCodePoint(set.ranges[0]?.min ?? 0);
  }
}

const FAMILIAR = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
