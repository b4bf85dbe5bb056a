// The schemas that a delegation narrows arguments with. Validators skip what they do not know, and a misspelt keyword
// or one of the other dialect would then narrow nothing without its author noticing.

import { isJsonObject, type JsonValue, nearest } from "../../mcp/index.js";
import { DelegationRefused, type HopBlock } from "./block.js";

type Shape =
  | "schema"
  | "schemas"
  | "named"
  | "number"
  | "count"
  | "text"
  | "texts"
  | "flag"
  | "type"
  | "list"
  | "lists"
  | "any";

const COMMON: Readonly<Record<string, Shape>> = {
  ...each("schema", "additionalProperties propertyNames contains not if then else"),
  ...each("schemas", "allOf anyOf oneOf"),
  ...each("named", "properties patternProperties $defs definitions"),
  ...each("number", "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
  ...each("count", "minLength maxLength minItems maxItems minProperties maxProperties"),
  ...each("text", "pattern format $ref $id $schema $comment title description contentEncoding contentMediaType"),
  ...each("flag", "uniqueItems deprecated readOnly writeOnly"),
  ...each("any", "const default examples"),
  type: "type",
  enum: "list",
  required: "texts",
};

const KEYWORDS: Readonly<Record<string, Readonly<Record<string, Shape>>>> = {
  // `items` of draft-07 is one schema or a list of them.
  "draft-07": { ...COMMON, items: "any", additionalItems: "schema", dependencies: "any" },
  "2020-12": {
    ...COMMON,
    ...each("schema", "items unevaluatedItems unevaluatedProperties contentSchema"),
    ...each("count", "minContains maxContains"),
    ...each("text", "$anchor $dynamicRef $dynamicAnchor"),
    prefixItems: "schemas",
    dependentSchemas: "named",
    dependentRequired: "lists",
  },
};

const TYPES = new Set<unknown>(["null", "boolean", "object", "array", "number", "integer", "string"]);

/** What draft-07 leaves a meaning to beside a reference. */
const BESIDE_REF = new Set("$ref $schema $id $comment title description definitions $defs".split(" "));

function each(shape: Shape, words: string): Record<string, Shape> {
  return Object.fromEntries(words.split(" ").map((word) => [word, shape]));
}

/** What is wrong with a schema, and where in it; undefined when every word of it is understood. Depth is bounded by its reader. */
export function problemInNarrowing(schema: JsonValue, at = "", dialect = dialectOf(schema)): string | undefined {
  if (typeof schema === "boolean") return undefined;
  if (!isJsonObject(schema)) return `${place(at)} must be a schema: an object, true or false`;
  const known = KEYWORDS[dialect];
  if (known === undefined) return `\`$schema\` must name draft-07 or 2020-12, not ${dialect.slice(0, 100)}`;
  const beside =
    dialect === "draft-07" && "$ref" in schema && Object.keys(schema).find((word) => !BESIDE_REF.has(word));
  if (beside)
    return `${place(`${at}/${beside}`)} stands beside a $ref, where draft-07 skips it; put both into an allOf`;
  for (const [word, value] of Object.entries(schema)) {
    const here = `${at}/${word}`;
    const shape = Object.hasOwn(known, word) ? known[word] : undefined;
    if (shape === undefined) {
      const meant = nearest(word, Object.keys(known));
      return `${place(here)} is not a keyword of ${dialect}, and would narrow nothing${meant === undefined ? "" : `; did you mean \`${meant}\`?`}`;
    }
    if (word === "$schema" && at !== "") return `${place(here)} may only stand at the top`;
    const problem = shapeProblem(shape, word, value as JsonValue, here, dialect);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function shapeProblem(shape: Shape, word: string, value: JsonValue, at: string, dialect: string): string | undefined {
  const inside = (inner: JsonValue, name: string | number): string | undefined =>
    problemInNarrowing(inner, `${at}/${name}`, dialect);
  const must = (holds: boolean, what: string): string | undefined =>
    holds ? undefined : `${place(at)} must be ${what}`;
  switch (shape) {
    case "schema":
      return problemInNarrowing(value, at, dialect);
    case "schemas":
      return Array.isArray(value) && value.length > 0
        ? first(value.entries(), inside)
        : must(false, "a list of schemas");
    case "named":
      return isJsonObject(value) ? first(byName(value), inside) : must(false, "schemas by name");
    case "number":
      return must(typeof value === "number", "a number");
    case "count":
      return must(typeof value === "number" && Number.isInteger(value) && value >= 0, "a whole number from 0");
    case "text":
      return must(typeof value === "string", "text");
    case "texts":
      return must(isTexts(value), "a list of names");
    case "flag":
      return must(typeof value === "boolean", "true or false");
    case "type":
      return must(
        [value].flat().every((type) => TYPES.has(type)),
        `one or more of ${[...TYPES].join(", ")}`,
      );
    case "list":
      return must(Array.isArray(value), "a list");
    case "lists":
      return must(isJsonObject(value) && Object.values(value).every(isTexts), "lists of names by name");
    case "any":
      return dialect === "draft-07" ? olderProblem(word, value, at, inside) : undefined;
  }
}

/** What draft-07 writes in more than one way. */
function olderProblem(
  word: string,
  value: JsonValue,
  at: string,
  inside: (inner: JsonValue, name: string | number) => string | undefined,
): string | undefined {
  if (word === "items") {
    return Array.isArray(value) ? first(value.entries(), inside) : problemInNarrowing(value, at, "draft-07");
  }
  if (word !== "dependencies") return undefined;
  if (!isJsonObject(value)) return `${place(at)} must be schemas or lists of names by name`;
  return first(byName(value), (inner, name) => (isTexts(inner) ? undefined : inside(inner, name)));
}

function first<Key>(
  entries: Iterable<[Key, JsonValue]>,
  problem: (value: JsonValue, key: Key) => string | undefined,
): string | undefined {
  for (const [key, value] of entries) {
    const found = problem(value, key);
    if (found !== undefined) return found;
  }
  return undefined;
}

function byName(value: object): [string, JsonValue][] {
  return Object.entries(value) as [string, JsonValue][];
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((each) => typeof each === "string");
}

function dialectOf(schema: JsonValue): string {
  const declared = isJsonObject(schema) ? schema.$schema : undefined;
  if (typeof declared !== "string") return "2020-12";
  // Nothing that was declared can pass for a key of the table by itself.
  return (
    /^https?:\/\/json-schema\.org\/(?:draft\/)?(draft-07|2020-12)\/schema#?$/.exec(declared)?.[1] ?? `"${declared}"`
  );
}

function place(at: string): string {
  return at === "" ? "it" : `\`${at.slice(0, 200)}\``;
}

/** A condition on a tool not handed on has no effect: a misspelt name must not look like a narrower delegation. */
export function checkNarrowed(given: ReadonlySet<string>, { to, arguments: narrowed = {} }: HopBlock): void {
  const strange = Object.keys(narrowed).find((capability) => !given.has(capability));
  if (strange === undefined) return;
  const meant = nearest(strange, given);
  const help = meant === undefined ? "" : `; did you mean \`${meant}\`?`;
  const what = `\`${to}\` was given narrower arguments of \`${strange}\`, which is not handed on to it${help}`;
  throw new DelegationRefused("malformed", what);
}
