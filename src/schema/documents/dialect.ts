export type Dialect = "draft-07" | "2020-12";

const DIALECTS: ReadonlyMap<unknown, Dialect> = new Map([
  ["json-schema.org/draft-07/schema", "draft-07"],
  ["json-schema.org/draft/2020-12/schema", "2020-12"],
]);

/** The dialect that a value of `$schema` names; undefined for one that is not known here. */
export function knownDialect(declared: unknown): Dialect | undefined {
  return typeof declared === "string"
    ? DIALECTS.get(declared.replace(/^https?:\/\//, "").replace(/#$/, ""))
    : undefined;
}
