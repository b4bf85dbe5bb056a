// Keywords for strings.

import { describePattern } from "../pattern/describe.js";
import { formatCheck } from "../format.js";
import type { KeywordCheck } from "../run.js";
import { range } from "../words.js";
import { count, type Keyword, type KeywordContext, malformed } from "./context.js";

/** Length in characters, not in UTF-16 units; counted only as far as the limit needs. */
function atLeast(text: string, limit: number): boolean {
  if (text.length < limit) return false;
  if (text.length >= limit * 2) return true;
  return characters(text) >= limit;
}

function characters(text: string): number {
  let length = text.length;
  for (let i = 1; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0xdc00 && unit <= 0xdfff) {
      const before = text.charCodeAt(i - 1);
      if (before >= 0xd800 && before <= 0xdbff) length--;
    }
  }
  return length;
}

export const minLength: Keyword = (context) => {
  const limit = count(context, "minLength");
  return limit === undefined ? undefined : length(context, `at least ${limit}`, (text) => atLeast(text, limit));
};

export const maxLength: Keyword = (context) => {
  const limit = count(context, "maxLength");
  return limit === undefined ? undefined : length(context, `at most ${limit}`, (text) => !atLeast(text, limit + 1));
};

function length({ schema }: KeywordContext, words: string, holds: (text: string) => boolean): KeywordCheck {
  return (value, at, run) => {
    if (typeof value !== "string") return true;
    run.spend(value.length >> 4);
    if (holds(value)) return true;
    const allowed = range(schema.minLength, schema.maxLength);
    return run.fail(at, () => ({
      message: `must have ${words} characters, not ${characters(value)}`,
      expected: `${allowed} characters`,
      suggestion: `Length must be ${allowed} characters`,
    }));
  };
}

export const pattern: Keyword = (context) => {
  const source = context.schema.pattern;
  if (source === undefined) return undefined;
  if (typeof source !== "string") throw malformed(context, "pattern", "must be a string");
  const matcher = context.matcher(source, "pattern");
  return (value, at, run) =>
    typeof value !== "string" ||
    run.matches(matcher, value) ||
    run.fail(at, () => ({
      message: `does not match the pattern ${source}`,
      expected: `text that matches ${source}`,
      ...describePattern(matcher),
    }));
};

export const format: Keyword = (context) => {
  const name = context.schema.format;
  if (name === undefined) return undefined;
  if (typeof name !== "string") throw malformed(context, "format", "must be a string");
  const known = formatCheck(name);
  if (known === undefined) return undefined;
  return (value, at, run) =>
    known.holds(value, run) ||
    run.fail(at, () => ({
      message: `is not a valid ${name}`,
      expected: `a valid ${name}`,
      suggestion: known.example === undefined ? `Use a valid ${name}` : `Use a valid ${name}, such as ${known.example}`,
    }));
};
