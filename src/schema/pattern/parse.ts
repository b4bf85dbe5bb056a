// A pattern as its syntax tree, and the characters a single step of it can read.

import { createRequire } from "node:module";
import type { AST } from "@eslint-community/regexpp";
import type { CharSet } from "refa";
import { charactersOf, flagsFor, type SingleCharacter } from "../documents/index.js";

export interface ParsedPattern {
  readonly source: string;
  readonly flags: string;
  readonly tree: AST.Pattern;
}

/** Undefined when the parser does not know the syntax, whatever the engine says. */
export function parsePattern(source: string, flags = flagsFor(source)): ParsedPattern | undefined {
  if (flags === undefined) return undefined;
  try {
    const { RegExpParser } = patternLibraries().regexpp;
    const tree = new RegExpParser().parsePattern(source, 0, source.length, { unicode: flags.includes("u") });
    return { source, flags, tree };
  } catch {
    return undefined;
  }
}

export function isSingleCharacter(node: AST.Element): node is SingleCharacter {
  return node.type === "Character" || node.type === "CharacterSet" || node.type === "CharacterClass";
}

/** `characterSet` returns the characters that one such step accepts; undefined for the few forms that are not analysed. */
export function characterSet(node: SingleCharacter, flags: string): CharSet | undefined {
  const { JS } = patternLibraries().refa;
  const set = charactersOf(
    node,
    {
      unicode: flags.includes("u"),
      ignoreCase: flags.includes("i"),
      dotAll: flags.includes("s"),
      multiline: flags.includes("m"),
    },
    JS,
  );
  return typeof set === "string" ? undefined : set;
}

const require = createRequire(import.meta.url);
let loaded: { readonly refa: typeof import("refa"); readonly regexpp: typeof import("@eslint-community/regexpp") };

/**
 * `patternLibraries` returns the parser of regular expressions and the sets of characters; the first call loads them. Both
 * are CommonJS, refa of 1 MB, and most processes see no pattern. By `require`, because `import` parses CommonJS once more.
 */
export function patternLibraries(): typeof loaded {
  loaded ??= {
    refa: require("refa") as typeof import("refa"),
    regexpp: require("@eslint-community/regexpp") as typeof import("@eslint-community/regexpp"),
  };
  return loaded;
}
