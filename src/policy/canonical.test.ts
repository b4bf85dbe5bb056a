import canonicalizeReference from "canonicalize";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { JsonValue } from "../mcp/index.js";
import { canonicalize } from "./intent.js";

// The package is CommonJS: its types promise a callable default that Node gives as the module itself.
const reference = canonicalizeReference as unknown as (value: unknown) => string;
const RUNS = 100_000;

describe("canonical JSON (RFC 8785)", () => {
  it("sorts keys, escapes and writes numbers as the RFC's own example does", () => {
    const value = {
      numbers: [333333333.33333329, 1e30, 4.5, 2e-3, 0.000000000000000000000000001],
      string: "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\u002f",
      literals: [null, true, false],
    };
    expect(canonicalize(value)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
  });

  it("orders keys by UTF-16 code units, as the RFC's sorting example does", () => {
    const value: JsonValue = {
      "\u20ac": "Euro Sign",
      "\r": "Carriage Return",
      "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One",
      "\ud83d\ude00": "Emoji: Grinning Face",
      "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis",
    };
    expect([...canonicalize(value).matchAll(/:"([A-Z][^"]*)"/g)].map((match) => match[1])).toEqual([
      "Carriage Return",
      "One",
      "Control",
      "Latin Small Letter O With Diaeresis",
      "Euro Sign",
      "Emoji: Grinning Face",
      "Hebrew Letter Dalet With Dagesh",
    ]);
  });

  // IEEE 754 samples from the RFC's appendix B: hexadecimal bits, and the text they must become.
  it.each([
    ["0000000000000000", "0"],
    ["8000000000000000", "0"],
    ["0000000000000001", "5e-324"],
    ["8000000000000001", "-5e-324"],
    ["7fefffffffffffff", "1.7976931348623157e+308"],
    ["ffefffffffffffff", "-1.7976931348623157e+308"],
    ["4340000000000000", "9007199254740992"],
    ["c340000000000000", "-9007199254740992"],
    ["4430000000000000", "295147905179352830000"],
    ["44b52d02c7e14af5", "9.999999999999997e+22"],
    ["44b52d02c7e14af6", "1e+23"],
    ["44b52d02c7e14af7", "1.0000000000000001e+23"],
    ["444b1ae4d6e2ef4e", "999999999999999700000"],
    ["444b1ae4d6e2ef4f", "999999999999999900000"],
    ["444b1ae4d6e2ef50", "1e+21"],
    ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
    ["3eb0c6f7a0b5ed8d", "0.000001"],
    ["41b3de4355555553", "333333333.3333332"],
    ["41b3de4355555554", "333333333.33333325"],
    ["41b3de4355555555", "333333333.3333333"],
    ["41b3de4355555556", "333333333.3333334"],
    ["41b3de4355555557", "333333333.33333343"],
    ["becbf647612f3696", "-0.0000033333333333333333"],
    ["43143ff3c1cb0959", "1424953923781206.2"],
  ])("writes the double %s as %s", (bits, text) => {
    expect(canonicalize(Buffer.from(bits, "hex").readDoubleBE())).toBe(text);
  });

  it("agrees with an independent implementation on generated values [U8]", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
        const wellFormed = JSON.stringify(value).isWellFormed() && !/\\ud[89a-f]/i.test(JSON.stringify(value));
        fc.pre(wellFormed);
        expect(canonicalize(value as JsonValue)).toBe(reference(value));
      }),
      { numRuns: RUNS },
    );
  });

  it.each([
    ["a lone surrogate", "\ud800", /lone surrogate/],
    ["a lone surrogate in a key", { "\udc00": 1 }, /lone surrogate/],
    ["NaN", Number.NaN, /no JSON form/],
    ["Infinity", Number.POSITIVE_INFINITY, /no JSON form/],
    ["undefined inside", { a: undefined }, /no JSON form/],
    ["a big integer", 1n, /no JSON form/],
    ["a date", { at: new Date(0) }, /no JSON form/],
    ["a map", new Map(), /no JSON form/],
  ])("refuses %s", (_what, value, message) => {
    expect(() => canonicalize(value as JsonValue)).toThrow(message);
  });

  it("refuses nesting that could exhaust the stack", () => {
    let value: JsonValue = 1;
    for (let i = 0; i < 100_000; i++) value = [value];
    expect(() => canonicalize(value)).toThrow(/nesting is deeper/);
  });
});
