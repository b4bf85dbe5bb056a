// Keywords for arrays.

import { equalityKey } from "../documents/index.js";
import { STEPS_PER_NOTE } from "../run.js";
import { range } from "../words.js";
import { branches, count, type Keyword, malformed, sizeKeywords } from "./context.js";

/** The first items by position and the rest by one schema; the two dialects only spell it differently. */
export const items: Keyword = (context) => {
  const { schema, dialect } = context;
  const [leading, restKeyword] =
    dialect === "2020-12"
      ? [branches(context, "prefixItems") ?? [], "items"]
      : Array.isArray(schema.items)
        ? [schema.items.map((_, index) => context.check("items", index)), "additionalItems"]
        : [[], "items"];
  if (restKeyword === "items" && Array.isArray(schema.items)) {
    const hint = 'use prefixItems, or declare "$schema": "http://json-schema.org/draft-07/schema#"';
    throw malformed(context, "items", `must be one schema; for schemas by position ${hint}`);
  }
  const rest = schema[restKeyword] === undefined ? undefined : context.check(restKeyword);
  if (leading.length === 0 && rest === undefined) return undefined;
  const closed = schema[restKeyword] === false;
  return (value, at, run, seen) => {
    if (!Array.isArray(value)) return true;
    if (seen !== undefined) {
      seen.items = Math.max(seen.items, Math.min(leading.length, value.length));
      seen.allItems ||= rest !== undefined;
    }
    if (closed && value.length > leading.length) {
      return run.fail(at, () => ({
        message: `must have at most ${leading.length} items, not ${value.length}`,
        expected: `at most ${leading.length} items`,
      }));
    }
    let ok = true;
    for (const [index, item] of value.entries()) {
      const check = leading[index] ?? rest;
      if (check === undefined) break;
      if (run.inside(check, item, index, at)) continue;
      ok = false;
      if (run.done) return false;
    }
    return ok;
  };
};

export const contains: Keyword = (context) => {
  const { schema, dialect } = context;
  const modern = dialect === "2020-12";
  const min = (modern ? count(context, "minContains") : undefined) ?? 1;
  const max = (modern ? count(context, "maxContains") : undefined) ?? Number.POSITIVE_INFINITY;
  if (schema.contains === undefined) return undefined;
  const check = context.check("contains");
  return (value, at, run, seen) => {
    if (!Array.isArray(value)) return true;
    const matches = run.quietly(() => {
      let found = 0;
      for (const [index, item] of value.entries()) {
        if (!run.inside(check, item, index, at)) continue;
        found++;
        if (seen !== undefined) {
          run.spend(STEPS_PER_NOTE);
          seen.indexes.add(index);
        }
        if (found > max || (found >= min && max === Number.POSITIVE_INFINITY && seen === undefined)) break;
      }
      return found;
    });
    if (matches >= min && matches <= max) return true;
    const wanted = range(min, max === Number.POSITIVE_INFINITY ? undefined : max);
    return run.fail(at, () => ({
      message: `must contain ${wanted} matching items`,
      expected: `${wanted} matching items`,
    }));
  };
};

export const [minItems, maxItems] = sizeKeywords(["minItems", "maxItems", "items", "Send"], (value) =>
  Array.isArray(value) ? value.length : undefined,
);

/** Linear: a comparison of every pair would let a long array of objects stall the process. */
export const uniqueItems: Keyword = (context) => {
  const wanted = context.schema.uniqueItems;
  if (wanted !== undefined && typeof wanted !== "boolean") throw malformed(context, "uniqueItems", "must be a boolean");
  if (wanted !== true) return undefined;
  return (value, at, run) => {
    if (!Array.isArray(value)) return true;
    const seen = new Map<string, number>();
    for (const [index, item] of value.entries()) {
      const key = equalityKey(item, run);
      const first = seen.get(key);
      if (first !== undefined) {
        return run.fail(at, () => ({
          message: `has equal items at ${first} and ${index}`,
          expected: "items that all differ",
          suggestion: `Remove item ${index}`,
        }));
      }
      seen.set(key, index);
    }
    return true;
  };
};

/** Runs last, on what the other keywords noted. */
export const unevaluatedItems: Keyword = (context) => {
  if (context.schema.unevaluatedItems === undefined) return undefined;
  const check = context.check("unevaluatedItems");
  return (value, at, run, seen) => {
    if (!Array.isArray(value) || seen === undefined || seen.allItems) return true;
    let ok = true;
    for (const [index, item] of value.entries()) {
      run.spend(1);
      if (index < seen.items || seen.indexes.has(index) || run.inside(check, item, index, at)) continue;
      ok = false;
      if (run.done) return false;
    }
    seen.allItems = true;
    return ok;
  };
};
