// What a format asks for: expressions, or one of the few checks that every target has built in.

import { fullFormats } from "ajv-formats/dist/formats.js";
import { BUILT_IN_FORMATS, type BuiltInFormat, type Pattern } from "./node.js";

export type FormatCheck =
  | { readonly kind: "patterns"; readonly patterns: readonly Pattern[] }
  | { readonly kind: "built-in"; readonly format: BuiltInFormat }
  /** Known, but every value passes. */
  | { readonly kind: "nothing" };

const BASE64: Pattern = {
  source: "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
  flags: "m",
};

/** Undefined for names that nobody here knows: those are annotations, as JSON Schema says. */
export function formatCheck(name: string): FormatCheck | undefined {
  if (name === "uri") return { kind: "patterns", patterns: [uri()] };
  if (name === "byte") return { kind: "patterns", patterns: [BASE64] };
  const builtIn = BUILT_IN_FORMATS.find((known) => known === name);
  if (builtIn !== undefined) return { kind: "built-in", format: builtIn };
  if (!Object.hasOwn(fullFormats, name)) return undefined;
  const entry: unknown = fullFormats[name as keyof typeof fullFormats];
  if (entry instanceof RegExp) return { kind: "patterns", patterns: [{ source: entry.source, flags: entry.flags }] };
  return { kind: "nothing" };
}

/** A reference whose scheme and path must be there, and which holds no quote: the library keeps this one to itself. */
function uri(): Pattern {
  const { source, flags } = fullFormats["uri-reference"] as RegExp;
  return {
    source: source.replace("*:)?", "*:)").replaceAll(`'"(`, "'(").replace(")?(?:\\?(?:", ")(?:\\?(?:"),
    flags,
  };
}
