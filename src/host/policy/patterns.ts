// Patterns over whole arguments. They are anchored here, whatever the author wrote, and they cannot stall: matching runs
// under a time bound that stops even a backtracking search, and running out of time does not match.

import { createContext, Script } from "node:vm";

/** For all arguments of one call together. Generous, because an honest match takes microseconds. */
const MATCH_BUDGET_MS = 250;

export interface ArgumentPattern {
  readonly source: string;
  readonly regex: RegExp;
}

/** The author wrote the dash, so options are meant. `^(?:-` and `-?[0-9]+` count, `[\w-]+` does not. */
const SPELLS_A_DASH = /^\^?(?:\((?:\?:)?)*\\?-/;

export type CompiledPattern = { readonly pattern: ArgumentPattern } | { readonly error: string };

export function compileArgumentPattern(source: string): CompiledPattern {
  const flags = isValid(source, "u") ? "u" : "";
  // Alone first: `a)|(?:b` is only valid inside the anchors, and would undo them.
  if (flags === "" && !isValid(source, "")) {
    return { error: syntaxError(source) };
  }
  // A pattern for names must not let an option pass: programs take `--pre` for an option also where a file was meant.
  const noOption = SPELLS_A_DASH.test(source) ? "" : "(?!-)";
  return { pattern: { source, regex: new RegExp(`^${noOption}(?:${source})$`, flags) } };
}

function isValid(source: string, flags: string): boolean {
  try {
    new RegExp(source, flags);
    return true;
  } catch {
    return false;
  }
}

function syntaxError(source: string): string {
  try {
    new RegExp(source);
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

const matcher = new Script("texts.map((text) => patterns.some((regex) => regex.test(text)))");
// Made once: a context costs a thousand times what a match does. Only the line above ever runs in it.
const inputs: { patterns: readonly RegExp[]; texts: readonly string[] } = { patterns: [], texts: [] };
const context = createContext(inputs);

/** On a busy machine the time may pass without the search having had much of it; then it gets another chance. */
const MAX_TRIES = 5;

/** Which of `texts` match one of `patterns` as a whole. Undefined: the time ran out. */
export function matchAll(
  patterns: readonly ArgumentPattern[],
  texts: readonly string[],
  budgetMs = MATCH_BUDGET_MS,
): boolean[] | undefined {
  if (patterns.length === 0 || texts.length === 0) return texts.map(() => false);
  inputs.patterns = patterns.map((p) => p.regex);
  inputs.texts = texts;
  for (let tries = 1; tries <= MAX_TRIES; tries++) {
    const before = process.cpuUsage();
    try {
      return Array.from(matcher.runInContext(context, { timeout: budgetMs }) as boolean[]);
    } catch {
      const used = process.cpuUsage(before);
      if ((used.user + used.system) / 1000 > budgetMs / 2) return undefined;
    }
  }
  return undefined;
}
