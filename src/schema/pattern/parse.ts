// A pattern as its syntax tree, and the characters a single step of it can read.

import type { AST } from "@eslint-community/regexpp";
import type { CharSet, JS } from "refa";
import { patternLibraries } from "./libraries.js";

export interface ParsedPattern {
  readonly source: string;
  readonly flags: string;
  readonly tree: AST.Pattern;
}

/**
 * The flags a pattern runs with: Unicode mode, as JSON Schema asks, or else the lenient syntax that many published
 * schemas are written in. Undefined when the engine refuses both.
 */
export function flagsFor(source: string): string | undefined {
  return ["u", ""].find((flags) => {
    try {
      return new RegExp(source, flags) !== undefined;
    } catch {
      return false;
    }
  });
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

type SingleCharacter = AST.Character | AST.CharacterSet | AST.CharacterClass;

export function isSingleCharacter(node: AST.Element): node is SingleCharacter {
  return node.type === "Character" || node.type === "CharacterSet" || node.type === "CharacterClass";
}

/** The characters that one such step accepts; undefined for the few forms nobody reasons about here. */
export function charactersOf(node: SingleCharacter, flags: string): CharSet | undefined {
  const { createCharSet } = patternLibraries().refa.JS;
  const options = {
    unicode: flags.includes("u"),
    ignoreCase: flags.includes("i"),
    dotAll: flags.includes("s"),
    multiline: flags.includes("m"),
  };
  if (node.type !== "CharacterClass") {
    const member = memberOf(node);
    return member === undefined ? undefined : createCharSet([member], options);
  }
  const members = [];
  for (const element of node.elements) {
    const member = memberOf(element);
    if (member === undefined) return undefined;
    members.push(member);
  }
  const set = createCharSet(members, options);
  return node.negate ? set.negate() : set;
}

type Member = Parameters<typeof JS.createCharSet>[0] extends Iterable<infer Item> ? Item : never;

function memberOf(node: AST.CharacterClassElement | AST.CharacterSet): Member | undefined {
  switch (node.type) {
    case "Character":
      return node.value;
    case "CharacterClassRange":
      return { min: node.min.value, max: node.max.value };
    case "CharacterSet":
      if (node.kind === "any") return { kind: "any" };
      if (node.kind !== "property") return { kind: node.kind, negate: node.negate };
      if (node.strings) return undefined;
      return { kind: "property", key: node.key, value: node.value, strings: false, negate: node.negate };
    default:
      return undefined;
  }
}
