// A text that matches a pattern, for examples and suggestions. Made by walking the pattern once, then checked: what
// it does not understand (a lookahead, say) may spoil the result, and a wrong example is worse than none.

import type { AST } from "@eslint-community/regexpp";
import type { Matcher } from "./matcher.js";
import { characterSet, isSingleCharacter, parsePattern } from "./parse.js";

const MAX_SAMPLE = 1_000;
const MAX_VISITED = 5_000;
const TRIES = 4;

interface SampleLength {
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

  #character(node: Parameters<typeof characterSet>[0]): string {
    const set = characterSet(node, this.#flags);
    const pick = this.#choices++ + this.#variant;
    if (set === undefined || set.isEmpty) throw new RangeError("no sample");
    // Something a person would type, and not the same character all the time.
    const familiar = [...FAMILIAR].filter((character) => set.has(character.charCodeAt(0)));
    return familiar[pick % familiar.length] ?? String.fromCodePoint(set.ranges[0]?.min ?? 0);
  }
}

const FAMILIAR = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/** A suggestion for someone whose text did not match. */
export function describePattern(matcher: Matcher): { suggestion?: string } {
  const pattern = parsePattern(matcher.source, matcher.flags);
  if (pattern === undefined) return {};
  const said = inWords(pattern.tree);
  const sample = sampleOf(matcher, 1);
  if (said === undefined) return sample === undefined ? {} : { suggestion: `Use text like ${JSON.stringify(sample)}` };
  const example = sample === undefined ? "" : `, for example ${JSON.stringify(sample)}`;
  return { suggestion: `${said}${example}` };
}

/** `^[class]{m,n}$` and nothing more: which characters, and how many. */
function inWords(tree: AST.Pattern): string | undefined {
  const elements = tree.alternatives.length === 1 ? (tree.alternatives[0]?.elements ?? []) : [];
  const [start, middle, end] = elements;
  if (elements.length !== 3 || start?.type !== "Assertion" || start.kind !== "start") return undefined;
  if (end?.type !== "Assertion" || end.kind !== "end" || middle === undefined) return undefined;
  const [single, min, max] = middle.type === "Quantifier" ? [middle.element, middle.min, middle.max] : [middle, 1, 1];
  if (!isSingleCharacter(single)) return undefined;
  const which = charactersInWords(single);
  return which === undefined ? undefined : `Use ${which} only; length must be ${lengthInWords(min, max)}`;
}

function lengthInWords(min: number, max: number): string {
  if (max === Number.POSITIVE_INFINITY) return min <= 1 ? `at least ${min} character` : `at least ${min} characters`;
  if (min === max) return `exactly ${min} character${min === 1 ? "" : "s"}`;
  return `${min}-${max} characters`;
}

const RANGES: Readonly<Record<string, string>> = {
  "a-z": "lowercase letters",
  "A-Z": "uppercase letters",
  "0-9": "digits",
  "a-f": "a-f",
  "A-F": "A-F",
};

function charactersInWords(node: AST.Character | AST.CharacterSet | AST.CharacterClass): string | undefined {
  if (node.type === "CharacterSet") return setInWords(node);
  if (node.type !== "CharacterClass" || node.negate) return undefined;
  const words: string[] = [];
  const signs: string[] = [];
  for (const element of node.elements) {
    if (element.type === "Character") signs.push(String.fromCodePoint(element.value));
    else if (element.type === "CharacterClassRange") {
      const range = RANGES[`${String.fromCodePoint(element.min.value)}-${String.fromCodePoint(element.max.value)}`];
      if (range === undefined) return undefined;
      words.push(range);
    } else if (element.type === "CharacterSet") {
      const said = setInWords(element);
      if (said === undefined) return undefined;
      words.push(said);
    } else return undefined;
  }
  if (signs.length > 0) words.push(signs.map((sign) => `"${sign}"`).join(" "));
  const merged =
    words.includes("lowercase letters") && words.includes("uppercase letters")
      ? ["letters", ...words.filter((word) => !word.endsWith("case letters"))]
      : words;
  return merged.length < 2 ? merged[0] : `${merged.slice(0, -1).join(", ")} and ${merged.at(-1)}`;
}

function setInWords(node: AST.CharacterSet): string | undefined {
  if (node.kind === "digit" && !node.negate) return "digits";
  if (node.kind === "word" && !node.negate) return 'letters, digits and "_"';
  return undefined;
}
