// A pattern ready to use: native while its worst case is known to be small, for longer texts in a worker.

import { safeLength } from "./cost.js";
import { flagsFor, parsePattern } from "./parse.js";
import type { Effort } from "./paths.js";

const MAX_PATTERN_LENGTH = 4_096;
const MAX_PROPERTIES = 20;
const MAX_EFFORT_EACH = 400_000;
/** Reading a character of a pattern, beside what is done with it later. */
const PARSE_EFFORT = 10;

export interface Matcher {
  readonly source: string;
  readonly flags: string;
  /** Texts up to this length may be tested here and now; −1 when none may. */
  readonly safeLength: number;
  /** INVARIANT: only called with texts of at most `safeLength`. */
  test(text: string): boolean;
}

export type MatcherOutcome = { ok: true; matcher: Matcher } | { ok: false; reason: string };

/** The same few patterns (a uuid, a date) stand in thousands of tools; what was proved about one is kept. */
const proved = new Map<string, MatcherOutcome>();
const MAX_PROVED = 2_000;

export function createMatcher(source: string, effort: Effort, flags?: string): MatcherOutcome {
  const key = `${flags ?? ""}/${source}`;
  const known = proved.get(key);
  if (known !== undefined) return known;
  const given = Math.max(0, Math.min(MAX_EFFORT_EACH, effort.left));
  const outcome = prove(source, given, effort, flags);
  // An answer that was cut short by someone else's spending is not kept: the next document deserves its own look.
  if (given === MAX_EFFORT_EACH) {
    if (proved.size >= MAX_PROVED) proved.delete(proved.keys().next().value as string);
    proved.set(key, outcome);
  }
  return outcome;
}

function prove(source: string, given: number, effort: Effort, wanted: string | undefined): MatcherOutcome {
  if (source.length > MAX_PATTERN_LENGTH) {
    return { ok: false, reason: `is ${source.length} characters long; the limit is ${MAX_PATTERN_LENGTH}` };
  }
  // The engine looks up every one of them in the Unicode tables as soon as it reads the pattern.
  if (source.split(/\\p\{/i, MAX_PROPERTIES + 2).length > MAX_PROPERTIES + 1) {
    return { ok: false, reason: `has more than ${MAX_PROPERTIES} Unicode properties` };
  }
  const flags = wanted ?? flagsFor(source);
  if (flags === undefined) return { ok: false, reason: "is not a valid regular expression" };
  const own = { left: given - source.length * PARSE_EFFORT };
  const pattern = own.left > 0 ? parsePattern(source, flags) : undefined;
  const safe = pattern === undefined ? -1 : safeLength(pattern, own);
  effort.left -= given - Math.max(own.left, 0);
  const regexp = new RegExp(source, flags);
  return { ok: true, matcher: { source, flags, safeLength: safe, test: (text) => regexp.test(text) } };
}
