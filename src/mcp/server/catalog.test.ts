import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { Schema } from "../../schema/schema.js";
import { isJsonObject, type JsonObject, type JsonValue } from "../index.js";
import { openApi, openApiText } from "./catalog.js";
import { ToolRegistry } from "./registry.js";
import { defineServer } from "./server.js";
import { field, signature } from "./signature.js";
import { defineTool } from "./tool.js";

const analyzer = defineTool({
  name: "FinancialAnalyzer",
  description: "Analyzes stock data",
  input: signature({
    name: "FinancialAnalyzer",
    description: "",
    inputs: {
      ticker_symbol: field.string({ pattern: "^[A-Z]{1,5}$" }),
      period_days: field.integer({ minValue: 1, maxValue: 365 }),
    },
    outputs: { recommendation: field.string() },
  }),
  tags: ["financial", "analysis"],
  metadata: { category: "finance", version: "1.0.0", deprecated: false, author: "example" },
  handler: () => ({ structuredContent: { recommendation: "hold" } }),
});

const node = {
  $id: "https://example.com/tree",
  type: "object",
  properties: { left: { $ref: "#tree" }, right: { $ref: "https://example.com/tree#/$defs/a~1b" } },
  $defs: {
    "a/b": {
      $anchor: "tree",
      type: "object",
      properties: { $ref: { type: "string" }, next: { $ref: "#/$defs/a~1b" } },
    },
  },
} as const;
const tree = defineTool({
  name: "tree/walk",
  description: "References by anchor, id and pointer",
  input: node,
  metadata: { deprecated: true },
  handler: () => "",
});
const legacy = defineTool({
  name: "tree_walk",
  description: "Draft-07",
  input: {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "object",
    properties: { a: { $ref: "#/definitions/b" } },
    definitions: { b: { type: "string" } },
  },
  handler: () => "",
});

describe("a registry", () => {
  it("registers, gets, lists, finds by tag, removes [G1]", () => {
    const registry = new ToolRegistry().register(analyzer, tree);
    expect(registry.get("FinancialAnalyzer")).toBe(analyzer);
    expect(registry.get("constructor")).toBeUndefined();
    expect(registry.list()).toEqual([analyzer, tree]);
    expect(registry.byTag("financial")).toEqual([analyzer]);
    expect(() => registry.register(tree)).toThrow("a tool named `tree/walk` is registered already");
    expect(registry.remove("tree/walk")).toBe(true);
    expect(registry.remove("tree/walk")).toBe(false);
    expect(() => new ToolRegistry({ maxTools: 1 }).register(analyzer, tree)).toThrow("raise `maxTools`");
  });
});

describe("the catalog", () => {
  it("the catalog holds every tool with schemas, tags, metadata and examples, a version and a time [G3]", () => {
    const catalog = new ToolRegistry()
      .register(analyzer)
      .catalog({ version: "2.0.0", now: new Date("2024-05-17T00:00:00Z") });
    expect(catalog).toEqual({
      tools: [
        {
          ...analyzer.definition,
          tags: ["financial", "analysis"],
          metadata: { category: "finance", version: "1.0.0", deprecated: false, author: "example" },
          examples: [
            { ticker_symbol: "A", period_days: 92 },
            { ticker_symbol: "BC", period_days: 1 },
          ],
        },
      ],
      version: "2.0.0",
      generated_at: "2024-05-17T00:00:00.000Z",
    });
  });
  it("the catalog of a server carries the server's version", () => {
    expect(defineServer({ name: "s", version: "3.1.0" }).tool(analyzer).catalog({ examples: 0 })).toMatchObject({
      version: "3.1.0",
      tools: [{ examples: [] }],
    });
  });
});

describe("the OpenAPI document", () => {
  const document = openApi([analyzer, tree, legacy], {
    title: "Tools",
    version: "1.2.3",
    servers: ["https://gateway.example.com"],
  });

  it("the OpenAPI document is valid OpenAPI 3.1 by its published schema, as ajv and as our own validator read it [G3]", async () => {
    const { schema } = JSON.parse(
      readFileSync(new URL("../../schema/fixtures/openapi-3.1.json", import.meta.url), "utf8"),
    ) as {
      schema: JsonObject;
    };
    const theirs = new Ajv2020({ strict: false, logger: false, validateFormats: false }).compile(schema);
    expect(theirs(document), JSON.stringify(theirs.errors)).toBe(true);
    expect(await new Schema(schema).validate(document)).toEqual({ ok: true });
    expect((await new Schema(schema).validate({ ...document, paths: { "no-slash": {} } })).ok).toBe(false);
  });

  it("the OpenAPI document is the same when it is written in slices, and is not written when it would be too long", async () => {
    const options = { title: "Tools", version: "1.2.3", servers: ["https://gateway.example.com"] };
    const text = await openApiText([analyzer, tree, legacy], options, 1_000_000);
    expect(JSON.parse(text as string)).toEqual(document);
    expect(await openApiText([analyzer, tree, legacy], options, 1_000)).toBeUndefined();
  });

  it("the OpenAPI document has one path for each tool, with its own schemas and the error object", () => {
    expect(Object.keys(document.paths as JsonObject)).toEqual([
      "/tools/FinancialAnalyzer",
      "/tools/tree%2Fwalk",
      "/tools/tree_walk",
    ]);
    expect(at(document, "/paths/~1tools~1FinancialAnalyzer/post/requestBody/content/application~1json")).toEqual({
      schema: { $ref: "#/components/schemas/FinancialAnalyzer.input" },
      examples: {
        example1: { value: { ticker_symbol: "A", period_days: 92 } },
        example2: { value: { ticker_symbol: "BC", period_days: 1 } },
      },
    });
    expect(at(document, "/paths/~1tools~1FinancialAnalyzer/post/responses/400")).toEqual({
      $ref: "#/components/responses/Error400",
    });
    expect(at(document, "/components/responses/Error400/content/application~1json/schema/properties")).toEqual({
      error: { $ref: "#/components/schemas/Error" },
    });
    expect(at(document, "/components/schemas/Error/required")).toContain("trace_id");
    expect(at(document, "/paths/~1tools~1tree%2Fwalk/post/deprecated")).toBe(true);
    const keys = Object.keys(at(document, "/components/schemas") as JsonObject);
    expect(keys).toEqual([
      "ToolResult",
      "Error",
      "FinancialAnalyzer.input",
      "FinancialAnalyzer.output",
      "tree_walk.input",
      "tree_walk_2.input",
    ]);
  });

  it("every reference in it points at something in it", () => {
    const references: string[] = [];
    collect(document, references);
    expect(references.length).toBeGreaterThan(20);
    for (const reference of references)
      expect(at(document, decodeURIComponent(reference.slice(1))), reference).toBeDefined();
    expect(at(document, "/components/schemas/tree_walk.input/properties")).toEqual({
      left: { $ref: "#/components/schemas/tree_walk.input/$defs/a~1b" },
      right: { $ref: "#/components/schemas/tree_walk.input/$defs/a~1b" },
    });
    expect(at(document, "/components/schemas/tree_walk.input/$id")).toBeUndefined();
    expect(at(document, "/components/schemas/tree_walk.input/$defs/a~1b/properties/$ref")).toEqual({ type: "string" });
  });
});

function at(value: JsonValue, pointer: string): JsonValue | undefined {
  let found: JsonValue | undefined = value;
  for (const token of pointer.split("/").slice(1)) {
    const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
    found = isJsonObject(found) || Array.isArray(found) ? (found as JsonObject)[key] : undefined;
  }
  return found;
}

function collect(value: JsonValue, references: string[]): void {
  if (Array.isArray(value)) for (const item of value) collect(item, references);
  else if (isJsonObject(value)) {
    if (typeof value.$ref === "string") references.push(value.$ref);
    for (const child of Object.values(value)) collect(child, references);
  }
}
