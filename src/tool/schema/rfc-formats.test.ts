import { describe, expect, it } from "vitest";
import { Schema } from "./schema.js";

const fits = async (schema: object, value: unknown): Promise<boolean> =>
  (await new Schema(schema as never).validate(value as never)).ok;

describe("formats follow their RFC", () => {
  it.each([
    ["date-time", "1985-04-12T23:20:50.52Z", true],
    ["date-time", "1996-12-19t16:39:57-08:00", true],
    ["date-time", "1990-12-31T23:59:60Z", true],
    ["date-time", "1990-12-31T15:59:60-08:00", true],
    ["date-time", "1999-01-01T00:59:60+01:00", true],
    ["date-time", "1998-12-30T23:59:60Z", false],
    ["date-time", "1998-12-31T23:58:60Z", false],
    ["date-time", "1998-12-31T23:59:61Z", false],
    ["date-time", "1985-04-12 23:20:50Z", false],
    ["date-time", "1985-04-12T23:20:50", false],
    ["date-time", "1985-04-12T23:20:50+01", false],
    ["date-time", "1985-04-12T23:20:50+0100", false],
    ["date-time", "1985-04-12T23:20:50.Z", false],
    ["date-time", "1985-04-12T24:00:00Z", false],
    ["date-time", "1985-04-12T23:20:50+24:00", false],
    ["date-time", "2023-02-29T00:00:00Z", false],
    ["date-time", "2024-02-29T00:00:00Z", true],
    ["date-time", "2024-02-29T00:00:00Z\n", false],
    ["date-time", "١985-04-12T23:20:50Z", false],
    ["date", "2024-04-31", false],
    ["date", "2024-00-10", false],
    ["date", "0000-01-01", true],
    ["time", "08:30:06-01:00", true],
    ["time", "08:30:06", false],
    ["time", "08:30:06+0100", false],
    ["time", "23:59:60Z", true],
    ["time", "22:59:60Z", false],
    ["hostname", "example.com", true],
    ["hostname", "1host-2.EXAMPLE", true],
    ["hostname", "example.com.", false],
    ["hostname", "-a.example", false],
    ["hostname", "a-.example", false],
    ["hostname", "a_b.example", false],
    ["hostname", "a..b", false],
    ["hostname", "", false],
    ["hostname", `${"a".repeat(63)}.example`, true],
    ["hostname", `${"a".repeat(64)}.example`, false],
    ["hostname", `${"a.".repeat(126)}a`, true],
    ["hostname", `${"a.".repeat(126)}ab`, false],
    ["hostname", "xn--bcher-kva.example", true],
    ["hostname", "xn--X.example", false],
    ["hostname", "ab--cd.example", false],
    ["hostname", "bücher.example", false],
  ])("%s: %j is %s", async (format, value, expected) => {
    expect(await fits({ type: "string", format }, value)).toBe(expected);
  });
});

describe("dependencies", () => {
  const rules = { dependencies: { card: ["name"], debit: { required: ["iban"] } } };

  it("hold in a schema that names no dialect", async () => {
    expect(await fits(rules, { card: 1 })).toBe(false);
    expect(await fits(rules, { card: 1, name: "x" })).toBe(true);
    expect(await fits(rules, { debit: 1 })).toBe(false);
    expect(await fits({ properties: { a: rules } }, { a: { card: 1 } })).toBe(false);
  });

  it("hold beside what came in their place, and what they look at counts as evaluated", async () => {
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

  it("mean nothing in a schema that names 2020-12", async () => {
    const declared = { $schema: "https://json-schema.org/draft/2020-12/schema", ...rules };
    expect(await fits(declared, { card: 1 })).toBe(true);
  });
});
