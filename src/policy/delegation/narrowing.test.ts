import { describe, expect, it } from "vitest";
import type { JsonValue } from "../../mcp/index.js";
import { Schema } from "../../mcp/server/index.js";
import { problemInNarrowing } from "./narrowing.js";

const DRAFT_7 = "http://json-schema.org/draft-07/schema#";

describe("a schema that narrows arguments", () => {
  it.each<[JsonValue, string]>([
    [5, "it must be a schema: an object, true or false"],
    [null, "it must be a schema"],
    [["string"], "it must be a schema"],
    [
      { propertes: { path: {} } },
      "`/propertes` is not a keyword of 2020-12, and would narrow nothing; did you mean `properties`?",
    ],
    [{ properties: { path: { maxLenght: 5 } } }, "`/properties/path/maxLenght` is not a keyword"],
    [{ properties: { path: 5 } }, "`/properties/path` must be a schema"],
    [{ properties: [] }, "`/properties` must be schemas by name"],
    [{ allOf: [{ not: { pattem: "x" } }] }, "`/allOf/0/not/pattem` is not a keyword"],
    [{ anyOf: [] }, "`/anyOf` must be a list of schemas"],
    [{ allOf: {} }, "`/allOf` must be a list of schemas"],
    [{ $defs: { a: { typ: "string" } } }, "`/$defs/a/typ` is not a keyword"],
    [{ type: "strng" }, "`/type` must be one or more of null, boolean"],
    [{ type: ["string", 1] }, "`/type` must be one or more of"],
    [{ required: "path" }, "`/required` must be a list of names"],
    [{ enum: "a" }, "`/enum` must be a list"],
    [{ minLength: "5" }, "`/minLength` must be a whole number from 0"],
    [{ minLength: -1 }, "`/minLength` must be a whole number from 0"],
    [{ maximum: "5" }, "`/maximum` must be a number"],
    [{ pattern: 5 }, "`/pattern` must be text"],
    [{ uniqueItems: "yes" }, "`/uniqueItems` must be true or false"],
    [{ dependentRequired: { a: "b" } }, "`/dependentRequired` must be lists of names by name"],
    // Words of the other dialect are skipped as well.
    [{ dependencies: { a: ["b"] } }, "`/dependencies` is not a keyword of 2020-12"],
    [{ additionalItems: false }, "`/additionalItems` is not a keyword of 2020-12"],
    [{ $schema: DRAFT_7, unevaluatedProperties: false }, "`/unevaluatedProperties` is not a keyword of draft-07"],
    [{ $schema: DRAFT_7, items: [{ typ: "x" }] }, "`/items/0/typ` is not a keyword of draft-07"],
    [{ $schema: DRAFT_7, dependencies: { a: { typ: "x" } } }, "`/dependencies/a/typ` is not a keyword"],
    [
      { $schema: DRAFT_7, properties: { a: { $ref: "#", maxLength: 1 } } },
      "`/properties/a/maxLength` stands beside a $ref",
    ],
    [{ $schema: "http://json-schema.org/draft-04/schema#" }, "`$schema` must name draft-07 or 2020-12"],
    [{ $schema: "2020-12" }, "`$schema` must name draft-07 or 2020-12"],
    [{ $schema: "constructor" }, "`$schema` must name draft-07 or 2020-12"],
    [{ not: { $schema: DRAFT_7 } }, "`/not/$schema` may only stand at the top"],
    [JSON.parse('{"__proto__": {}}') as JsonValue, "`/__proto__` is not a keyword"],
    [{ toString: {} }, "`/toString` is not a keyword"],
  ])("%j is refused", (schema, problem) => {
    expect(problemInNarrowing(schema)).toContain(problem);
  });

  it.each<[Exclude<JsonValue, null | string | number | JsonValue[]>]>([
    [true],
    [false],
    [{}],
    [
      {
        type: "object",
        properties: { path: { type: "string", pattern: "^/srv/", maxLength: 40 } },
        required: ["path"],
      },
    ],
    [{ anyOf: [{ const: { propertes: 1 } }, { enum: [{ typ: 1 }] }], not: false, default: { x: 1 } }],
    [{ $schema: "https://json-schema.org/draft/2020-12/schema", prefixItems: [true], items: false, $defs: { a: {} } }],
    [
      {
        properties: { properties: { minLength: 1 }, typ: { $ref: "#/$defs/t" } },
        $defs: { t: { type: ["string", "null"] } },
      },
    ],
    [
      {
        $schema: DRAFT_7,
        $ref: "#/definitions/a",
        definitions: { a: { items: [{ type: "string" }], additionalItems: false } },
      },
    ],
    [{ $schema: DRAFT_7, dependencies: { a: ["b"], b: { required: ["c"] } } }],
  ])("%j is understood, and a validator takes it too", (schema) => {
    expect(problemInNarrowing(schema)).toBeUndefined();
    expect(() => typeof schema === "boolean" || new Schema(schema)).not.toThrow();
  });
});
