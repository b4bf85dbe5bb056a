// A pattern as its syntax tree, and the characters a single step of it can read.

import { type AST, RegExpParser } from "@eslint-community/regexpp";
import { type CharSet, JS } from "refa";

export interface ParsedPattern {
  readonly source: string;
  readonly flags: string;
  readonly tree: AST.Pattern;
}

const parser = new RegExpParser();

/**
 * Reads a pattern the way JSON Schema asks for (Unicode mode) and falls back to the lenient syntax that many
 * published schemas are written in. Undefined when no engine here could run it.
 */
export function parsePattern(source: string, flags?: string): ParsedPattern | undefined {
  for (const tried of flags === undefined ? ["u", ""] : [flags]) {
    try {
      // The engine has the last word: what it refuses must not be accepted by the parser alone.
      new RegExp(source, tried);
      const tree = parser.parsePattern(source, 0, source.length, { unicode: tried.includes("u") });
      return { source, flags: tried, tree };
    } catch {
      // The next syntax is tried; a pattern that fits none is reported by the caller, with its place in the schema.
    }
  }
  return undefined;
}

type SingleCharacter = AST.Character | AST.CharacterSet | AST.CharacterClass;

export function isSingleCharacter(node: AST.Element): node is SingleCharacter {
  return node.type === "Character" || node.type === "CharacterSet" || node.type === "CharacterClass";
}

/** The characters that one such step accepts; undefined for the few forms nobody reasons about here. */
export function charactersOf(node: SingleCharacter, flags: string): CharSet | undefined {
  const options = {
    unicode: flags.includes("u"),
    ignoreCase: flags.includes("i"),
    dotAll: flags.includes("s"),
    multiline: flags.includes("m"),
  };
  if (node.type !== "CharacterClass") {
    const member = memberOf(node);
    return member === undefined ? undefined : JS.createCharSet([member], options);
  }
  const members = [];
  for (const element of node.elements) {
    const member = memberOf(element);
    if (member === undefined) return undefined;
    members.push(member);
  }
  const set = JS.createCharSet(members, options);
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
