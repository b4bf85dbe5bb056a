import { describe, expect, it } from "vitest";
import { HOME, knownDialect, type ResourceRules, SchemaResources, splitReference } from "./index.js";

const LIMITS: ResourceRules = {
  maxDepth: 20,
  maxValues: 50,
  exceeded(limit, max) {
    throw new Error(`${limit} ${max}`);
  },
};

function targetOf(root: object, reference: string, from: object = root): unknown {
  const resources = new SchemaResources(root, "2020-12", LIMITS);
  const { address, fragment } = splitReference(reference, resources.baseOf(from) ?? HOME);
  return resources.find(address, fragment)?.value;
}

describe("references in a schema document", () => {
  const named = { $anchor: "here", type: "string" };
  const inner = { $id: "inner.json", $defs: { "a/b~c": named }, items: { $ref: "#here" } };
  const root = { $defs: { inner, other: { $anchor: "here", type: "null" } } };

  it.each([
    ["#", root, root],
    ["#/$defs/inner", root, inner],
    ["#/$defs/inner/$defs/a~1b~0c", root, named],
    ["#/%24defs/inner", root, inner],
    ["inner.json#here", root, named],
    ["#here", inner.items, named],
    ["#here", root, root.$defs.other],
    ["#nothing", root, undefined],
    ["#/$defs/nothing/deeper", root, undefined],
    ["https://example.com/other.json", root, undefined],
  ])("finds what %s points at", (reference, from, target) => {
    expect(targetOf(root, reference, from)).toBe(target);
  });

  it("takes no schema identifier from data or from a property that has a keyword's name", () => {
    const data = {
      enum: [{ $id: "data.json" }],
      properties: { $id: { type: "string" } },
      "x-note": { $id: "note.json" },
    };
    const resources = new SchemaResources(data, "2020-12", LIMITS);
    expect([...resources.addresses()]).toEqual([HOME]);
    expect(resources.hasSeveralResources).toBe(false);
  });

  it("takes no schema identifier beside a reference in draft-07", () => {
    const schema = { definitions: { a: { $id: "a.json", $ref: "#" } } };
    expect([...new SchemaResources(schema, "draft-07", LIMITS).addresses()]).toEqual([HOME]);
    expect([...new SchemaResources(schema, "2020-12", LIMITS).addresses()]).toEqual([HOME, `${HOME}a.json`]);
  });

  it("bounds a schema document in depth and in values", () => {
    let deep: object = {};
    for (let i = 0; i < 30; i++) deep = { not: deep };
    expect(() => new SchemaResources(deep, "2020-12", LIMITS)).toThrow("maxDepth 20");
    const wide = { enum: Array.from({ length: 60 }, (_, i) => i) };
    expect(() => new SchemaResources(wide, "2020-12", LIMITS)).toThrow("maxValues 50");
  });
});

it.each([
  ["http://json-schema.org/draft-07/schema#", "draft-07"],
  ["https://json-schema.org/draft/2020-12/schema", "2020-12"],
  ["http://json-schema.org/draft-04/schema#", undefined],
  ["https://json-schema.org/draft/2020-12/schema/extra", undefined],
  [7, undefined],
])("knows the dialect of %s", (declared, dialect) => {
  expect(knownDialect(declared)).toBe(dialect);
});
