import { describe, expect, it } from "vitest";
import { loadPolicy } from "./load.js";
import { costProblem } from "./pattern-cost.js";
import { PolicyInvalid } from "./types.js";

const fine = [
  "acct-\\d+",
  "\\d{3}-\\d{2}-\\d{4}",
  "AKIA[A-Z0-9]{16}",
  "sk-[A-Za-z0-9]{20,255}",
  "\\d+",
  "password=\\S+",
  "token:.*",
  "\\bsecret\\b",
  "(?:foo|bar|baz)-[0-9]{1,8}x",
  "[a-z]{1,64}@corp\\.example",
  "\\d{1,3}\\.\\d{1,3}\\.\\d{1,3}\\.\\d{1,3}",
  "a\\sb?",
  "(?:ab)+",
  "^secret",
];
const costly = [
  "(a+)+$",
  "(a|a)*$",
  "(a|a){30}$",
  "(a?){25}a{25}",
  "(.*a){20}",
  "(x+x+)+y",
  "a*b",
  "\\s+$",
  "\\d+-\\d+",
  "[a-z]+@",
  "a{0,100}a{0,100}a{0,100}b",
  "(a{1,30}){1,30}b",
  "(?:a|b|ab){1,40}c",
  "(a)\\1",
  "(?<=x)a",
  "(?=a*b)c",
  "(?:a|b)+",
  `${"a".repeat(1_001)}`,
];

/** Texts that lead patterns astray: one character over and over, or what a pattern begins with. */
const TEXT_CHARS = 200_000;
const texts = ["a", "1", "x", " ", "ab", "-", "sk-a", "AKIA", "foo-1", "1.", "password=", "token:"].map((part) =>
  part.repeat(TEXT_CHARS / part.length),
);

describe("a pattern over answers", () => {
  it.each(fine)("%s has a bound, and takes its time in proportion to the text", (source) => {
    expect(costProblem(source, "")).toBeUndefined();
    const pattern = new RegExp(source, "g");
    for (const text of texts) {
      const started = process.cpuUsage();
      text.replaceAll(pattern, "");
      // A quadratic one would take minutes.
      expect(process.cpuUsage(started).user).toBeLessThan(3_000_000);
    }
  });

  it.each(costly)("%s is refused", (source) => {
    expect(costProblem(source, "")).toMatch(/./);
  });

  it("a pattern over answers is refused when the policy is loaded, with its place, the part that is wrong and what to do", () => {
    const text = '@id("a") @redact("/(a+)+$/")\npermit (principal, action, resource);';
    const load = () => loadPolicy([{ file: "p.cedar", text }], []);
    expect(load).toThrow(PolicyInvalid);
    expect(load).toThrow(/@redact has the pattern \/\(a\+\)\+\$\/, which could take too long.*`a\+`.*give it a bound/s);
  });
});
