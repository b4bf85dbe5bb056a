import { expect, test } from "vitest";
import { shapeOfArguments, shapeText } from "./shape.js";

function shape(properties: Record<string, unknown>, more: Record<string, unknown> = {}): string {
  return shapeText(shapeOfArguments({ type: "object", properties, required: ["a"], ...more }));
}

test.each([
  [{ type: "string" }, '{"a":string}'],
  [{ type: "integer" }, '{"a":long}'],
  [{ type: "boolean" }, '{"a":bool}'],
  [{ type: "number" }, '{"a":decimal}'],
  [{ type: "array", items: { type: "string" } }, '{"a":[string]}'],
  [{ type: "array" }, '{"a":open}'],
  [{ type: "array", items: {} }, '{"a":open}'],
  [{ type: "array", prefixItems: [{ type: "string" }, { type: "integer" }] }, '{"a":open}'],
  [{ type: "array", items: { type: "object", properties: { b: { type: "string" } } } }, '{"a":[{"b"?:string}]}'],
  [{ type: "object", properties: { b: { type: "string" } }, required: ["b"] }, '{"a":{"b":string}}'],
  [{ type: "object", additionalProperties: { type: "string" } }, '{"a":{,…}}'],
  [{ type: "object" }, '{"a":{,…}}'],
  [{ type: "object", properties: {} }, '{"a":{}}'],
  [{ type: ["string", "null"] }, '{"a":string}'],
  [{ type: ["string", "integer"] }, '{"a":open}'],
  [{ type: ["integer", "number"] }, '{"a":decimal}'],
  [{ anyOf: [{ type: "string" }, { type: "null" }] }, '{"a":string}'],
  [{ oneOf: [{ type: "string" }, { type: "integer" }] }, '{"a":open}'],
  [{ anyOf: [{ type: "string", minLength: 1 }, { const: "" }] }, '{"a":string}'],
  [{ enum: ["x", "y"] }, '{"a":string}'],
  [{ enum: [1, 2.5] }, '{"a":decimal}'],
  [{ enum: ["x", null] }, '{"a":string}'],
  [{ enum: ["x", 1] }, '{"a":open}'],
  [{ const: true }, '{"a":bool}'],
  [{ type: "null" }, '{"a":open}'],
  [true, '{"a":open}'],
  [{ allOf: [{ type: "string" }, { minLength: 1 }] }, '{"a":string}'],
  [{ $ref: "#/$defs/name", description: "x" }, '{"a":string}'],
  [{ $ref: "https://example.org/schema" }, '{"a":open}'],
  [{ $ref: "#/$defs/loop" }, '{"a":{"next"?:open}}'],
])("%j becomes %s", (schema, expected) => {
  const $defs = { name: { type: "string" }, loop: { type: "object", properties: { next: { $ref: "#/$defs/loop" } } } };
  expect(shape({ a: schema }, { $defs })).toBe(expected);
});

test("one of several objects: what only some have is optional, what differs is open", () => {
  const alternatives = {
    oneOf: [
      { type: "object", properties: { kind: { type: "string" }, n: { type: "integer" } }, required: ["kind", "n"] },
      {
        type: "object",
        properties: { kind: { type: "string" }, n: { type: "string" }, more: { type: "string" } },
        required: ["kind"],
      },
    ],
  };
  expect(shapeText(shapeOfArguments(alternatives))).toBe('{"kind":string,"more"?:string,"n"?:open}');
});

test("alternatives that only constrain, and names that appear under a condition, are all there", () => {
  expect(
    shape({ a: { type: "string" }, b: { type: "string" } }, { anyOf: [{ required: ["a"] }, { required: ["b"] }] }),
  ).toBe('{"a":string,"b"?:string}');
  const conditional = JSON.parse('{"if":{"required":["a"]},"then":{"properties":{"extra":{"type":"integer"}}}}');
  expect(shape({ a: { type: "string" } }, conditional)).toBe('{"a":string,"extra"?:long}');
});

test("names that Cedar's JSON form gives a meaning are left out", () => {
  const properties = JSON.parse('{"__entity":{"type":"string"},"__proto__":{"type":"string"},"ok":{"type":"string"}}');
  expect(shapeText(shapeOfArguments({ type: "object", properties }))).toBe('{"ok"?:string}');
});

test("schemas without end stay bounded", () => {
  const wide = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, { type: "string" }]));
  const shape = shapeOfArguments({ type: "object", properties: wide });
  expect(shape.attrs.size).toBe(1000);
  expect(shape.open).toBe(true);
  const $defs = Object.fromEntries(
    Array.from({ length: 30 }, (_, i) => [
      `d${i}`,
      {
        type: "object",
        properties: Object.fromEntries("abcdefgh".split("").map((name) => [name, { $ref: `#/$defs/d${i + 1}` }])),
      },
    ]),
  );
  expect(shapeOfArguments({ $ref: "#/$defs/d0", $defs }).attrs.size).toBe(8);
  expect(shapeText(shapeOfArguments(true))).toBe("{,…}");
});
