import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fullFormats } from "ajv-formats/dist/formats.js";
import { describe, expect, it } from "vitest";
import { boundHolds } from "./cost.contract.js";
import { safeLength } from "./matcher.js";
import { type ParsedPattern, parsePattern } from "./parse.js";

function parsed(source: string, flags?: string): ParsedPattern {
  const pattern = parsePattern(source, flags);
  if (pattern === undefined) throw new Error(`not a pattern: ${source}`);
  return pattern;
}

const safe = (source: string, flags?: string) => safeLength(parsed(source, flags), { left: 400_000 });

describe("how long a text may be for a pattern to run natively", () => {
  it.each([
    "^[A-Z]{1,5}$",
    "^[a-z0-9][a-z0-9_-]*$",
    "^[^=]+=[^=]+$",
    "^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$",
    "^(?!.*[Ll][Ii][Nn][Ee][Aa][Rr])(?!.*[Hh][Tt][Tt][Pp][Ss]?://).*$",
    "^(?:[A-Za-z0-9_'+\\-]+\\.)*[A-Za-z0-9_'+\\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
    "^\\p{L}+$",
    "^.{0,1400}$",
    "foo",
    "",
  ])("%s is linear, so hundreds of thousands of characters are fine", (source) => {
    expect(safe(source)).toBeGreaterThan(100_000);
  });

  it.each(["\\s+$", "a*b", "^[^\\s@]+@[^\\s@]+\\.[^\\s@]+$", "^a*a*$"])(
    "%s is quadratic: some thousand characters at most",
    (source) => {
      expect(safe(source)).toBeGreaterThan(500);
      expect(safe(source)).toBeLessThan(5_000);
    },
  );

  it.each([
    "(a+)+$",
    "^(a+)+$",
    "(a|a)*$",
    "^(a|a){30}$",
    "(.*a){20}",
    "^(.*a){20}$",
    "([a-zA-Z]+)*$",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "^(?:a?b?)*$",
    "^(a?){20}$",
    "^([\\p{L}]|[\\p{Lu}\\d])*$",
    "[a-z]+[a-z]+[a-z]+[a-z]+[a-z]+!",
  ])("%s explodes: a few dozen characters at most", (source) => {
    expect(safe(source)).toBeLessThan(50);
  });

  it.each(["(a)\\1", "(?<=a)b", "(((((a{1,30}){1,30}){1,30}){1,30}){1,30})", "(?=a*b)c", "a{2000}"])(
    "nothing is claimed about %s",
    (source) => {
      expect(safe(source)).toBe(-1);
    },
  );

  it("analysing a pattern ends, also when it repeats nothing without end", () => {
    for (const source of [
      "(?:(?:(?:(?:){1500}){1500}){1500}){1500}",
      "(?:(?=(?:(?=(?:(?=a)){900}b)){900}c)){900}",
      `^${"\\p{L}".repeat(600)}$`,
      `^${"(?:".repeat(300)}a${"){1,2}".repeat(300)}$`,
    ]) {
      const effort = { left: 400_000 };
      expect(safeLength(parsed(source), effort)).toBeLessThan(100);
      expect(effort.left).toBeGreaterThan(-100_000);
    }
  });

  it("every expression behind a string format is linear, except `url`", () => {
    const unsafe = Object.entries(fullFormats)
      .filter(([, format]) => format instanceof RegExp)
      .filter(([, format]) => safe((format as RegExp).source, (format as RegExp).flags) < 20_000)
      .map(([name]) => name);
    expect(unsafe).toEqual(["url"]);
  });

  it("the expressions inside the format functions are linear", () => {
    const path = createRequire(import.meta.url).resolve("ajv-formats/dist/formats.js");
    const inner = [...readFileSync(path, "utf8").matchAll(/^const [A-Z_]+ = \/(.*)\/([a-z]*);$/gm)];
    expect(inner.length).toBeGreaterThanOrEqual(6);
    for (const [, source = "", flags = ""] of inner)
      expect(safe(source, flags.replace(/[gm]/g, ""))).toBeGreaterThan(20_000);
  });
});

describe("the bound", () => {
  it("a backtracking engine never takes more steps than were promised for a text of that length", () => {
    boundHolds(3_000);
  });
});
