// Compares with ajv on generated schemas and values. Left out is where ajv 8.20 and the specification
// differ: `contains` (it lets an empty array pass beside positional `items`), `unevaluatedItems` (it counts what a
// failed branch of `anyOf` looked at) and `unevaluatedProperties` (a property named like one of `Object.prototype`
// counts as evaluated).

import { Ajv, type Options } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import fc from "fast-check";
import { expect } from "vitest";
import type { JsonObject, JsonValue } from "../mcp/index.js";
import type { Dialect } from "./documents/index.js";
import { Schema } from "./schema.js";
import type { JsonSchema } from "./types.js";

const value: fc.Arbitrary<JsonValue> = fc.letrec<{ value: JsonValue }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", maxDepth: 3 },
    fc.constantFrom<JsonValue>(null, true, false, 0, 1, 2, 3, 1.5, -1, "", "a", "ab", "abc", "😀"),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom("a", "b", "c", "hasOwnProperty"), tie("value"), {
      maxKeys: 3,
      noNullPrototype: true,
    }) as fc.Arbitrary<JsonObject>,
  ),
})).value;

const small = fc.nat(3);

function schemas(dialect: Dialect): fc.Arbitrary<JsonSchema> {
  return fc.letrec<{ schema: JsonSchema }>((tie) => {
    const one = tie("schema");
    const list = fc.array(one, { minLength: 1, maxLength: 3 });
    const named = fc.dictionary(fc.constantFrom("a", "b", "c", "hasOwnProperty"), one, {
      maxKeys: 3,
      noNullPrototype: true,
    });
    const names = fc.uniqueArray(fc.constantFrom("a", "b", "hasOwnProperty"), { maxLength: 2 });
    const common: Record<string, fc.Arbitrary<unknown>> = {
      type: fc.oneof(
        fc.constantFrom("string", "number", "integer", "boolean", "null", "array", "object"),
        fc.uniqueArray(fc.constantFrom("string", "number", "null", "array", "object"), { minLength: 1, maxLength: 3 }),
      ),
      enum: fc.array(value, { minLength: 1, maxLength: 3 }),
      const: value,
      minimum: small,
      maximum: small,
      exclusiveMinimum: small,
      exclusiveMaximum: small,
      multipleOf: fc.constantFrom(1, 2, 0.5),
      minLength: small,
      maxLength: small,
      pattern: fc.constantFrom("^a", "b$", "^[ab]*$", "^(a|b)+$"),
      minItems: small,
      maxItems: small,
      uniqueItems: fc.boolean(),
      required: names,
      minProperties: small,
      maxProperties: small,
      properties: named,
      patternProperties: fc.dictionary(fc.constantFrom("^a", "b", "^h"), one, { maxKeys: 2 }),
      additionalProperties: one,
      propertyNames: one,
      allOf: list,
      anyOf: list,
      oneOf: list,
      not: one,
      if: one,
      then: one,
      else: one,
    };
    const own: Record<string, fc.Arbitrary<unknown>> = dialect === "draft-07"
      ? {
          items: fc.oneof(one, list),
          additionalItems: one,
          dependencies: fc.dictionary(fc.constantFrom("a", "b"), fc.oneof(names, one)),
        }
      : {
          items: one,
          prefixItems: list,
          dependentRequired: fc.dictionary(fc.constantFrom("a", "b"), names, { maxKeys: 2 }),
          dependentSchemas: fc.dictionary(fc.constantFrom("a", "b"), one, { maxKeys: 2 }),
        };
    const keywords = Object.entries({ ...common, ...own }).map(([keyword, arbitrary]) =>
      arbitrary.map((setting) => [keyword, setting] as const),
    );
    return {
      schema: fc.oneof(
        { depthSize: "small", maxDepth: 3 },
        fc.boolean(),
        fc
          .array(fc.oneof(...keywords), { minLength: 1, maxLength: 4 })
          .map((pairs) => Object.fromEntries(pairs) as JsonObject),
      ),
    };
  }).schema;
}

const OPTIONS: Options = { strict: false, logger: false, ownProperties: true, validateSchema: false };

const COMPILE: Record<Dialect, (schema: JsonSchema) => (data: unknown) => unknown> = {
  "draft-07": (schema) => new Ajv(OPTIONS).compile(schema),
  "2020-12": (schema) => new Ajv2020(OPTIONS).compile(schema),
};
const DECLARED: Record<Dialect, string> = {
  "draft-07": "http://json-schema.org/draft-07/schema#",
  "2020-12": "https://json-schema.org/draft/2020-12/schema",
};

/** Both give the same verdict on every value. */
export async function agreesWithAjv(dialect: Dialect, cases: number): Promise<void> {
  const seen = { valid: 0, invalid: 0, broken: 0 };
  await fc.assert(
    fc.asyncProperty(schemas(dialect), fc.array(value, { minLength: 4, maxLength: 8 }), async (source, values) => {
      const schema = typeof source === "object" ? { $schema: DECLARED[dialect], ...source } : source;
      const ours = new Schema(schema);
      const theirs = COMPILE[dialect](schema);
      for (const candidate of values) {
        const verdict = await ours.validate(candidate);
        let expected: unknown;
        try {
          expected = theirs(candidate);
        } catch (error) {
          // For some combinations of unevaluated keywords ajv generates code that names an undeclared variable or
          // sets a property of an undefined one. That is not a verdict; `broken` bounds how often it may happen.
          expect(`${error}`).toMatch(
            /^(ReferenceError: \w+ is not defined|TypeError: Cannot set properties of undefined)/,
          );
          seen.broken++;
          continue;
        }
        expect({ candidate, ok: verdict.ok }).toEqual({ candidate, ok: expected });
        seen[verdict.ok ? "valid" : "invalid"]++;
      }
    }),
    { numRuns: cases },
  );
  expect(Math.min(seen.valid, seen.invalid)).toBeGreaterThan(cases / 2);
  expect(seen.broken).toBeLessThan(cases / 50);
}
