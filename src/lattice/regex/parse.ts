import { type AST, RegExpParser } from "@eslint-community/regexpp";
import { JS } from "refa";
import { charactersOf } from "../../schema/documents/index.js";
import type { Language, Languages } from "./language.js";

const FLAGS = { unicode: true } as const;
const MAX_SOURCE = 4_096;
const MAX_COPIES = 8;
const MAX_STEPS = 10_000;

/** What stands before the current position, as far as `^` and `\b` can see. */
type Before = "start" | "word" | "other";

class Unsupported extends Error {}

/**
 * The set of whole strings in which a JSON Schema `pattern` finds a match (ECMAScript, `u` flag, not anchored), or
 * undefined when the pattern is beyond regular languages as handled here: back references, look-behind, assertions
 * inside unbounded loops.
 */
export function patternLanguage(languages: Languages, source: string): Language | undefined {
  if (source.length > MAX_SOURCE) return undefined;
  try {
    const pattern = new RegExpParser({ ecmaVersion: 2025 }).parsePattern(source, 0, source.length, FLAGS);
    return languages.bounded(MAX_STEPS, () => new Translator(languages).search(pattern.alternatives));
  } catch {
    // A pattern that does not parse is one that no validator can run either: nothing is known about it.
    return undefined;
  }
}

class Translator {
  readonly #l: Languages;
  readonly #word: Language;
  readonly #other: Language;

  constructor(languages: Languages) {
    this.#l = languages;
    const word = JS.createCharSet([{ kind: "word", negate: false }], FLAGS);
    this.#word = languages.set(word);
    this.#other = languages.set(word.negate());
  }

  search(alternatives: readonly AST.Alternative[]): Language {
    const { all, cat, or } = this.#ops();
    const rest = (before: Before): Language => or(...alternatives.map((a) => this.#suffix(a.elements, before)));
    if (!alternatives.some((a) => a.elements.some(looksBack))) return cat(all, rest("start"));
    return or(rest("start"), cat(cat(all, this.#word), rest("word")), cat(cat(all, this.#other), rest("other")));
  }

  #ops() {
    const l = this.#l;
    return { all: l.all, cat: l.cat.bind(l), or: l.or.bind(l), and: l.and.bind(l), not: l.not.bind(l) };
  }

  /**
   * The strings that follow the current position when `elements` match there and anything may come after. Look-ahead
   * is an intersection with what follows, which is why translation goes by suffixes and not by parts.
   */
  #suffix(elements: readonly AST.Element[], before: Before): Language {
    const { all, cat, or, and, not } = this.#ops();
    this.#l.spend(1 + elements.length);
    const [first, ...rest] = elements;
    if (first === undefined) return all;
    if (first.type === "Assertion") {
      switch (first.kind) {
        case "start":
          return before === "start" ? this.#suffix(rest, before) : this.#l.none;
        case "end":
          return and(this.#l.empty, this.#suffix(rest, before));
        case "word": {
          const wordNext = cat(this.#word, all);
          const boundary = (before === "word") !== first.negate ? not(wordNext) : wordNext;
          return and(boundary, this.#suffix(rest, before));
        }
        case "lookahead": {
          const ahead = or(...first.alternatives.map((a) => this.#suffix(a.elements, before)));
          return and(first.negate ? not(ahead) : ahead, this.#suffix(rest, before));
        }
        case "lookbehind":
          throw new Unsupported("look-behind");
      }
    }
    if (hasAssertion(first)) return this.#unfold(first, rest, before);
    const body = this.#plain(first);
    if (!rest.some(looksBack)) return cat(body, this.#suffix(rest, before));
    return or(
      body.nullable ? this.#suffix(rest, before) : this.#l.none,
      cat(and(body, cat(all, this.#word)), this.#suffix(rest, "word")),
      cat(and(body, cat(all, this.#other)), this.#suffix(rest, "other")),
    );
  }

  /** A group or a short repetition with an assertion inside: one branch for each way through it. */
  #unfold(element: AST.Element, rest: readonly AST.Element[], before: Before): Language {
    if (element.type === "Group" || element.type === "CapturingGroup") {
      if (element.type === "Group" && element.modifiers !== null) throw new Unsupported("modifiers");
      return this.#l.or(...element.alternatives.map((a) => this.#suffix([...a.elements, ...rest], before)));
    }
    if (element.type === "Quantifier" && element.max <= MAX_COPIES) {
      const copies = Array.from({ length: element.max - element.min + 1 }, (_, i) => element.min + i);
      return this.#l.or(
        ...copies.map((n) => this.#suffix([...Array.from({ length: n }, () => element.element), ...rest], before)),
      );
    }
    throw new Unsupported("assertion inside a loop");
  }

  #plain(element: AST.Element): Language {
    switch (element.type) {
      case "Character":
      case "CharacterSet":
      case "CharacterClass": {
        const set = charactersOf(element, FLAGS, JS);
        if (typeof set === "string") throw new Unsupported(set);
        return this.#l.set(set);
      }
      case "Group":
        if (element.modifiers !== null) throw new Unsupported("modifiers");
        return this.#alternatives(element.alternatives);
      case "CapturingGroup":
        return this.#alternatives(element.alternatives);
      case "Quantifier":
        return this.#l.loop(this.#plain(element.element), element.min, element.max);
      default:
        throw new Unsupported(element.type);
    }
  }

  #alternatives(alternatives: readonly AST.Alternative[]): Language {
    return this.#l.or(
      ...alternatives.map((a) =>
        a.elements.reduceRight<Language>((tail, e) => this.#l.cat(this.#plain(e), tail), this.#l.empty),
      ),
    );
  }
}

function children(element: AST.Element): readonly AST.Element[] {
  if (element.type === "Quantifier") return [element.element];
  if ("alternatives" in element) return element.alternatives.flatMap((a) => a.elements);
  return [];
}

function hasAssertion(element: AST.Element): boolean {
  return element.type === "Assertion" || children(element).some(hasAssertion);
}

function looksBack(element: AST.Element): boolean {
  const itself = element.type === "Assertion" && (element.kind === "start" || element.kind === "word");
  return itself || children(element).some(looksBack);
}
