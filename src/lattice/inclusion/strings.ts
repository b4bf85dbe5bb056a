import { type Language, type Languages, matches, wordsOfLanguage } from "../regex/language.js";
import { patternLanguage } from "../regex/parse.js";
import { type Formula, type InclusionOutcome, type Literal, none, some, unknown } from "./formula.js";

/** A longest length bound that is put into the automaton; beyond it the bound only filters what is found. */
const MAX_COUNTED = 2_000;
const MAX_WORDS = 12;
/** Longer strings than this are not built as examples. */
const MAX_LENGTH = 65_536;

/** Strings: what a conjunction of string atoms leaves, and whether one string satisfies a formula. */
export class Strings {
  readonly #languages: Languages;
  readonly #steps: number;
  readonly #isFormat: (name: string, text: string) => boolean | undefined;
  readonly #patterns = new Map<string, Language | undefined>();
  readonly #sets = new WeakMap<readonly string[], ReadonlySet<string>>();

  constructor(languages: Languages, steps: number, isFormat: (name: string, text: string) => boolean | undefined) {
    this.#languages = languages;
    this.#steps = steps;
    this.#isFormat = isFormat;
  }

  /** Lists may be long and are asked about often. */
  #set(values: readonly string[]): ReadonlySet<string> {
    let set = this.#sets.get(values);
    if (set === undefined) {
      set = new Set(values);
      this.#sets.set(values, set);
    }
    return set;
  }

  #pattern(source: string): Language | undefined {
    if (!this.#patterns.has(source)) this.#patterns.set(source, patternLanguage(this.#languages, source));
    return this.#patterns.get(source);
  }

  /** Whether one string satisfies one literal; undefined when no rule can tell. */
  holds({ atom, holds }: Literal, text: string): boolean | undefined {
    const answer = (() => {
      switch (atom.is) {
        case "length":
          return lengthOf(text) >= atom.least;
        case "oneOfStrings":
          return this.#set(atom.values).has(text);
        case "format":
          return this.#isFormat(atom.name, text);
        case "pattern": {
          const language = this.#pattern(atom.source);
          if (language === undefined) return undefined;
          return this.#languages.bounded(this.#steps, () => matches(this.#languages, language, text));
        }
        default:
          return undefined;
      }
    })();
    return answer === undefined ? undefined : answer === holds;
  }

  solve(literals: readonly Literal[]): InclusionOutcome {
    let low = 0;
    let high = Infinity;
    let among: readonly string[] | undefined;
    const except = new Set<string>();
    for (const { atom, holds } of literals) {
      if (atom.is === "length" && holds) low = Math.max(low, atom.least);
      else if (atom.is === "length") high = Math.min(high, atom.least - 1);
      else if (atom.is === "oneOfStrings" && !holds) for (const value of atom.values) except.add(value);
      else if (atom.is === "oneOfStrings") {
        const values = this.#set(atom.values);
        among = among?.filter((value) => values.has(value)) ?? atom.values;
      }
    }
    if (low > high) return none;
    if (low > MAX_LENGTH && among === undefined) return unknown;
    if (among !== undefined) return this.#choose(literals, among, true);
    const patterns = literals.filter(({ atom }) => atom.is === "pattern");
    const formats = literals.filter(({ atom }) => atom.is === "format");
    if (high === 0) return this.#choose(literals, [""], true);
    const found = patterns.length === 0 ? plainStrings(low, except) : this.#words(patterns, low, high, except);
    if (found?.length === 0) return none;
    const examples = formats.flatMap(({ atom, holds }) =>
      holds && atom.is === "format" ? formatExamples(atom.name, low) : formatCounterexamples(low),
    );
    return this.#choose(literals, [...(found ?? plainStrings(low, except)), ...examples], false);
  }

  /** The best of some strings; `complete` when no other string can satisfy the literals. */
  #choose(literals: readonly Literal[], candidates: readonly string[], complete: boolean): InclusionOutcome {
    let guess: string | undefined;
    for (const text of candidates) {
      const answers = literals.map((literal) => this.holds(literal, text));
      if (answers.every((answer) => answer === true)) return some(text, true);
      if (guess === undefined && !answers.includes(false)) guess = text;
    }
    if (guess !== undefined) return some(guess, false);
    return complete ? none : unknown;
  }

  /** Words that satisfy patterns and lengths; an empty list proves that there is none. */
  #words(patterns: readonly Literal[], low: number, high: number, except: ReadonlySet<string>): string[] | undefined {
    const l = this.#languages;
    const language = l.bounded(this.#steps, () => {
      const parts = patterns.map(({ atom, holds }) => {
        const parsed = atom.is === "pattern" ? this.#pattern(atom.source) : undefined;
        // A pattern that is not understood says nothing here; the choice among the words found will be a guess.
        return parsed === undefined ? l.all : holds ? parsed : l.not(parsed);
      });
      const most = high > MAX_COUNTED ? Infinity : high;
      const length = l.loop(l.any, Math.min(low, MAX_COUNTED), most);
      return l.and(...parts, length, ...[...except].map((text) => l.not(l.word(text))));
    });
    return language === undefined ? undefined : wordsOfLanguage(l, language, MAX_WORDS, this.#steps);
  }
}

function lengthOf(text: string): number {
  let length = 0;
  for (const _ of text) length++;
  return length;
}

/** Three strings of a permitted length (at least one character may be used) that are no exceptions: they always exist. */
function plainStrings(low: number, except: ReadonlySet<string>): string[] {
  const found = low === 0 && !except.has("") ? [""] : [];
  for (let n = 0; found.length < 3; n++) {
    const text = String.fromCodePoint(n < 26 ? 0x61 + n : 0xe0 + n).padEnd(low, "a");
    if (!except.has(text)) found.push(text);
  }
  return found;
}

/** Three-valued evaluation of a formula on one string. */
export function acceptsString(
  strings: Strings,
  formula: Formula,
  text: string,
  definition: (to: number) => Formula,
  depth = 32,
): boolean | undefined {
  if (depth === 0) return undefined;
  const each = (part: Formula): boolean | undefined => acceptsString(strings, part, text, definition, depth - 1);
  const negate = (answer: boolean | undefined, holds: boolean): boolean | undefined =>
    answer === undefined ? undefined : answer === holds;
  switch (formula.op) {
    case "kind":
      return (formula.kinds & 32) !== 0;
    case "and":
    case "or": {
      const decisive = formula.op === "or";
      const answers = formula.list.map(each);
      if (answers.includes(decisive)) return decisive;
      return answers.includes(undefined) ? undefined : !decisive;
    }
    case "one": {
      const answers = formula.list.map(each);
      const certain = answers.filter((answer) => answer === true).length;
      if (certain > 1) return !formula.holds;
      return answers.includes(undefined) ? undefined : (certain === 1) === formula.holds;
    }
    case "ref":
      return negate(each(definition(formula.to)), formula.holds);
    case "atom":
      return strings.holds(formula, text);
  }
}

/**
 * Strings that a format takes by any reading of it, of about the length asked for where the format allows a choice.
 * They are only tried as examples: the validator at hand has the last word on each.
 */
type Maker = (length: number) => readonly string[];

const fill = (length: number, around: string): string => "a".repeat(Math.max(1, length - around.length));
const fixed =
  (...texts: readonly string[]): Maker =>
  () =>
    texts;
const uri: Maker = (n) => ["https://example.com/", "a:", "a:b", `https://a.example/${fill(n, "https://a.example/")}`];
const reference: Maker = (n) => ["", "a", "/a", "https://example.com/", `/${fill(n, "/")}`];
const email: Maker = (n) => ["a@example.com", "b@b.co", `a@${fill(n - 12, "")}.example.com`];
const hostname: Maker = (n) => ["example.com", "a", fill(Math.min(n, 63), "")];
const anything: Maker = (n) => ["a", "", fill(n, "")];

const MAKERS: Readonly<Record<string, Maker>> = {
  "date-time": (n) => ["2020-01-31T12:00:00Z", `2020-01-31T12:00:00.${"0".repeat(Math.max(1, n - 21))}Z`],
  date: fixed("2020-01-31", "1999-12-31"),
  time: (n) => ["12:00:00Z", "12:00:00", `12:00:00.${"0".repeat(Math.max(1, n - 10))}Z`],
  duration: (n) => ["P1D", "PT5M", `P${"1".repeat(Math.max(1, n - 2))}D`],
  email,
  "idn-email": email,
  hostname,
  "idn-hostname": hostname,
  ipv4: fixed("127.0.0.1", "1.1.1.1", "100.100.100.100"),
  ipv6: fixed("::", "::1", "2001:db8::1", "2001:0db8:0000:0000:0000:0000:0000:0001"),
  uri,
  iri: uri,
  "uri-reference": reference,
  "iri-reference": reference,
  "uri-template": (n) => ["", "{a}", "https://example.com/{id}", `/${fill(n, "/{a}")}/{a}`],
  uuid: fixed("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-4000-8000-000000000000"),
  "json-pointer": (n) => ["", "/a", `/${fill(n, "/")}`],
  "relative-json-pointer": (n) => ["0", "1/a", `0/${fill(n, "0/")}`],
  regex: (n) => ["a", "", "^b$", fill(n, "")],
  byte: (n) => ["", "YQ==", "YWI=", "YWJj".repeat(Math.max(1, Math.ceil(n / 4)))],
};

/** Every format above refuses at least one of these. */
export const FORMAT_REFUSED: readonly string[] = ["", "a", " ", "(", "a b", "^", "\\", "{", "0a", "a@", "#", "%", "-"];

const MAX_EXAMPLE_LENGTH = 4_096;

/** Whether a format is one whose meaning is known here. */
export function isKnownFormat(name: string): boolean {
  return Object.hasOwn(MAKERS, name);
}

export function formatExamples(name: string, length: number): readonly string[] {
  const make = isKnownFormat(name) ? MAKERS[name] : undefined;
  return (make ?? anything)(Math.min(length, MAX_EXAMPLE_LENGTH));
}

function formatCounterexamples(length: number): readonly string[] {
  const long = Math.min(length, MAX_EXAMPLE_LENGTH);
  return [...FORMAT_REFUSED, ...["a", " ", "%", "-"].map((character) => character.repeat(long))];
}
