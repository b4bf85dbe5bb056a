// The texts that one conversation has seen in results, and where a value occurs in them. Bounded: when a text had to be
// dropped, what is not found counts as untrusted.

import { type Comparable, comparableText, squeeze } from "./text.js";

export interface SeenSource {
  readonly server: string;
  readonly name: string;
  /** The call whose result it was. */
  readonly call: string;
}

interface SeenText extends Comparable {
  readonly source: SeenSource;
  readonly isTrusted: boolean;
  readonly secrets: readonly string[];
  /** Hashes of every eighth run of letters and digits; made when a long value is first looked for. */
  grams?: ReadonlySet<number>;
}

/** Where a value came from. */
export interface Occurrence {
  readonly origin: "untrusted" | "trusted" | "none";
  /** Labels of private data among whose texts it occurs. */
  readonly secrets: readonly string[];
  /** Of the untrusted text. */
  readonly source?: SeenSource;
}

/** Shorter values are compared word by word; longer ones by their letters and digits. */
const SHORT_CHARS = 8;
/** A payload shorter than this is too common to say anything. */
const MIN_PAYLOAD_CHARS = 6;
const GRAM = 16;
const GRAM_STEP = 8;
const MAX_PIECES = 4;
const MIN_PIECE = 5;
const MIN_PART = 3;
const MAX_TEXTS = 2_048;

export class SeenTexts {
  readonly #texts: SeenText[] = [];
  readonly #maxChars: number;
  #chars = 0;
  /** A text was dropped or cut. */
  isIncomplete: boolean;

  constructor(maxChars: number, isIncomplete = false) {
    this.#maxChars = maxChars;
    this.isIncomplete = isIncomplete;
  }

  get chars(): number {
    return this.#chars;
  }

  add(text: string, from: Pick<SeenText, "source" | "isTrusted" | "secrets">): void {
    const cut = text.length > this.#maxChars ? text.slice(0, this.#maxChars) : text;
    if (cut !== text) this.isIncomplete = true;
    const { plain, squeezed } = comparableText(cut);
    if (squeezed === "") return;
    this.#texts.push({ ...from, plain, squeezed });
    this.#chars += plain.length + squeezed.length;
    while (this.#chars > this.#maxChars * 2 || this.#texts.length > MAX_TEXTS) this.#dropOldest();
  }

  #dropOldest(): void {
    const [oldest] = this.#texts.splice(0, 1);
    if (!oldest) return;
    this.#chars -= oldest.plain.length + oldest.squeezed.length;
    this.isIncomplete = true;
  }

  /** `isWhole` finds any value, however short: for destinations. */
  find(value: string, isWhole: boolean): Occurrence {
    const sought = comparableText(value);
    if (sought.squeezed === "") return { origin: "none", secrets: [] };
    if (!isWhole && sought.squeezed.length < MIN_PAYLOAD_CHARS) return { origin: "none", secrets: [] };
    const secrets = new Set<string>();
    let untrusted: SeenSource | undefined;
    let isTrusted = false;
    for (const text of this.#texts) {
      if (!occurs(sought, text)) continue;
      for (const secret of text.secrets) secrets.add(secret);
      if (text.isTrusted) isTrusted = true;
      else untrusted ??= text.source;
    }
    if (!isTrusted && untrusted === undefined) untrusted = this.#partly(sought, secrets);
    if (isTrusted) return { origin: "trusted", secrets: [...secrets] };
    if (untrusted !== undefined) return { origin: "untrusted", secrets: [...secrets], source: untrusted };
    return { origin: this.isIncomplete ? "untrusted" : "none", secrets: [...secrets] };
  }

  /** A value that was cut out of, put together from, or wrapped around untrusted text. */
  #partly(sought: Comparable, secrets: Set<string>): SeenSource | undefined {
    let source: SeenSource | undefined;
    const runs = runsOf(sought.squeezed);
    for (const text of this.#texts) {
      if (source && text.secrets.length === 0) continue;
      if (!sharesRun(runs, text)) continue;
      for (const secret of text.secrets) secrets.add(secret);
      if (!text.isTrusted) source ??= text.source;
    }
    return source ?? this.#atom(sought) ?? this.#pieces(sought);
  }

  /** An address inside a longer destination: the host of a URL, an e-mail address, a long number. */
  #atom({ plain }: Comparable): SeenSource | undefined {
    for (const atom of atomsOf(plain)) {
      const sought = { plain: atom, squeezed: squeeze(atom) };
      const found = this.#texts.filter((text) => occurs(sought, text));
      const untrusted = found.find((text) => !text.isTrusted);
      if (untrusted && !found.some((text) => text.isTrusted)) return untrusted.source;
    }
    return undefined;
  }

  /** Put together from a few pieces, each of them in untrusted text: `mark` + `@` + `evil.example`, or cut anywhere. */
  #pieces({ plain, squeezed }: Comparable): SeenSource | undefined {
    const untrusted = this.#texts.filter((text) => !text.isTrusted);
    if (untrusted.length === 0 || squeezed.length < SHORT_CHARS) return undefined;
    const parts = plain.split(/[^\p{L}\p{N}]+/u).filter((part) => part.length >= MIN_PART);
    const first = parts.length < 2 || parts.length > MAX_PIECES * 2 ? undefined : wordsIn(parts, untrusted);
    return first ?? covered(squeezed, untrusted);
  }
}

function wordsIn(parts: readonly string[], texts: readonly SeenText[]): SeenSource | undefined {
  let source: SeenSource | undefined;
  for (const part of parts) {
    const text = texts.find(({ plain }) => hasWord(plain, part));
    if (!text) return undefined;
    source ??= text.source;
  }
  return source;
}

function covered(value: string, texts: readonly SeenText[]): SeenSource | undefined {
  let rest = value;
  let source: SeenSource | undefined;
  for (let piece = 0; rest !== ""; piece++) {
    if (piece === MAX_PIECES) return undefined;
    let best = 0;
    for (const text of texts) {
      const length = longestPrefix(rest, text.squeezed);
      if (length <= best) continue;
      best = length;
      source ??= text.source;
    }
    if (best < Math.min(MIN_PIECE, value.length)) return undefined;
    rest = rest.slice(best);
  }
  return source;
}

/** Length of the longest prefix that occurs. */
function longestPrefix(value: string, text: string): number {
  let low = 0;
  let high = value.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (text.includes(value.slice(0, middle))) low = middle;
    else high = middle - 1;
  }
  return low;
}

function occurs(sought: Comparable, text: Comparable): boolean {
  if (sought.squeezed.length < SHORT_CHARS) return hasWord(text.plain, sought.plain.trim());
  return text.squeezed.includes(sought.squeezed);
}

function hasWord(text: string, word: string): boolean {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!isWordChar(text[at - 1]) && !isWordChar(text[at + word.length])) return true;
  }
  return false;
}

function isWordChar(char: string | undefined): boolean {
  return char !== undefined && /[\p{L}\p{N}]/u.test(char);
}

const MAX_ATOMS = 64;

/** Longer words are compared as a whole: an address has fewer characters. */
const MAX_WORD = 512;

function atomsOf(text: string): string[] {
  const found = new Set<string>();
  // INVARIANT: the patterns see short words alone, since they take time in the square of a word's length.
  const words = text.split(" ").filter((word) => word.length <= MAX_WORD);
  const plain = words.join(" ");
  for (const [host] of plain.matchAll(/(?:[\p{L}\p{N}-]+\.)+[\p{L}]{2,}/gu)) found.add(host);
  for (const [address] of plain.matchAll(/[\p{L}\p{N}._%+-]+@(?:[\p{L}\p{N}-]+\.)+[\p{L}]{2,}/gu)) found.add(address);
  for (const [number] of plain.matchAll(/(?:[a-z]{2})?\d[\d -]{6,}\d/g)) found.add(number);
  return [...found].filter((atom) => atom !== text.trim()).slice(0, MAX_ATOMS);
}

/** True when the two share a run of at least `GRAM + GRAM_STEP - 1` letters and digits. */
function sharesRun(runs: ReadonlyMap<number, string>, text: SeenText): boolean {
  if (runs.size === 0 || text.squeezed.length < GRAM) return false;
  text.grams ??= gramsOf(text.squeezed);
  for (const gram of text.grams) {
    const run = runs.get(gram);
    if (run !== undefined && text.squeezed.includes(run)) return true;
  }
  return false;
}

/** Every run of a value by its hash: made once, however many texts there are. */
function runsOf(value: string): ReadonlyMap<number, string> {
  const runs = new Map<number, string>();
  for (let at = 0; at + GRAM <= value.length; at++) {
    const run = value.slice(at, at + GRAM);
    runs.set(hash(run), run);
  }
  return runs;
}

function gramsOf(squeezed: string): ReadonlySet<number> {
  const grams = new Set<number>();
  for (let at = 0; at + GRAM <= squeezed.length; at += GRAM_STEP) grams.add(hash(squeezed.slice(at, at + GRAM)));
  return grams;
}

/** FNV-1a over UTF-16 units. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return value >>> 0;
}
