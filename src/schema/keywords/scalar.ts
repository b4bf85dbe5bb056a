// Keywords for values of every type, for numbers and for strings.

import { type JsonValue, nearest } from "../../mcp/index.js";
import { equalityKey } from "../documents/index.js";
import { formatCheck } from "../format.js";
import { describePattern } from "../pattern/sample.js";
import { type KeywordCheck, type ValidationRun, WRONG_TYPE } from "../run.js";
import { jsonKindOf, listWords, literalText, numberRange, typeWords } from "../words.js";
import { type Keyword, type KeywordContext, malformed, number, sizeKeywords } from "./context.js";

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
      const meant = typeof value === "string" ? nearest(value, strings) : undefined;
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

/** By decimal digits, where the remainder of the doubles does not decide. */
const STEPS_PER_DIVISION = 32;

export const multipleOf: Keyword = (context) => {
  const divisor = number(context, "multipleOf");
  if (divisor === undefined) return undefined;
  if (divisor <= 0) throw malformed(context, "multipleOf", "must be greater than 0");
  return (value, at, run) => {
    if (typeof value !== "number") return true;
    run.spend(STEPS_PER_DIVISION);
    if (isMultiple(value, divisor)) return true;
    return run.fail(at, () => {
      const lower = Math.floor(value / divisor) * divisor;
      const neighbours = Number.isSafeInteger(lower) ? `, for example ${lower} or ${lower + divisor}` : "";
      return {
        message: `must be a multiple of ${divisor}`,
        expected: `a multiple of ${divisor}`,
        suggestion: `Use a multiple of ${divisor}${neighbours}`,
      };
    });
  };
};

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

/** Length in characters, not in UTF-16 units; counted only as far as the limit needs. */
export const [minLength, maxLength] = sizeKeywords(
  ["minLength", "maxLength", "characters", "Length must be"],
  (value, run, atLeast) => {
    if (typeof value !== "string") return undefined;
    run.spend(value.length >> 4);
    return value.length < atLeast || value.length >= atLeast * 2 ? value.length : characters(value);
  },
);

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

/** A set of allowed values that is asked once per check: plain values directly, the rest by key. */
class ValueSet {
  readonly #plain = new Set<JsonValue>();
  readonly #keys = new Set<string>();
  constructor(values: readonly JsonValue[]) {
    for (const value of values) {
      if (value !== null && typeof value === "object") this.#keys.add(equalityKey(value));
      else this.#plain.add(value);
    }
  }
  has(value: JsonValue, run: ValidationRun): boolean {
    if (value === null || typeof value !== "object") return this.#plain.has(value);
    return this.#keys.size > 0 && this.#keys.has(equalityKey(value, run));
  }
}

/** By binary division 19.99 is not a multiple of 0.01, so the decimal digits decide. */
function isMultiple(value: number, divisor: number): boolean {
  if (value % divisor === 0) return true;
  if (Number.isInteger(value) && Number.isInteger(divisor)) return false;
  const a = decimal(value);
  const b = decimal(divisor);
  const power = a.exponent - b.exponent;
  if (power >= 0) return (a.digits * powerOfTen(power, b.digits)) % b.digits === 0n;
  return power >= -MAX_DIGITS && a.digits % (b.digits * 10n ** BigInt(-power)) === 0n;
}

/** More than the digits of any double: a multiple would be larger than the value. */
const MAX_DIGITS = 20;

/** 10^power modulo `modulus`, in steps that grow with the logarithm of the power. */
function powerOfTen(power: number, modulus: bigint): bigint {
  let result = 1n;
  let base = 10n % modulus;
  for (let rest = power; rest > 0; rest >>= 1) {
    if ((rest & 1) === 1) result = (result * base) % modulus;
    base = (base * base) % modulus;
  }
  return result;
}

interface Decimal {
  digits: bigint;
  exponent: number;
}

/** The shortest decimal that reads back as this number, as digits × 10^exponent. */
function decimal(value: number): Decimal {
  const [mantissa = "0", power = "0"] = value.toExponential().split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}
