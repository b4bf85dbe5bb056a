// Where keywords hold schemas: directly, in a list, or under names. Both dialects use the same positions.

const HOLDS_ONE = words(
  "not if then else contains additionalProperties propertyNames items contentSchema",
  "additionalItems unevaluatedItems unevaluatedProperties",
);
const HOLDS_LIST = words("allOf anyOf oneOf prefixItems items");
const HOLDS_NAMED = words("properties patternProperties $defs definitions dependentSchemas dependencies");

function words(...lines: string[]): ReadonlySet<string> {
  return new Set(lines.flatMap((line) => line.split(" ")));
}

/** The values of a keyword that stand where a schema is expected, each with its path below the schema. */
export function* subschemas(keyword: string, value: unknown): Iterable<[path: readonly string[], value: unknown]> {
  if (Array.isArray(value)) {
    if (!HOLDS_LIST.has(keyword)) return;
    for (const [index, item] of value.entries()) yield [[keyword, String(index)], item];
  } else if (HOLDS_NAMED.has(keyword)) {
    if (typeof value !== "object" || value === null) return;
    for (const [name, item] of Object.entries(value)) yield [[keyword, name], item];
  } else if (HOLDS_ONE.has(keyword)) yield [[keyword], value];
}
