import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseStrict, StrictJsonError, TooManyValuesError, unsendable } from "./json.js";

/** What is refused for a reason of its own: a surrogate in escapes, an integer of sixteen digits. */
const AMBIGUOUS = /\\ud[89a-f]|[0-9]{16}/i;

describe("strict JSON", () => {
  it("reads what JSON.parse reads when nothing is ambiguous", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 1, "\t"), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        fc.pre(!AMBIGUOUS.test(text));
        expect(parseStrict(text)).toEqual(JSON.parse(text));
      }),
      { numRuns: 5_000 },
    );
  });

  it.each([
    ['{"a":1,"a":2}', /duplicate key "a"/],
    ['{"a":1,"\\u0061":2}', /duplicate key "\\u0061"/],
    ['[{"x":{"b":[],"c":0,"b":1}}]', /duplicate key "b"/],
    ['{"__proto__":1,"__proto__":2}', /duplicate key/],
    ["12345678901234567890", /integer 12345678901234567890 is beyond/],
    ['{"n":9007199254740993}', /beyond/],
    ['{"n":9007199254740992}', /beyond/],
    ["[1000000000000000000]", /beyond/],
    ["[-9007199254740993]", /beyond/],
    ["1e400", /out of range/],
    ['"\\ud800"', /lone surrogate/],
    ['"\\uDFFF x"', /lone surrogate/],
    ['{"\\ud83d":1}', /lone surrogate/],
    ["{", /not valid JSON/],
    ['{"a":NaN}', /not valid JSON/],
    ["", /not valid JSON/],
    ['"unclosed', /not valid JSON/],
  ])("refuses %s", (text, message) => {
    expect(() => parseStrict(text)).toThrow(StrictJsonError);
    expect(() => parseStrict(text)).toThrow(message);
  });

  it.each([
    ['{"a":{"a":1},"b":{"a":2}}', "the same key in different objects"],
    ['{"a":"{\\"a\\":1,\\"a\\":2}"}', "what looks like a duplicate inside a string"],
    ['"\\ud83d\\ude00"', "a surrogate pair in escapes"],
    ["9007199254740991", "the largest safe integer"],
    ["1e21", "a large number in exponent form"],
    ["0.1234567890123456789", "a fraction with more digits than a double holds"],
    ["-0", "negative zero"],
    ['"\\u2028\\/"', "escapes that need not be"],
  ])("accepts %s: %s", (text) => {
    expect(parseStrict(text)).toEqual(JSON.parse(text));
  });

  it("refuses 100,000 levels of nesting without exhausting the stack", () => {
    expect(() => parseStrict("[".repeat(100_000))).toThrow(/nesting is deeper than 128/);
    expect(() => parseStrict(`${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`)).toThrow(/nesting is deeper/);
    expect(parseStrict(`${"[".repeat(128)}${"]".repeat(128)}`)).toBeDefined();
  });

  it("refuses a message of a million values before it builds any of them [U12]", () => {
    const parse = JSON.parse;
    let parsed = 0;
    JSON.parse = (...given: Parameters<typeof parse>) => {
      parsed++;
      return parse(...given) as unknown;
    };
    try {
      expect(() => parseStrict(`[${"[],".repeat(1_000_000)}0]`)).toThrow(/more than 50000 values; send less at once/);
      expect(() => parseStrict(`[${"0,".repeat(1_000_000)}0]`)).toThrow(TooManyValuesError);
    } finally {
      JSON.parse = parse;
    }
    expect(parsed).toBe(0);
  });

  it("counts values, not what stands in strings", () => {
    const text = JSON.stringify(["[,{,".repeat(10_000), '\\",'.repeat(10_000), [1, 2]]);
    expect(parseStrict(text, 128, 6)).toEqual(JSON.parse(text));
    expect(() => parseStrict(text, 128, 5)).toThrow(/more than 5 values/);
  });

  it("strict JSON does not count brackets inside strings as nesting", () => {
    expect(parseStrict(JSON.stringify("[{".repeat(1_000)))).toBe("[{".repeat(1_000));
    expect(parseStrict(JSON.stringify({ a: '\\"[[[' }))).toEqual({ a: '\\"[[[' });
  });

  it("finds a duplicate key wherever it is hidden", () => {
    fc.assert(
      fc.property(fc.string(), fc.jsonValue(), fc.array(fc.jsonValue()), (key, value, around) => {
        fc.pre(!AMBIGUOUS.test(JSON.stringify([key, value, around])));
        const pair = `${JSON.stringify(key)}:${JSON.stringify(value)}`;
        const text = JSON.stringify([...around, "HERE", ...around]).replace('"HERE"', () => `{${pair},${pair}}`);
        expect(() => parseStrict(text)).toThrow(/duplicate key/);
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("what cannot be sent", () => {
  const self: unknown[] = [];
  self.push(self);
  it.each([
    [{ a: ["x", "\ud800"] }, "/a/1", /lone surrogate/],
    [{ "a/b": { "~": 2 ** 60 } }, "/a~1b/~0", /115292150460684\d+ is beyond/],
    [{ a: Number.NaN }, "/a", /NaN has no JSON form/],
    [[Number.NEGATIVE_INFINITY], "/0", /-Infinity/],
    [{ a: 1n }, "/a", /type bigint/],
    [[undefined], "/0", /type undefined/],
    [{ a: () => 1 }, "/a", /type function/],
    [{ when: { toJSON: () => ({ x: Number.NaN }) } }, "/when/x", /NaN/],
    [{ self }, `/self${"/0".repeat(127)}`, /nested too deeply/],
  ])("what cannot be sent is named with its path: %#", (value, path, reason) => {
    const found = unsendable(value, 128);
    expect(found?.path).toBe(path);
    expect(found?.reason).toMatch(reason);
  });

  it("what cannot be sent is what a strict reader would refuse, and nothing else", () => {
    const number = fc.oneof(fc.double(), fc.maxSafeInteger(), fc.constantFrom(2 ** 53, 2 ** 53 - 1, 1e20, 1e21, -1e21));
    const leaf = fc.oneof(number, fc.string({ unit: "binary" }), fc.constantFrom("\ud800", "\udc00", null, true));
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(leaf, fc.array(tie("value")), fc.dictionary(fc.string(), tie("value"))),
    }));
    fc.assert(
      fc.property(value, (each) => {
        let refused = false;
        try {
          // NaN and the infinities are the ones that a text no longer shows.
          const shown = (_key: string, item: unknown) =>
            typeof item === "number" && !Number.isFinite(item) ? 2 ** 53 : item;
          const text = JSON.stringify(each, shown);
          parseStrict(text);
        } catch {
          refused = true;
        }
        expect(unsendable(each, 128) !== undefined).toBe(refused);
      }),
      { numRuns: 3_000 },
    );
  });
});
