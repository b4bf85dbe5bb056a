// Keeps retired words out of the source, the documents and the tests' titles: the project uses the terms of its field.

import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");

const RETIRED =
  /\b(house|lobby|letters?|voices?|wardens?|pens?|dresser|elsewhere|parked|nobody|somebody|whoever|turned away|(?<!there )is no(?! longer| more)|for want of|made anew|goes on|well again)\b/gi;

/** Ordinary uses: the text is removed before the search. */
const ORDINARY: readonly (readonly [use: RegExp, reason: string])[] = [
  [
    /\b(?:lowercase |uppercase |case |Use |expected |use |Hebrew |Small |"|')letters?\b/gi,
    "characters of the alphabet",
  ],
  [/"nobody"/g, "the Unix account"],
  [
    /"letters?"|`letter`|letters_expiry|(TABLE|ON|INTO|FROM) letters\b/g,
    "the table of replica messages in stores that exist",
  ],
  [/letters(, digits| and digits)|a letter or digit/g, "characters of the alphabet"],
  [/house-number/g, "the name of a format in a test"],
  [/policy\.elsewhere/g, "a field of the host's policy"],
  [/elsewhere: otherProjects/g, "a field of `connect --json`"],
];

/** Written by others, or data. */
const SKIPPED = /\.(json|jsonl|lock|svg|png|wasm)$|^src\/.*\/golden\//;

function retiredWords(text: string): string[] {
  const rest = ORDINARY.reduce((result, [use]) => result.replace(use, ""), text);
  return rest
    .split("\n")
    .flatMap((line, i) =>
      [...line.matchAll(RETIRED)].map(([word]) => `${i + 1}: ${word} in: ${line.trim().slice(0, 100)}`),
    );
}

/** Without git, which a machine that runs the tests need not have. */
const files = ["src", "docs"]
  .flatMap((directory) => {
    const entries = readdirSync(join(ROOT, directory), { recursive: true, withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
  })
  .map((file) => relative(ROOT, file).replaceAll("\\", "/"))
  .concat("README.md")
  .filter((file) => !SKIPPED.test(file));

describe("retired words", () => {
  it("finds a retired word in a text, and skips its ordinary uses", () => {
    expect(retiredWords("every door of the house\nlowercase letters")).toEqual([
      "1: house in: every door of the house",
    ]);
    expect(retiredWords("`x` is no path")).toHaveLength(1);
    expect(retiredWords("there is no path `x`")).toEqual([]);
  });

  it("finds no retired word in src, docs and README.md", () => {
    const found = files.flatMap((file) =>
      retiredWords(readFileSync(resolve(ROOT, file), "utf8")).map((line) => `${file}:${line}`),
    );
    expect(found).toEqual([]);
  });
});
