// The published test suite of JSON Schema.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { JsonValue } from "../mcp/index.js";
import type { Dialect } from "./documents/index.js";
import { Schema } from "./schema.js";
import type { JsonSchema } from "./types.js";

interface Group {
  description: string;
  schema: JsonSchema;
  tests: { description: string; data: JsonValue; valid: boolean }[];
}

const suite = JSON.parse(readFileSync(new URL("./fixtures/json-schema-suite.json", import.meta.url), "utf8")) as Record<
  Dialect,
  Record<string, Group[]>
>;

const DECLARED: Record<Dialect, string> = {
  "draft-07": "http://json-schema.org/draft-07/schema#",
  "2020-12": "https://json-schema.org/draft/2020-12/schema",
};

function inDialect(schema: JsonSchema, dialect: Dialect): JsonSchema {
  return typeof schema === "object" && schema.$schema === undefined
    ? { $schema: DECLARED[dialect], ...schema }
    : schema;
}

/** Needs a document from outside, or a dynamic reference across resources: refused with a reason, by design. */
const REFUSED = /references are never fetched|supported only in a schema without nested/;

describe.each<[Dialect, number, number]>([
  ["draft-07", 900, 4],
  ["2020-12", 1_200, 44],
])("the JSON Schema test suite, %s", (dialect, judged, refused) => {
  it(`${judged} cases are judged as the suite says, ${refused} are refused before any value is seen`, async () => {
    let agreed = 0;
    let turnedDown = 0;
    const wrong: string[] = [];
    for (const [file, groups] of Object.entries(suite[dialect])) {
      for (const group of groups) {
        let schema: Schema;
        try {
          schema = new Schema(inDialect(group.schema, dialect));
        } catch (error) {
          expect((error as Error).message, `${file}: ${group.description}`).toMatch(REFUSED);
          turnedDown += group.tests.length;
          continue;
        }
        for (const test of group.tests) {
          // Formats are checked here; the suite has them as notes only.
          if (file === "format" && test.description.includes("only an annotation")) continue;
          if ((await schema.validate(test.data)).ok === test.valid) agreed++;
          else wrong.push(`${file}: ${group.description}: ${test.description}`);
        }
      }
    }
    expect(wrong).toEqual([]);
    expect({ agreed, turnedDown }).toEqual({ agreed: judged, turnedDown: refused });
  });
});
