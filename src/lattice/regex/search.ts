import type { CharSet } from "refa";
import type { Language, Languages } from "./language.js";

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
