// Says in words what a pattern asks for, where it is simple enough to be said; otherwise shows what would match.

import type { AST } from "@eslint-community/regexpp";
import type { Matcher } from "./matcher.js";
import { isSingleCharacter, parsePattern } from "./parse.js";
import { sampleOf } from "./sample.js";

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
