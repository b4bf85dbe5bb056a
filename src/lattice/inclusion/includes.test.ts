import { describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import type { SchemaValue } from "./document.js";
import { type InclusionOptions, includes, includesType, isEmpty } from "./includes.js";
import { typeOf } from "./type.js";

const validator = ajvValidator();
const draft07 = "http://json-schema.org/draft-07/schema#";

function answer(left: SchemaValue, right: SchemaValue, options: InclusionOptions = { validator }): string {
  return includes(left, right, options).answer;
}

const S = { type: "string" };
const tree = (leaf: SchemaValue): SchemaValue => ({
  $ref: "#/$defs/tree",
  $defs: { tree: { anyOf: [leaf, { type: "array", items: { $ref: "#/$defs/tree" } }] } },
});

function many(keyword: string, count: number, schema: SchemaValue): SchemaValue {
  return { type: "object", [keyword]: Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, schema])) };
}

/** left, right, whether left lies within right, whether right lies within left */
const PAIRS: readonly (readonly [string, SchemaValue, SchemaValue, "yes" | "no", "yes" | "no"])[] = [
  ["integers are numbers", { type: "integer" }, { type: "number" }, "yes", "no"],
  ["a type among several", S, { type: ["null", "string"] }, "yes", "no"],
  ["any boolean is one of the two", { type: "boolean" }, { enum: [true, false] }, "yes", "yes"],
  [
    "all types together are everything",
    { type: ["null", "boolean", "number", "string", "array", "object"] },
    true,
    "yes",
    "yes",
  ],
  ["fewer values", { enum: ["a", 1] }, { enum: [1, "a", null] }, "yes", "no"],
  [
    "a constant object, whatever the order of its members",
    { const: { a: 1, b: [2] } },
    { const: { b: [2], a: 1 } },
    "yes",
    "yes",
  ],
  ["integers in an interval, listed", { type: "integer", minimum: 1, maximum: 3 }, { enum: [1, 2, 3] }, "yes", "yes"],
  [
    "an integer beyond many exceptions",
    { type: "integer", minimum: 5_000 },
    { type: "integer", not: { enum: Array.from({ length: 5_000 }, (_, i) => i) } },
    "yes",
    "no",
  ],
  ["open against closed bounds", { exclusiveMinimum: 1 }, { minimum: 1 }, "yes", "no"],
  ["open bounds around integers", { type: "integer", exclusiveMinimum: 1 }, { minimum: 2 }, "yes", "no"],
  ["multiples of a multiple", { type: "integer", multipleOf: 6 }, { multipleOf: 3 }, "yes", "no"],
  [
    "both multiples, and of their product",
    { type: "integer", multipleOf: 6 },
    { type: "integer", allOf: [{ multipleOf: 2 }, { multipleOf: 3 }] },
    "yes",
    "yes",
  ],
  ["shorter strings", { type: "string", maxLength: 3 }, { type: "string", maxLength: 5 }, "yes", "no"],
  [
    "lengths by a pattern",
    { type: "string", minLength: 2, maxLength: 4 },
    { type: "string", pattern: "^[\\s\\S]{2,4}$" },
    "yes",
    "yes",
  ],
  ["a finite pattern, listed", { type: "string", pattern: "^(a|b)$" }, { enum: ["a", "b"] }, "yes", "yes"],
  ["patterns by their languages", { pattern: "^[a-f]+$" }, { pattern: "^[a-z]*$" }, "yes", "no"],
  ["the same format", { type: "string", format: "email", minLength: 1 }, { format: "email" }, "yes", "no"],
  ["a required member", { required: ["a", "b"] }, { required: ["a"] }, "yes", "no"],
  [
    "a narrower member",
    { properties: { a: { type: "integer" } } },
    { properties: { a: { type: "number" } } },
    "yes",
    "no",
  ],
  [
    "closed objects",
    { properties: { a: S }, additionalProperties: false },
    { properties: { a: S, b: S }, additionalProperties: false },
    "yes",
    "no",
  ],
  ["other members by pattern", { patternProperties: { "^x": S } }, { patternProperties: { "^xy": S } }, "yes", "no"],
  [
    "names by pattern",
    { propertyNames: { pattern: "^a" }, additionalProperties: S },
    { patternProperties: { "^a": S } },
    "yes",
    "no",
  ],
  [
    "closed by names",
    { type: "object", propertyNames: { enum: ["a", "b"] } },
    { type: "object", properties: { a: true, b: true }, additionalProperties: false },
    "yes",
    "yes",
  ],
  [
    "required members count",
    { type: "object", required: ["a", "b"] },
    { type: "object", minProperties: 2 },
    "yes",
    "no",
  ],
  [
    "few names, few members",
    { type: "object", propertyNames: { enum: ["a", "b"] } },
    { type: "object", maxProperties: 2 },
    "yes",
    "no",
  ],
  [
    "what depends on a member",
    { type: "object", properties: { a: false } },
    { dependentRequired: { a: ["b"] } },
    "yes",
    "no",
  ],
  [
    "a dependent schema",
    { dependentSchemas: { a: { required: ["b"] } } },
    { dependentRequired: { a: ["b"] } },
    "yes",
    "yes",
  ],
  ["narrower items", { type: "array", items: { type: "integer" } }, { items: { type: "number" } }, "yes", "no"],
  ["items by position", { type: "array", prefixItems: [S, S], items: S }, { items: S }, "yes", "no"],
  [
    "no items, nothing to say about them",
    { type: "array", items: false },
    { type: "array", maxItems: 0 },
    "yes",
    "yes",
  ],
  ["contains needs an item", { type: "array", contains: S }, { minItems: 1 }, "yes", "no"],
  ["counting what is contained", { contains: S, minContains: 3 }, { contains: S, minContains: 2 }, "yes", "no"],
  ["not too many", { contains: S, maxContains: 1 }, { contains: S, maxContains: 2 }, "yes", "no"],
  [
    "unique items of few values",
    { type: "array", items: { enum: [1, 2] }, uniqueItems: true },
    { type: "array", maxItems: 2 },
    "yes",
    "no",
  ],
  ["unique items", { type: "array", uniqueItems: true }, { type: "array" }, "yes", "no"],
  [
    "repeated items need two",
    { type: "array", not: { uniqueItems: true } },
    { type: "array", minItems: 2 },
    "yes",
    "no",
  ],
  [
    "a position that nothing can fill",
    { type: "array", prefixItems: [true, false] },
    { type: "array", maxItems: 1 },
    "yes",
    "yes",
  ],
  [
    "all items alike by position",
    { type: "array", prefixItems: [S, S], maxItems: 2 },
    { type: "array", items: S, maxItems: 2 },
    "yes",
    "yes",
  ],
  [
    "few values, few unique items, none left",
    { type: "array", items: { enum: [1, 2] }, uniqueItems: true, minItems: 3 },
    false,
    "yes",
    "yes",
  ],
  [
    "more members than names",
    { type: "object", propertyNames: { enum: ["a"] }, minProperties: 2 },
    false,
    "yes",
    "yes",
  ],
  [
    "a member that must be there and cannot",
    { required: ["a"], properties: { a: false }, type: "object" },
    false,
    "yes",
    "yes",
  ],
  ["a conjunction", { allOf: [{ minimum: 1 }, { maximum: 5 }] }, { minimum: 0 }, "yes", "no"],
  ["an alternative", { minimum: 3 }, { anyOf: [{ minimum: 5 }, { minimum: 2 }] }, "yes", "no"],
  ["alternatives that cover together", { type: "integer" }, { anyOf: [{ minimum: 1 }, { maximum: 0 }] }, "yes", "no"],
  [
    "exactly one of two that never meet",
    { anyOf: [S, { type: "null" }] },
    { oneOf: [S, { type: "null" }] },
    "yes",
    "yes",
  ],
  [
    "exactly one of two that meet",
    { oneOf: [{ minimum: 1 }, { maximum: 2 }], type: "number" },
    { not: { minimum: 1, maximum: 2 } },
    "yes",
    "yes",
  ],
  ["not not", { not: { not: S } }, S, "yes", "yes"],
  [
    "a condition",
    JSON.parse('{ "if": { "type": "string" }, "then": { "minLength": 2 }, "else": false }') as SchemaValue,
    { type: "string", minLength: 1 },
    "yes",
    "no",
  ],
  ["a recursive schema in a wider one", tree({ type: "integer" }), tree({ type: "number" }), "yes", "no"],
  [
    "a recursive schema without an end is empty",
    { $ref: "#/$defs/a", $defs: { a: { type: "array", minItems: 1, items: { $ref: "#/$defs/a" } } } },
    false,
    "yes",
    "yes",
  ],
  ["an anchor", { $ref: "#here", $defs: { a: { $anchor: "here", type: "integer" } } }, { type: "number" }, "yes", "no"],
  [
    "unevaluated members of a composition",
    { allOf: [{ properties: { a: S } }, { properties: { b: S } }], unevaluatedProperties: false },
    { properties: { a: S, b: S }, additionalProperties: false },
    "yes",
    "yes",
  ],
  [
    "a union told apart by a tag",
    {
      anyOf: ["a", "b", "c"].map((k) => ({
        type: "object",
        properties: { k: { const: k }, [k]: S },
        required: ["k", k],
      })),
    },
    {
      oneOf: ["a", "b", "c", "d"].map((k) => ({
        type: "object",
        properties: { k: { const: k }, [k]: S },
        required: ["k", k],
      })),
    },
    "yes",
    "no",
  ],
];

describe("inclusion", () => {
  it.each(PAIRS)("%s", (_, left, right, forwards, backwards) => {
    expect([answer(left, right), answer(right, left)]).toEqual([forwards, backwards]);
  });

  it("shows a value that one accepts and the other rejects", () => {
    const left = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
    const right = { properties: { path: { pattern: "^/tmp/[a-z]+$" } } };
    expect(includes(left, right, { validator })).toEqual({ answer: "no", witness: { path: "" } });
  });

  it("gives no no without a validator", () => {
    expect(answer(S, { type: "number" }, {})).toBe("unknown");
    expect(answer({ type: "integer" }, { type: "number" }, {})).toBe("yes");
  });

  it("drops on the left what it does not understand, and knows nothing when it stands on the right", () => {
    const odd = { type: "string", pattern: "(a)\\1" };
    expect(answer(odd, S)).toBe("yes");
    expect(answer({ type: "string", pattern: "(aa)\\1" }, odd, {})).toBe("unknown");
    expect(answer(odd, { type: "string", pattern: "(a)\\1" })).toBe("yes");
    expect(answer({ type: "object" }, { patternProperties: { "(a)\\1": false } }, {})).toBe("unknown");
    expect(answer({ type: "array" }, { not: { contains: odd } }, {})).toBe("unknown");
  });

  /** Values exist, but none that is easily found: "yes" would be wrong, however hard the search. */
  const elusive = { type: "string", format: "ipv4", pattern: "^9\\." };
  it.each<[string, SchemaValue, SchemaValue]>([
    ["a string", elusive, false],
    ["items", { type: "array", items: elusive }, { maxItems: 0 }],
    ["an item that must be there", { type: "array", contains: elusive }, false],
    ["names of members", { type: "object", propertyNames: elusive }, { maxProperties: 0 }],
    ["a member that must be there", { type: "object", required: ["a"], properties: { a: elusive } }, false],
    [
      "a fraction",
      { type: "number", multipleOf: 0.3, exclusiveMinimum: 1e6, exclusiveMaximum: 1000000.5 },
      { type: "integer" },
    ],
    // 2.1 is a multiple of both, though floating point does not see it.
    [
      "a common multiple of decimals",
      { type: "number", allOf: [{ multipleOf: 0.7 }, { multipleOf: 0.3 }], exclusiveMinimum: 0, maximum: 3 },
      { type: "integer" },
    ],
    [
      "a large integer",
      { type: "integer", allOf: [{ multipleOf: 9007199254740881 }, { multipleOf: 9007199254740847 }] },
      { const: 0 },
    ],
  ])("inclusion does not take what it cannot find for what does not exist: %s", (_, left, right) => {
    expect(answer(left, right)).not.toBe("yes");
  });

  it("inclusion keeps no answer that relied on a question still open", () => {
    // While the root is asked for, `b` looks empty, because it needs a root; afterwards it is not.
    const left = {
      anyOf: [
        { type: "object", required: ["x"], properties: { x: { $ref: "#/$defs/b" } } },
        { type: "array", maxItems: 0 },
        { type: "array", minItems: 2, maxItems: 2, prefixItems: [{ $ref: "#" }, { $ref: "#/$defs/b" }] },
      ],
      $defs: { b: { type: "object", required: ["y"], properties: { y: { $ref: "#" } } } },
    };
    expect(answer(left, { maxItems: 1 })).toBe("no");
  });

  it("inclusion takes formats as unknown predicates, or as annotations when told so", () => {
    const email = { type: "string", format: "email" };
    expect(answer(S, email, { validator, formats: "ignore" })).toBe("yes");
    expect(answer(S, email)).toBe("no");
    expect(answer(email, { type: "string", format: "idn-email" }, {})).toBe("unknown");
    expect(answer({ enum: ["a@b.cc"] }, email)).toBe("yes");
    // This validator lets anything pass for a format; about a format of unknown meaning that proves nothing.
    const lax = ajvValidator({ formats: false });
    expect(answer(S, email, { validator: lax })).toBe("yes");
    expect(answer(S, { type: "string", format: "house-number" }, { validator: lax })).toBe("unknown");
    expect(answer({ properties: { a: { const: "a@b.cc" } } }, { properties: { a: email } })).toBe("yes");
  });

  it("reads each side in its own dialect", () => {
    const old = { $schema: draft07, items: [S], additionalItems: false };
    expect(answer(old, { prefixItems: [S], items: false })).toBe("yes");
    expect(answer({ prefixItems: [S], items: false }, old)).toBe("yes");
    // prefixItems means nothing in draft-07.
    expect(answer(true, { $schema: draft07, prefixItems: [S] })).toBe("yes");
    expect(answer(true, { prefixItems: [S] })).toBe("no");
    expect(includes(S, { $schema: "http://json-schema.org/draft-03/schema#" }, { validator })).toEqual({
      answer: "unknown",
      why: "the dialect http://json-schema.org/draft-03/schema# is not one of draft-07 and 2020-12",
    });
  });

  it("answers only what holds however a validator reads keywords beside $ref in draft-07", () => {
    const beside = { $schema: draft07, $ref: "#/definitions/s", maxLength: 3, definitions: { s: S } };
    expect(answer(beside, S)).toBe("yes");
    expect(answer({ type: "string", maxLength: 2 }, beside)).toBe("yes");
    expect(answer({ $schema: draft07, ...S }, beside)).toBe("unknown");
    expect(answer({ type: "integer" }, beside)).toBe("no");
  });

  it("inclusion does not compare decimal steps by division, because validators do", () => {
    // 1.2 is a multiple of 0.3 but, in floating point, not of 0.1.
    expect(answer({ type: "number", multipleOf: 0.3 }, { multipleOf: 0.1 })).not.toBe("yes");
    expect(answer({ type: "number", multipleOf: 0.2 }, { multipleOf: 0.1 })).toBe("yes");
  });

  it("follows references into other documents when they are given, and calls them unknown otherwise", () => {
    const left = { $ref: "https://example.com/name" };
    const documents = { "https://example.com/name": { type: "string", maxLength: 9 } };
    expect(answer(left, S, { validator, documents })).toBe("yes");
    expect(answer(left, S, {})).toBe("unknown");
  });

  it("stops at its limits and says so", () => {
    const wide = {
      allOf: Array.from({ length: 40 }, (_, i) => ({ anyOf: [{ required: [`a${i}`] }, { required: [`b${i}`] }] })),
    };
    const right = { type: "object", minProperties: 41 };
    expect(includes({ type: "object", ...wide }, right, { limits: { maxSteps: 500 } })).toEqual({
      answer: "unknown",
      why: "the budget of 500 search steps ran out",
    });
    const deep = Array.from({ length: 400 }).reduce<SchemaValue>((inner) => ({ items: inner }), S);
    expect(includes(deep, S).answer).toBe("unknown");
  });

  it.each<[string, SchemaValue, SchemaValue, string]>([
    [
      "ten thousand members",
      many("properties", 10_000, { type: "integer" }),
      many("properties", 10_000, { type: "number" }),
      "unknown",
    ],
    [
      "five hundred members",
      many("properties", 500, { type: "integer" }),
      many("properties", 500, { type: "number" }),
      "yes",
    ],
    [
      "five thousand positions",
      { type: "array", prefixItems: Array.from({ length: 5_000 }, () => S) },
      { type: "array", prefixItems: Array.from({ length: 5_000 }, () => ({ type: ["string", "null"] })) },
      "unknown",
    ],
    [
      "a list of many values",
      { type: "string", enum: Array.from({ length: 50_000 }, (_, i) => `v${i}`) },
      { enum: Array.from({ length: 50_001 }, (_, i) => `v${i}`) },
      "yes",
    ],
    [
      "a pattern with exponentially many states",
      { type: "string", pattern: "^(a|b)*a(a|b){30}$" },
      { pattern: "^(a|b)*b(a|b){29}$" },
      "unknown",
    ],
    ["strings too long to build", { type: "string", minLength: 1e9 }, { maxLength: 3 }, "unknown"],
    ["arrays too long to build", { type: "array", minItems: 1e9 }, { maxItems: 3 }, "unknown"],
    [
      "a long chain of references",
      {
        $ref: "#/$defs/k0",
        $defs: Object.fromEntries(
          Array.from({ length: 3_000 }, (_, i) => [`k${i}`, i === 2_999 ? S : { $ref: `#/$defs/k${i + 1}` }]),
        ),
      },
      S,
      "unknown",
    ],
  ])("comes to an end on %s", (_, left, right, wanted) => {
    expect(answer(left, right, {})).toBe(wanted);
  });

  it("decides intersections and unions of schemas of different dialects", () => {
    const both = {
      is: "all",
      of: [typeOf({ $schema: draft07, items: [S] }), typeOf({ prefixItems: [{ minLength: 2 }] })],
    } as const;
    const right = typeOf({ prefixItems: [{ type: "string", minLength: 1 }] });
    expect(includesType(both, right, { validator }).answer).toBe("yes");
    expect(includesType(right, both, { validator })).toMatchObject({ answer: "no" });
    expect(isEmpty({ is: "all", of: [typeOf(S), typeOf({ type: "null" })] }).answer).toBe("yes");
    expect(isEmpty({ is: "any", of: [typeOf(S), typeOf(false)] }, { validator })).toMatchObject({
      answer: "no",
    });
  });
});
