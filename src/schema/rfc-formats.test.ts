import { describe, expect, it } from "vitest";
import { FORMAT_VECTORS } from "./fixtures/format-vectors.js";
import { Schema } from "./schema.js";

const fits = async (schema: object, value: unknown): Promise<boolean> =>
  (await new Schema(schema as never).validate(value as never)).ok;

describe("formats follow their RFC", () => {
  it.each(FORMAT_VECTORS)("%s: %j is %s", async (format, value, expected) => {
    expect(await fits({ type: "string", format }, value)).toBe(expected);
  });
});

describe("dependencies", () => {
  const rules = { dependencies: { card: ["name"], debit: { required: ["iban"] } } };

  it("dependencies hold in a schema that names no dialect", async () => {
    expect(await fits(rules, { card: 1 })).toBe(false);
    expect(await fits(rules, { card: 1, name: "x" })).toBe(true);
    expect(await fits(rules, { debit: 1 })).toBe(false);
    expect(await fits({ properties: { a: rules } }, { a: { card: 1 } })).toBe(false);
  });

  it("dependencies hold beside what came in their place, and what they look at counts as evaluated", async () => {
    const both = { ...rules, dependentRequired: { card: ["cvc"] } };
    expect(await fits(both, { card: 1, name: "x" })).toBe(false);
    const closed = {
      dependencies: { a: { properties: { b: true } } },
      properties: { a: true },
      unevaluatedProperties: false,
    };
    expect(await fits(closed, { a: 1, b: 1 })).toBe(true);
    expect(await fits(closed, { a: 1, c: 1 })).toBe(false);
  });

  it("dependencies mean nothing in a schema that names 2020-12", async () => {
    const declared = { $schema: "https://json-schema.org/draft/2020-12/schema", ...rules };
    expect(await fits(declared, { card: 1 })).toBe(true);
  });
});
