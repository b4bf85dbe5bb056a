import { describe, expect, it } from "vitest";
import type { JsonObject, JsonValue } from "../mcp/index.js";
import { Schema } from "./schema.js";
import type { Problem } from "./types.js";

function problems(schema: JsonObject, value: JsonValue): Problem[] {
  const verdict = new Schema(schema).validate(value);
  if (verdict instanceof Promise) throw new Error("no worker is needed here");
  return verdict.ok ? [] : verdict.problems;
}

const analyzer: JsonObject = {
  type: "object",
  properties: {
    ticker_symbol: { type: "string", pattern: "^[A-Z]{1,5}$", minLength: 1, maxLength: 5 },
    period_days: { type: "integer", minimum: 1, maximum: 365 },
    analysis_type: { type: "string", enum: ["technical", "fundamental", "sentiment"], default: "technical" },
  },
  required: ["ticker_symbol", "period_days"],
  additionalProperties: false,
};

describe("what is wrong, where, and what would be right", () => {
  it("reports nothing when nothing is wrong", () => {
    expect(problems(analyzer, { ticker_symbol: "AAPL", period_days: 90 })).toEqual([]);
  });

  it("reports a pattern and a length as the requirements ask", () => {
    expect(problems(analyzer, { ticker_symbol: "invalid123", period_days: 90 })).toEqual([
      {
        path: "/ticker_symbol",
        message: "does not match the pattern ^[A-Z]{1,5}$",
        expected: "text that matches ^[A-Z]{1,5}$",
        suggestion: 'Use uppercase letters only; length must be 1-5 characters, for example "BC"',
      },
      {
        path: "/ticker_symbol",
        message: "must have at most 5 characters, not 10",
        expected: "1-5 characters",
        suggestion: "Length must be 1-5 characters",
      },
    ]);
  });

  it("reports a missing property whose name was mistyped", () => {
    expect(problems(analyzer, { ticker_symbol: "A", perod_days: 90 })).toEqual([
      {
        path: "/period_days",
        message: "is required",
        expected: "an integer, from 1 to 365",
        suggestion: "Rename `perod_days` to `period_days`",
      },
      {
        path: "/perod_days",
        message: "is not a property of this object",
        expected: "only ticker_symbol, period_days, analysis_type",
        suggestion: "Did you mean `period_days`?",
      },
    ]);
  });

  it("reports a missing property that nothing resembles", () => {
    expect(problems(analyzer, { ticker_symbol: "A" })).toMatchObject([
      { suggestion: "Add `period_days` (an integer, from 1 to 365)" },
    ]);
  });

  it.each<[string, JsonObject, JsonValue, Partial<Problem>]>([
    [
      "an enum value nearly right",
      { enum: ["technical", "fundamental"] },
      "Techncal",
      { suggestion: 'Did you mean "technical"?' },
    ],
    ["an enum value far off", { enum: ["red", "blue"] }, "xyzzyx", { suggestion: 'Use one of "red" or "blue"' }],
    [
      "a number below",
      { minimum: 1, maximum: 365 },
      0,
      { message: "must be at least 1", suggestion: "Use a value from 1 to 365" },
    ],
    [
      "a number above an open bound",
      { exclusiveMaximum: 5 },
      5,
      { message: "must be less than 5", suggestion: "Use a value less than 5" },
    ],
    ["a multiple", { multipleOf: 5 }, 12, { suggestion: "Use a multiple of 5, for example 10 or 15" }],
    [
      "a number in quotes",
      { type: "integer" },
      "42",
      { message: "must be an integer, not a string", suggestion: "Send the number without quotes" },
    ],
    ["a boolean in quotes", { type: "boolean" }, "true", { suggestion: "Send true or false without quotes" }],
    ["a fraction", { type: "integer" }, 1.5, { suggestion: "Send a whole number" }],
    ["a single item", { type: "array" }, "x", { suggestion: "Send an array, also for a single item" }],
    [
      "too few items",
      { minItems: 2, maxItems: 3 },
      [],
      { message: "must have at least 2 items, not 0", suggestion: "Send 2-3 items" },
    ],
    [
      "an email",
      { format: "email" },
      "unknown-caller",
      { message: "is not a valid email", suggestion: "Use a valid email, such as someone@example.com" },
    ],
    ["a constant", { const: "v1" }, "v2", { message: 'must be "v1"', suggestion: 'Use "v1"' }],
    [
      "a dependency",
      { dependentRequired: { card: ["name"] } },
      { card: 1 },
      { path: "/name", message: "is required when `card` is given" },
    ],
    [
      "types in words",
      { anyOf: [{ type: "string" }, { type: "number" }] },
      true,
      { message: "must be a string or a number, not a boolean" },
    ],
    ["a forbidden value", { not: { const: 1 } }, 1, { message: "is a value that is not allowed", expected: "not 1" }],
    ["a forbidden place", { properties: { a: false } }, { a: 1 }, { path: "/a", message: "is not allowed here" }],
  ])("%s", (_, schema, value, expected) => {
    expect(problems(schema, value)).toMatchObject([expected]);
  });

  it("paths are JSON pointers, with their escapes", () => {
    const schema = { properties: { "a/b": { properties: { "c~d": { items: { type: "string" } } } } } };
    expect(problems(schema, { "a/b": { "c~d": ["x", 1] } })).toMatchObject([{ path: "/a~1b/c~0d/1" }]);
  });

  it("explains only the nearest of several alternatives", () => {
    const schema: JsonObject = {
      oneOf: [
        {
          type: "object",
          properties: { kind: { const: "circle" }, radius: { type: "number" } },
          required: ["kind", "radius"],
        },
        {
          type: "object",
          properties: { kind: { const: "square" }, side: { type: "number" } },
          required: ["kind", "side"],
        },
      ],
    };
    expect(problems(schema, { kind: "square", side: "3" })).toEqual([
      {
        path: "/side",
        message: "must be a number, not a string",
        expected: "a number",
        suggestion: "Send the number without quotes",
      },
    ]);
  });

  it("reports the same problem once, and not more than twenty", () => {
    expect(problems({ allOf: [{ type: "string" }, { type: "string" }] }, 1)).toHaveLength(1);
    expect(
      problems(
        { items: { type: "string" } },
        Array.from({ length: 500 }, () => 1),
      ),
    ).toHaveLength(20);
  });

  it("never repeats values: messages travel to logs, arguments do not", () => {
    const secret = "hunter2-hunter2";
    const schema = {
      properties: { password: { pattern: "^[0-9]+$", enum: ["1", "2"], maxLength: 3, format: "date" } },
    };
    expect(JSON.stringify(problems(schema, { password: secret }))).not.toContain(secret);
  });

  it("numbers are compared in decimals", () => {
    expect(problems({ multipleOf: 0.01 }, 19.99)).toEqual([]);
    expect(problems({ multipleOf: 0.01 }, 19.999)).toHaveLength(1);
    expect(problems({ multipleOf: 0.1 }, 1e22)).toEqual([]);
  });
});
