import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Languages, matches, wordsOfLanguage } from "./language.js";
import { patternLanguage } from "./parse.js";

const languages = new Languages();

function language(source: string) {
  const parsed = patternLanguage(languages, source);
  if (parsed === undefined) throw new Error(`not translated: ${source}`);
  return parsed;
}

function included(left: string, right: string): string | undefined {
  return wordsOfLanguage(languages, languages.and(language(left), languages.not(language(right))), 1, 1e5)?.[0];
}

/** Patterns of every construct that is translated, small enough that short strings reach all of their states. */
const pattern = fc.letrec((tie) => ({
  sequence: fc.array(tie("element"), { maxLength: 3 }).map((parts) => parts.join("")),
  alternatives: fc.array(tie("sequence"), { minLength: 1, maxLength: 2 }).map((parts) => parts.join("|")),
  element: fc.oneof(
    { maxDepth: 2 },
    fc.constantFrom("a", "b", ".", "[ab]", "[^a]", "\\w", "\\d", " ", "^", "$", "\\b", "\\B", "é"),
    fc
      .tuple(fc.constantFrom("a", "b", "[ab]", "\\W"), fc.constantFrom("*", "+", "?", "{2}", "{1,2}", "*?"))
      .map((p) => p.join("")),
    tie("alternatives").map((inner) => `(${inner})`),
    tie("alternatives").map((inner) => `(?:${inner})?`),
    tie("alternatives").map((inner) => `(?=${inner})`),
    tie("alternatives").map((inner) => `(?!${inner})`),
  ),
})).alternatives as fc.Arbitrary<string>;

describe("patterns as languages", () => {
  it("patterns as languages accept exactly the strings that the engine's own regular expressions accept", () => {
    let compared = 0;
    fc.assert(
      fc.property(
        pattern,
        fc.array(fc.constantFrom("a", "b", "1", " ", "é", "\n"), { maxLength: 6 }),
        (source, characters) => {
          const languages = new Languages();
          const parsed = patternLanguage(languages, source);
          if (parsed === undefined) return;
          const text = characters.join("");
          const answer = languages.bounded(20_000, () => matches(languages, parsed, text));
          if (answer === undefined) return;
          compared++;
          expect(answer).toBe(new RegExp(source, "u").test(text));
        },
      ),
      { numRuns: 1_000 },
    );
    expect(compared).toBeGreaterThan(600);
  });

  it("patterns as languages yield words that the engine's own regular expressions accept, and none only when none of the tried strings match", () => {
    const tried = ["", "a", "b", "ab", "ba", "aab", "1", " ", "a b", "é"];
    fc.assert(
      fc.property(pattern, (source) => {
        const languages = new Languages();
        const parsed = patternLanguage(languages, source);
        if (parsed === undefined) return;
        const found = wordsOfLanguage(languages, parsed, 5, 1e4);
        if (found === undefined) return;
        const native = new RegExp(source, "u");
        for (const word of found) expect(native.test(word)).toBe(true);
        if (found.length === 0) for (const text of tried) expect(native.test(text)).toBe(false);
      }),
      { numRuns: 250 },
    );
  });

  it.each([
    ["^[a-z]+$", "^[a-z0-9]+$", undefined],
    ["^[a-z0-9]+$", "^[a-z]+$", "0"],
    ["^(?!.*evil).*$", "^", undefined],
    ["^[a-z]*$", "^(?!.*evil).*$", "evil"],
    ["^a{3,5}$", "^a{2,8}$", undefined],
    ["^a{2,8}$", "^a{3,5}$", "aa"],
    ["^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]{2,}$", "^[a-z0-9.-]+$", undefined],
    ["\\bcat\\b", "cat", undefined],
    ["^.?cat$", "\\bcat\\b", "ccat"],
    ["^(?=.*\\d)(?=.*[a-z]).{8,}$", "^.{4,}$", undefined],
  ])("%s within %s is contradicted by %s", (left, right, witness) => {
    expect(included(left, right)).toBe(witness);
  });

  it("patterns as languages count characters beyond the basic plane as one", () => {
    // Not among the generated strings: V8 also starts a match in the middle of a surrogate pair, which ECMA-262 does not.
    expect(matches(languages, language("^.$"), "😀")).toBe(true);
    expect(matches(languages, language("^[^a]{2}$"), "😀")).toBe(false);
  });

  it("patterns as languages leave out what is not a regular language instead of guessing", () => {
    for (const source of ["(a)\\1", "(?<=a)b", "(?:^a)*", "(", "x".repeat(5_000)]) {
      expect(patternLanguage(languages, source)).toBeUndefined();
    }
  });

  it("patterns as languages stop at the budget", () => {
    const wide = languages.and(language("^(?:a|b)*a(?:a|b){30}$"), languages.not(language("^[ab]*$")));
    expect(wordsOfLanguage(languages, wide, 1, 2_000)).toBeUndefined();
  });
});
