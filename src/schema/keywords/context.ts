// What a keyword gets when it is compiled, and the checks on its own shape. A schema with a malformed keyword is
// refused as a whole: guessing what it meant would be deciding for its author.

import { isJsonObject, type JsonObject, type JsonValue } from "../../mcp/index.js";
import type { Located } from "../document.js";
import { type Dialect, escapePointer } from "../documents/index.js";
import type { Matcher } from "../pattern/matcher.js";
import type { KeywordCheck, ValidationRun } from "../run.js";
import { SchemaError } from "../types.js";
import { range } from "../words.js";

export interface KeywordContext {
  readonly schema: JsonObject;
  readonly located: Located;
  readonly dialect: Dialect;
  /** The check of a schema inside this one. */
  check(...path: (string | number)[]): KeywordCheck;
  /** The check of the schema that a reference points at. */
  reference(keyword: "$ref" | "$dynamicRef"): KeywordCheck;
  matcher(source: string, keyword: string): Matcher;
}

/** A keyword, or a family that has to be read together, becomes a check; undefined when it asks for nothing. */
export type Keyword = (context: KeywordContext) => KeywordCheck | undefined;

export function malformed(context: KeywordContext, keyword: string, reason: string): SchemaError {
  return new SchemaError(`${context.located.pointer}/${escapePointer(keyword)}`, reason);
}

export function count(context: KeywordContext, keyword: string): number | undefined {
  const value = context.schema[keyword];
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isInteger(value) && value >= 0) return value;
  throw malformed(context, keyword, "must be an integer that is not negative");
}

export function number(context: KeywordContext, keyword: string): number | undefined {
  const value = context.schema[keyword];
  if (value === undefined || typeof value === "number") return value;
  const hint = typeof value === "boolean" ? "; a boolean here is draft-04, name the limit itself" : "";
  throw malformed(context, keyword, `must be a number${hint}`);
}

export function names(context: KeywordContext, keyword: string, value: JsonValue | undefined): string[] {
  if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
  throw malformed(context, keyword, "must be an array of property names");
}

export function namedKeyword(context: KeywordContext, keyword: string): JsonObject | undefined {
  const value = context.schema[keyword];
  if (value === undefined || isJsonObject(value)) return value;
  throw malformed(context, keyword, "must be an object");
}

export function branches(context: KeywordContext, keyword: string): KeywordCheck[] | undefined {
  const value = context.schema[keyword];
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || value.length === 0) {
    throw malformed(context, keyword, "must be an array with at least one schema");
  }
  return value.map((_, index) => context.check(keyword, index));
}

/**
 * `sizeKeywords` makes the two keywords that bound a size. `measure` returns undefined for a value of another type; it may
 * stop counting where it is clear whether the size is `atLeast`, and counts exactly when that is NaN.
 */
export function sizeKeywords(
  [min, max, unit, advice]: readonly [min: string, max: string, unit: string, advice?: string],
  measure: (value: JsonValue, run: ValidationRun, atLeast: number) => number | undefined,
): [min: Keyword, max: Keyword] {
  const make = (keyword: string, words: "least" | "most"): Keyword => {
    return (context) => {
      const limit = count(context, keyword);
      if (limit === undefined) return undefined;
      const atLeast = words === "least" ? limit : limit + 1;
      return (value, at, run) => {
        const size = measure(value, run, atLeast);
        if (size === undefined || size >= atLeast === (words === "least")) return true;
        return run.fail(at, () => {
          const expected = `${range(context.schema[min], context.schema[max])} ${unit}`;
          return {
            message: `must have at ${words} ${limit} ${unit}, not ${measure(value, run, Number.NaN)}`,
            expected,
            ...(advice !== undefined && { suggestion: `${advice} ${expected}` }),
          };
        });
      };
    };
  };
  return [make(min, "least"), make(max, "most")];
}
