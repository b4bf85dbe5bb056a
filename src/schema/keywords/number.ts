// Keywords for numbers.

import { isMultiple } from "../decimal.js";
import type { KeywordCheck } from "../run.js";
import { numberRange } from "../words.js";
import { type Keyword, type KeywordContext, malformed, number } from "./context.js";

export const minimum = bound("minimum", "at least", (value, limit) => value >= limit);
export const maximum = bound("maximum", "at most", (value, limit) => value <= limit);
export const exclusiveMinimum = bound("exclusiveMinimum", "greater than", (value, limit) => value > limit);
export const exclusiveMaximum = bound("exclusiveMaximum", "less than", (value, limit) => value < limit);

function bound(keyword: string, words: string, holds: (value: number, limit: number) => boolean): Keyword {
  return (context: KeywordContext): KeywordCheck | undefined => {
    const limit = number(context, keyword);
    if (limit === undefined) return undefined;
    return (value, at, run) =>
      typeof value !== "number" ||
      holds(value, limit) ||
      run.fail(at, () => {
        const range = numberRange(context.schema);
        return {
          message: `must be ${words} ${limit}`,
          expected: `a number ${range}`,
          suggestion: `Use a value ${range}`,
        };
      });
  };
}

export const multipleOf: Keyword = (context) => {
  const divisor = number(context, "multipleOf");
  if (divisor === undefined) return undefined;
  if (divisor <= 0) throw malformed(context, "multipleOf", "must be greater than 0");
  return (value, at, run) =>
    typeof value !== "number" ||
    isMultiple(value, divisor) ||
    run.fail(at, () => {
      const lower = Math.floor(value / divisor) * divisor;
      const neighbours = Number.isSafeInteger(lower) ? `, for example ${lower} or ${lower + divisor}` : "";
      return {
        message: `must be a multiple of ${divisor}`,
        expected: `a multiple of ${divisor}`,
        suggestion: `Use a multiple of ${divisor}${neighbours}`,
      };
    });
};
