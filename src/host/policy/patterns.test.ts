import { describe, expect, test } from "vitest";
import { type ArgumentPattern, compileArgumentPattern, matchAll } from "./patterns.js";

function pattern(source: string): ArgumentPattern {
  const compiled = compileArgumentPattern(source);
  if ("error" in compiled) throw new Error(compiled.error);
  return compiled.pattern;
}

const matches = (source: string, text: string): boolean | undefined => matchAll([pattern(source)], [text])?.[0];

describe("patterns match whole arguments", () => {
  test.each([
    ["[0-9]+", "12", true],
    ["[0-9]+", "-f%0900000000f12", false],
    ["[0-9]+", "12\n", false],
    ["a|b", "ab", false],
    ["a|bc", "xbc", false],
    ["^a$|b", "b", true],
    ["^[\\w\\-\\./@:+#*?\\[\\]]+$", "src/*.ts", true],
    ["(?!-)(?!.*(?:^|/)\\.\\.(?:/|$))[^\\u0000-\\u001f]{1,200}", "../x", false],
    ["(?!-)(?!.*(?:^|/)\\.\\.(?:/|$))[^\\u0000-\\u001f]{1,200}", "a..b", true],
    [".", "😀", true],
    ["[\\w\\:]+", "a:b", true],
  ])("%s against %j: %s", (source, text, expected) => expect(matches(source, text)).toBe(expected));

  test.each([
    ["[\\w./=-]+", "--pre", false],
    [".*", "-rf", false],
    ["(?:.*)", "--x", false],
    ["[-a]b", "-b", false],
    ["--max-count=[0-9]+", "--max-count=5", true],
    ["^-n[0-9]+$", "-n5", true],
    ["(?:-a|-b)", "-b", true],
    ["-?[0-9]+", "-5", true],
    ["\\-x", "-x", true],
  ])("%s lets an option pass only where it spells the dash: %s → %s", (source, text, expected) =>
    expect(matches(source, text)).toBe(expected),
  );

  test("any of several is enough, each argument by itself", () => {
    expect(matchAll([pattern("a+"), pattern("b+")], ["aa", "bb", "ab", ""])).toEqual([true, true, false, false]);
    expect(matchAll([], ["a"])).toEqual([false]);
  });
});

describe("patterns cannot stall", () => {
  test.each([
    ["nested repetition", "(a+)+", `${"a".repeat(50)}!`],
    ["overlapping alternatives", "(a|aa)*b", "a".repeat(100)],
    ["a backreference", "(.*)\\1(.*)\\2(.*)\\3x", "a".repeat(2000)],
  ])("%s runs out of time and matches nothing", (_, source, text) => {
    expect(matchAll([pattern(source)], [text], 50)).toBeUndefined();
  });

  test("after one ran out of time the next is matched as usual", () => {
    expect(matchAll([pattern("(a+)+")], [`${"a".repeat(50)}!`], 20)).toBeUndefined();
    expect(matches("a+", "aaa")).toBe(true);
  });
});

test("an invalid pattern says what is wrong", () => {
  expect(compileArgumentPattern("([")).toMatchObject({ error: expect.stringContaining("Invalid regular expression") });
});
