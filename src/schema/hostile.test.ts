// Schemas and values made to stall, exhaust or mislead a validator.

import { describe, expect, it } from "vitest";
import type { JsonObject, JsonValue } from "../mcp/index.js";
import { PatternWorkers } from "./pattern/worker.js";
import { Schema } from "./schema.js";
import { type JsonSchema, SchemaError } from "./types.js";

async function judge(schema: JsonSchema, value: JsonValue, timeoutMs = 5_000) {
  const verdict = await new Schema(schema, { limits: { timeoutMs } }).validate(value);
  return verdict.ok ? "valid" : (verdict.problems[0]?.message ?? "");
}

describe("patterns that explode", () => {
  const soon = 500;
  const bad = `${"a".repeat(60)}!`;
  it.each([
    "(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "^([a-zA-Z]+)*$",
    "^(a*)*$",
    "^(.*a){20}$",
    "^(a+){2,}$",
    "(x*)*y$|^(a+)+$",
  ])("%s is stopped in its worker, and the call counts as invalid", async (pattern) => {
    let ticks = 0;
    const timer = setInterval(() => ticks++, 1);
    expect(await judge({ type: "string", pattern }, bad, soon)).toContain("could not be checked within 500 ms");
    clearInterval(timer);
    expect(ticks, "the main thread kept running").toBeGreaterThan(0);
  });

  it("stops a pattern that explodes as the name of a property", async () => {
    const schema = { patternProperties: { "^(a+)+$": { type: "number" } } };
    expect(await judge(schema, { [bad]: 1 }, soon)).toContain("could not be checked");
    expect(await judge(schema, { aaa: "x" })).toBe("must be a number, not a string");
  });

  it("stops a pattern that explodes as a rule for property names", async () => {
    expect(await judge({ propertyNames: { pattern: "^(a+)+$" } }, { [bad]: 1 }, soon)).toContain(
      "could not be checked",
    );
  });

  it("stops a pattern that explodes hidden under not, if and anyOf", async () => {
    const evil = { pattern: "^(a+)+$" };
    for (const schema of [
      { not: evil },
      { if: evil, else: false },
      { anyOf: [evil, { type: "null" }] },
    ] as JsonObject[]) {
      expect(await judge(schema, bad, soon)).toContain("could not be checked");
    }
  });

  it("answers a pattern with a backreference, which cannot be bounded, in the worker", async () => {
    const schema = { type: "string", pattern: "^(ab+)\\1$" };
    expect(await judge(schema, "abbabb")).toBe("valid");
    expect(await judge(schema, "abbab")).toContain("does not match the pattern");
  });

  it("uses the answer of the worker under every combination", async () => {
    const twice = { pattern: "^(.)\\1$" };
    expect(await judge({ not: twice }, "aa")).toBe("is a value that is not allowed");
    expect(await judge({ not: twice }, "ab")).toBe("valid");
    expect(await judge({ if: twice, then: { const: "aa" }, else: { const: "ab" } }, "ab")).toBe("valid");
    expect(await judge({ oneOf: [twice, { pattern: "^a" }] }, "ab")).toBe("valid");
    expect(await judge({ oneOf: [twice, { pattern: "^a" }] }, "aa")).toContain("at once");
  });

  it("asks the worker also for a pattern that matters only after the answer to another", async () => {
    const schema = { if: { pattern: "^(.)\\1" }, then: { pattern: "(.)\\1$" }, else: { pattern: "^(.).*\\1$" } };
    expect(await judge(schema, "aabb")).toBe("valid");
    expect(await judge(schema, "aabc")).toContain("does not match");
    expect(await judge(schema, "abca")).toBe("valid");
  });

  it("does not accept a value when the pattern worker fails", async () => {
    const workers = new PatternWorkers({ maxQueue: 0 });
    const schema = new Schema({ pattern: "^(a)\\1$" }, { workers });
    expect((await schema.validate("aa")).ok).toBe(false);
  });
});

describe("schemas that explode [G8]", () => {
  it("ends for references that double at every level", async () => {
    const $defs: JsonObject = { d0: { type: "string" } };
    for (let i = 1; i <= 40; i++)
      $defs[`d${i}`] = { allOf: [{ $ref: `#/$defs/d${i - 1}` }, { $ref: `#/$defs/d${i - 1}` }] };
    expect(await judge({ $defs, $ref: "#/$defs/d40" }, "x")).toContain("steps");
  });

  it("ends for recursion that doubles with every level of the value", async () => {
    const branch = { properties: { a: { $ref: "#" } }, required: ["a"] };
    let value: JsonObject = {};
    for (let i = 0; i < 100; i++) value = { a: value };
    expect(await judge({ anyOf: [branch, { ...branch, maxProperties: 5 }] }, value)).toContain("steps");
    // Deciding is cheap here, only finding words for each branch of each branch is not: the decision stands.
    expect(await judge({ anyOf: [branch, { ...branch, required: ["a", "b"] }] }, value)).toBe(
      "does not fit the schema",
    );
  });

  it("ends for a wide schema on a long array", async () => {
    const items = { allOf: Array.from({ length: 2_000 }, () => ({ minLength: 1, maxLength: 9 })) };
    expect(
      await judge(
        { items },
        Array.from({ length: 20_000 }, () => "x"),
      ),
    ).toContain("steps");
  });

  it("ends for many length checks on one long text", async () => {
    const schema = { allOf: Array.from({ length: 4_000 }, (_, i) => ({ maxLength: 500_000 + i })) };
    expect(await judge(schema, "x".repeat(600_000))).toContain("must have at most");
    const close = { allOf: Array.from({ length: 4_000 }, (_, i) => ({ minLength: 500_000 + i })) };
    expect(await judge(close, "x".repeat(600_000))).toContain("steps");
  });

  const many = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`p${i}`, 1]));
  const times = (number: number, schema: JsonObject): JsonObject[] => Array.from({ length: number }, () => schema);
  it.each<[string, JsonObject, JsonValue]>([
    ["named properties", { allOf: times(2_000, { properties: { x: {} } }) }, many],
    ["conditions", { allOf: times(2_000, { if: { properties: { x: {} } } }) }, many],
    ["what was looked at", { allOf: times(500, { additionalProperties: true }), unevaluatedProperties: false }, many],
    [
      "what alternatives looked at",
      { anyOf: times(500, { additionalProperties: true }), unevaluatedProperties: false },
      many,
    ],
    [
      "items that were looked at",
      { allOf: times(500, { contains: {} }), unevaluatedItems: false },
      Array.from({ length: 40_000 }, (_, i) => i),
    ],
    [
      "decimal multiples",
      { items: { allOf: times(50, { multipleOf: 1e-300 }) } },
      Array.from({ length: 40_000 }, () => 1.7976931348623157e308),
    ],
  ])("%s on a large value cost what is charged, and end with the steps", async (_, schema, value) => {
    const limits = { maxSteps: 30_000 };
    const started = process.cpuUsage();
    const verdict = await new Schema(schema, { limits }).validate(value);
    const { user } = process.cpuUsage(started);
    expect(verdict).toEqual({
      ok: false,
      problems: [
        { path: "", message: "could not be checked: checking takes more than 30000 steps; send less at once" },
      ],
    });
    // Reading the schema takes most of it; without the charge each of them takes seconds.
    expect(user / 1_000).toBeLessThan(1_500);
  });

  it("ends for unique items that would be compared pair by pair", async () => {
    const value = Array.from({ length: 20_000 }, (_, i) => ({ id: i }));
    expect(await judge({ uniqueItems: true }, value)).toBe("valid");
    expect(await judge({ uniqueItems: true }, [...value, { id: 7 }])).toBe("has equal items at 7 and 20000");
  });

  it("checks a large valid value", async () => {
    const schema = {
      type: "object",
      properties: {
        files: {
          type: "array",
          items: {
            type: "object",
            properties: { path: { type: "string", pattern: "^/" }, content: { type: "string", maxLength: 3_000_000 } },
            required: ["path"],
          },
        },
      },
    };
    const files = Array.from({ length: 2_000 }, (_, i) => ({
      path: `/f${i}`,
      content: "x".repeat(i === 0 ? 2_000_000 : 100),
    }));
    expect(await judge(schema, { files })).toBe("valid");
  });
});

describe("values that are nested without end", () => {
  it("values that are nested without end are rejected by depth, not by the stack", async () => {
    let value: JsonValue = 0;
    for (let i = 0; i < 200; i++) value = [value];
    expect(await judge({ items: { $ref: "#" } }, value)).toContain("nesting is deeper than 128 levels");
  });
  it("values that are nested without end are rejected where the stack runs out", async () => {
    let value: JsonValue = 0;
    for (let i = 0; i < 100_000; i++) value = [value];
    expect(await judge({ enum: [[0]] }, value)).toContain("could not be checked");
  });
});

describe("a schema that cannot be used says where and why", () => {
  it.each<[string, JsonSchema, RegExp]>([
    [
      "remote reference",
      { $ref: "https://evil.example/schema.json" },
      /\/\$ref: `https:\/\/evil.example\/schema.json` is not in this document/,
    ],
    [
      "file reference",
      { properties: { a: { $ref: "file:///etc/passwd" } } },
      /at \/properties\/a\/\$ref.*never fetched/,
    ],
    ["relative reference", { $ref: "other.json" }, /never fetched/],
    ["reference to nothing", { $ref: "#/$defs/missing" }, /points at nothing/],
    ["reference into the prototype", { $ref: "#/constructor/prototype" }, /points at nothing/],
    ["reference to itself", { $ref: "#" }, /refers back to itself/],
    [
      "circle of references",
      { $defs: { a: { $ref: "#/$defs/b" }, b: { anyOf: [{ $ref: "#/$defs/a" }] } }, $ref: "#/$defs/a" },
      /refers back to itself/,
    ],
    [
      "unknown dialect",
      { $schema: "http://json-schema.org/draft-04/schema#" },
      /not a dialect known here; use draft-07 or 2020-12/,
    ],
    ["dialect that is not a string", { $schema: 7 }, /not a dialect/],
    ["dialect inside", { $defs: { a: { $schema: "http://json-schema.org/draft-07/schema#" } } }, /changes the dialect/],
    [
      "bad pattern",
      { properties: { a: { pattern: "(" } } },
      /at \/properties\/a\/pattern: the pattern is not a valid regular expression/,
    ],
    ["long pattern", { pattern: "a".repeat(5_000) }, /5000 characters long; the limit is 4096/],
    ["pattern of many properties", { pattern: "\\p{L}".repeat(21) }, /has more than 20 Unicode properties/],
    ["wrong type of keyword", { minLength: "3" }, /at \/minLength: must be an integer that is not negative/],
    ["draft-04 limits", { exclusiveMinimum: true }, /must be a number; a boolean here is draft-04/],
    ["unknown type", { type: "text" }, /"text" is not a JSON type/],
    ["type of the prototype", { type: "constructor" }, /is not a JSON type/],
    ["required that is not a list", { required: true }, /must be an array of property names/],
    ["tuple in the wrong dialect", { items: [{}] }, /use prefixItems, or declare/],
    ["property that is not a schema", { properties: { a: "string" } }, /at \/properties\/a: must be a schema/],
    ["no alternatives", { anyOf: [] }, /at least one schema/],
    ["two of one name", { $defs: { a: { $anchor: "x" }, b: { $anchor: "x" } } }, /repeats the identifier/],
    ["multiple of nothing", { multipleOf: 0 }, /greater than 0/],
  ])("%s", (_, schema, message) => {
    expect(() => new Schema(schema)).toThrow(SchemaError);
    expect(() => new Schema(schema)).toThrow(message);
  });

  it("rejects a schema that is too deep, too wide or has too many of something", () => {
    let deep: JsonObject = {};
    for (let i = 0; i < 5_000; i++) deep = { not: deep };
    expect(() => new Schema(deep)).toThrow(/nested deeper than 100 levels/);
    expect(() => new Schema({ enum: Array.from({ length: 10_001 }, (_, i) => i) })).toThrow(/the limit is 10000/);
    expect(() => new Schema({ $defs: { x: Array.from({ length: 21_000 }, () => 0) } })).toThrow(
      /more than 20000 values/,
    );
    expect(() => new Schema({ description: "x".repeat(2_000_001) })).toThrow(/more than 2000000 characters/);
    const allOf = Array.from({ length: 201 }, (_, i) => ({ pattern: `^${i}` }));
    expect(() => new Schema({ allOf })).toThrow(/more than 200 patterns/);
    const refs = Array.from({ length: 2_001 }, () => ({ $ref: "#/$defs/a" }));
    expect(() => new Schema({ $defs: { a: {} }, allOf: refs })).toThrow(/more than 2000 references/);
  });
});

describe("names that mean something to JavaScript", () => {
  it("names that mean something to JavaScript are names like any other", async () => {
    const schema = JSON.parse(
      '{"properties":{"__proto__":{"type":"string"}},"required":["toString"],"additionalProperties":false}',
    ) as JsonObject;
    expect(await judge(schema, {})).toBe("is required");
    expect(await judge({ properties: { toString: { type: "string" } } }, {})).toBe("valid");
    expect(await judge(schema, JSON.parse('{"__proto__":"x","toString":1}') as JsonObject)).toBe(
      "is not a property of this object",
    );
    const open = JSON.parse('{"properties":{"__proto__":{"type":"string"}}}') as JsonObject;
    expect(await judge(open, JSON.parse('{"__proto__":1}') as JsonObject)).toBe("must be a string, not an integer");
    expect(await judge(open, JSON.parse('{"__proto__":"x"}') as JsonObject)).toBe("valid");
  });
  it("names that mean something to JavaScript do not fail a comparison", async () => {
    expect(await judge({ enum: [{}] }, { toString: null, constructor: 1, valueOf: 2 })).toContain("must be one of");
  });
  it("an asynchronous or nullable flag changes nothing", async () => {
    expect(await judge({ $async: true, type: "string" }, 1)).toBe("must be a string, not an integer");
    expect(await judge({ type: "string", nullable: true }, null)).toBe("must be a string, not null");
  });
});
