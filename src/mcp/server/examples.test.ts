import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Schema } from "../../schema/schema.js";
import type { JsonObject } from "../index.js";
import { examples } from "./examples.js";
import type { JsonSchema } from "./types.js";

describe("examples", () => {
  it("examples are made from the constraints: first the least, then everything", () => {
    const schema = {
      type: "object",
      properties: {
        ticker_symbol: { type: "string", pattern: "^[A-Z]{1,5}$" },
        period_days: { type: "integer", minimum: 1, maximum: 365 },
        analysis_type: { type: "string", enum: ["technical", "fundamental"] },
      },
      required: ["ticker_symbol", "period_days"],
    };
    expect(examples(schema, 3)).toEqual([
      { ticker_symbol: "A", period_days: 92 },
      { ticker_symbol: "BC", period_days: 1, analysis_type: "fundamental" },
      { ticker_symbol: "CDE", period_days: 365 },
    ]);
  });

  it("examples are the same every time", () => {
    const schema = { type: "array", items: { type: "string", format: "uuid" }, minItems: 1 };
    expect(examples(schema, 5)).toEqual(examples(schema, 5));
  });

  it.each<[string, JsonSchema]>([
    ["what the author wrote", { type: "string", pattern: "^[a-z]$", examples: ["x"] }],
    [
      "references and recursion",
      {
        $defs: {
          node: {
            type: "object",
            properties: { next: { $ref: "#/$defs/node" }, n: { type: "integer" } },
            required: ["n"],
          },
        },
        $ref: "#/$defs/node",
      },
    ],
    [
      "allOf",
      {
        allOf: [
          { type: "object", properties: { a: { type: "string", minLength: 3 } }, required: ["a"] },
          { properties: { b: { const: 2 } }, required: ["b"] },
        ],
      },
    ],
    [
      "anyOf",
      {
        anyOf: [
          { type: "string", maxLength: 2 },
          { type: "integer", minimum: 9 },
        ],
      },
    ],
    ["tuples", { type: "array", prefixItems: [{ type: "integer" }, { type: "string" }], items: false, minItems: 2 }],
    [
      "tuples of draft-07",
      {
        $schema: "http://json-schema.org/draft-07/schema#",
        type: "array",
        items: [{ type: "integer" }],
        additionalItems: false,
      },
    ],
    ["unique items", { type: "array", items: { enum: ["a", "b", "c"] }, uniqueItems: true, minItems: 2 }],
    ["contains", { type: "array", contains: { const: "needle" } }],
    ["open numbers", { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 }],
    ["multiples", { type: "number", multipleOf: 0.25, minimum: 10.1 }],
    ["many properties", { type: "object", minProperties: 3 }],
    ["long strings", { type: "string", minLength: 100 }],
    [
      "formats",
      {
        type: "object",
        properties: { a: { format: "date-time" }, b: { format: "email" }, c: { format: "uri" } },
        required: ["a", "b", "c"],
      },
    ],
    ["types in a list", { type: ["null", "integer"] }],
    ["anything", true],
    [
      "strange names",
      JSON.parse(
        '{"type":"object","properties":{"__proto__":{"type":"string"}},"required":["__proto__"]}',
      ) as JsonObject,
    ],
  ])("examples are found for %s", async (_, schema) => {
    const found = examples(schema, 3);
    expect(found.length).toBeGreaterThan(0);
    for (const example of found) expect(await new Schema(schema).validate(example)).toEqual({ ok: true });
  });

  it.each<[string, JsonSchema]>([
    ["nothing fits", false],
    ["a contradiction", { type: "string", const: 5 }],
    ["endless recursion", { type: "object", properties: { a: { $ref: "#" } }, required: ["a"] }],
    ["a pattern that may not run here", { type: "string", pattern: "^(a)\\1$" }],
    ["a broken schema", { type: "text" }],
    ["a remote reference", { $ref: "https://example.com/x" }],
  ])("there are none when %s", (_, schema) => {
    expect(examples(schema, 3)).toEqual([]);
  });

  it("examples are never more than asked for, never more than twenty", () => {
    expect(examples({ type: "string" }, 0)).toEqual([]);
    expect(examples({ type: "integer" }, 1000).length).toBeLessThanOrEqual(20);
  });

  it("whatever the schema: no exception, and every example fits [G3]", () => {
    const keyword = fc.constantFrom(
      "type",
      "properties",
      "items",
      "enum",
      "anyOf",
      "$ref",
      "minimum",
      "minItems",
      "required",
      "examples",
    );
    const junk = fc.dictionary(keyword, fc.jsonValue({ maxDepth: 3 })) as fc.Arbitrary<JsonObject>;
    fc.assert(
      fc.property(junk, (schema) => {
        for (const example of examples(schema, 2))
          expect(new Schema(schema).validateNow(example)).toEqual({ ok: true });
      }),
      { numRuns: 500 },
    );
  });
});
