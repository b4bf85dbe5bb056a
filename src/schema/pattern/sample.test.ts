import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createMatcher, type Matcher } from "./matcher.js";
import { describePattern, sampleOf } from "./sample.js";

function matcher(source: string): Matcher {
  const outcome = createMatcher(source, { left: 1_000_000 });
  if (!outcome.ok) throw new Error(outcome.reason);
  return outcome.matcher;
}

describe("a text that matches a pattern", () => {
  it.each([
    "^[A-Z]{1,5}$",
    "^\\d{4}-\\d{2}-\\d{2}$",
    "^#[0-9A-Fa-f]{6}$",
    "^(?:GET|POST)$",
    "^[^\\s@]+@[^\\s@]+\\.[^\\s@]+$",
    "^gls_[a-zA-Z0-9_-]+$",
    "^\\p{Lu}\\p{Ll}+$",
    "^(?!.*http).*$",
    "https?://",
  ])("a text that matches a pattern is found for %s", (source) => {
    const samples = [0, 1, 2, 3].map((variant) => sampleOf(matcher(source), variant));
    for (const sample of samples) expect(sample).toMatch(new RegExp(source, "u"));
  });

  it("a text that matches a pattern keeps to a length when one is asked for", () => {
    expect(sampleOf(matcher("^[a-z]+$"), 0, { min: 12, max: 14 })).toHaveLength(12);
    expect(sampleOf(matcher("^[a-z]{4,}$"), 3, { max: 4 })).toHaveLength(4);
  });

  it("a text that matches a pattern is left out rather than wrong", () => {
    expect(sampleOf(matcher("^(?=b)a$"))).toBeUndefined();
    expect(sampleOf(matcher("^[^\\s\\S]$"))).toBeUndefined();
    expect(sampleOf(matcher("^a{900}b{900}$"))).toBeUndefined();
  });

  it("a text that matches a pattern is never tried out where trying could stall", () => {
    const hostile = matcher("^(a)\\1$");
    expect(hostile.safeLength).toBe(-1);
    expect(sampleOf(hostile)).toBeUndefined();
  });

  it("a text that matches a pattern is given up when making one would not end", () => {
    expect(sampleOf({ ...matcher("a"), source: "(?:(?:(?:){900}){900}){900}", flags: "u" })).toBeUndefined();
  });

  it("always matches, whatever the pattern", () => {
    const source = fc
      .array(fc.constantFrom("a", "[b-d]", "\\d", "(?:x|yz)", "w?", "[A-Z]+", "q{2,3}", "."), { maxLength: 6 })
      .map((parts) => `^${parts.join("")}$`);
    fc.assert(
      fc.property(source, fc.nat(9), (pattern, variant) => {
        expect(sampleOf(matcher(pattern), variant)).toMatch(new RegExp(pattern, "u"));
      }),
      { numRuns: 300 },
    );
  });
});

describe("a pattern in words", () => {
  it.each([
    ["^[A-Z]{1,5}$", 'Use uppercase letters only; length must be 1-5 characters, for example "BC"'],
    ["^[a-zA-Z]{2}$", 'Use letters only; length must be exactly 2 characters, for example "bc"'],
    [
      "^[a-z0-9_-]+$",
      'Use lowercase letters, digits and "_" "-" only; length must be at least 1 character, for example "bc"',
    ],
    ["^\\d+$", 'Use digits only; length must be at least 1 character, for example "12"'],
    ["^v\\d+$", 'Use text like "v23"'],
  ])("%s: %s", (source, suggestion) => {
    expect(describePattern(matcher(source))).toEqual({ suggestion });
  });

  it("says nothing when there is nothing sure to say", () => {
    expect(describePattern(matcher("^(?=b)a$"))).toEqual({});
  });
});
