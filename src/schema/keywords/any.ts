// Keywords for values of every type.

import type { JsonValue } from "../../mcp/index.js";
import { ValueSet } from "../equal.js";
import { WRONG_TYPE } from "../run.js";
import { jsonKindOf, listWords, literalText, nearestKeyword, typeWords } from "../words.js";
import { type Keyword, malformed } from "./context.js";

const TYPES: Readonly<Record<string, (value: JsonValue) => boolean>> = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => typeof value === "number" && Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: (value) => Array.isArray(value),
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
};

export const type: Keyword = (context) => {
  const declared = context.schema.type;
  if (declared === undefined) return undefined;
  const types = Array.isArray(declared) ? declared : [declared];
  const tests = types.map((name) => {
    const test = typeof name === "string" && Object.hasOwn(TYPES, name) ? TYPES[name] : undefined;
    if (test === undefined) throw malformed(context, "type", `${literalText(name)} is not a JSON type`);
    return test;
  });
  if (tests.length === 0) throw malformed(context, "type", "must name at least one type");
  const words = typeWords(types.map(String));
  return (value, at, run) =>
    tests.some((test) => test(value)) ||
    run.fail(at, () => ({
      message: `must be ${words}, not ${jsonKindOf(value)}`,
      expected: words,
      ...conversion(value, types),
      weight: WRONG_TYPE,
    }));
};

/** The commonest slip of a model: the right value in the wrong type. */
function conversion(value: JsonValue, types: readonly JsonValue[]): { suggestion?: string } {
  const wantsNumber = types.includes("number") || types.includes("integer");
  if (typeof value === "string" && wantsNumber && value.trim() !== "" && Number.isFinite(Number(value))) {
    return { suggestion: "Send the number without quotes" };
  }
  if ((value === "true" || value === "false") && types.includes("boolean")) {
    return { suggestion: "Send true or false without quotes" };
  }
  if (typeof value === "number" && types.includes("integer")) return { suggestion: "Send a whole number" };
  if ((typeof value === "number" || typeof value === "boolean") && types.includes("string")) {
    return { suggestion: "Put the value in quotes" };
  }
  if (types.includes("array") && types.length === 1) return { suggestion: "Send an array, also for a single item" };
  return {};
}

export const enumeration: Keyword = (context) => {
  const values = context.schema.enum;
  if (values === undefined) return undefined;
  if (!Array.isArray(values)) throw malformed(context, "enum", "must be an array");
  const allowed = new ValueSet(values);
  return (value, at, run) =>
    allowed.has(value, run) ||
    run.fail(at, () => {
      const expected = `one of ${listWords(values.slice(0, 20).map(literalText))}${values.length > 20 ? ", …" : ""}`;
      const strings = values.filter((allowedValue) => typeof allowedValue === "string");
      const meant = typeof value === "string" ? nearestKeyword(value, strings) : undefined;
      return {
        message: `must be ${expected}`,
        expected,
        suggestion: meant === undefined ? `Use ${expected}` : `Did you mean ${literalText(meant)}?`,
        weight: 10,
      };
    });
};

export const constKeyword: Keyword = (context) => {
  const wanted = context.schema.const;
  if (wanted === undefined) return undefined;
  const allowed = new ValueSet([wanted]);
  return (value, at, run) =>
    allowed.has(value, run) ||
    run.fail(at, () => ({
      message: `must be ${literalText(wanted)}`,
      expected: literalText(wanted),
      suggestion: `Use ${literalText(wanted)}`,
      weight: 10,
    }));
};
