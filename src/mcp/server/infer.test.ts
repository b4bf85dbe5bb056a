// Types are checked by the compiler; this file fails to compile when one is wrong.

import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type { JsonObject, JsonValue } from "../index.js";
import { defineServer } from "./server.js";
import { type FromSchema, field, signature } from "./signature.js";
import { defineTool } from "./tool.js";
import type { HandlerResult, ToolResult } from "./types.js";

describe("the type of a value from its schema", () => {
  it("follows the common keywords", () => {
    expectTypeOf<FromSchema<{ type: "string" }>>().toEqualTypeOf<string>();
    expectTypeOf<FromSchema<{ type: "integer" }>>().toEqualTypeOf<number>();
    expectTypeOf<FromSchema<{ type: ["string", "null"] }>>().toEqualTypeOf<string | null>();
    expectTypeOf<FromSchema<{ enum: ["a", "b"] }>>().toEqualTypeOf<"a" | "b">();
    expectTypeOf<FromSchema<{ const: 5 }>>().toEqualTypeOf<5>();
    expectTypeOf<FromSchema<{ type: "array"; items: { type: "number" } }>>().toEqualTypeOf<number[]>();
    expectTypeOf<
      FromSchema<{ type: "array"; prefixItems: [{ type: "number" }, { type: "string" }]; items: false }>
    >().toEqualTypeOf<[number, string]>();
    expectTypeOf<FromSchema<{ anyOf: [{ type: "string" }, { type: "number" }] }>>().toEqualTypeOf<string | number>();
    expectTypeOf<FromSchema<{ type: "object"; additionalProperties: { type: "number" } }>>().toEqualTypeOf<{
      [name: string]: number;
    }>();
    expectTypeOf<
      FromSchema<{ type: "object"; properties: { a: { type: "string" }; b: { type: "number" } }; required: ["a"] }>
    >().toEqualTypeOf<{ a: string; b?: number }>();
    expectTypeOf<
      FromSchema<{ $defs: { id: { type: "string" } }; type: "object"; properties: { id: { $ref: "#/$defs/id" } } }>
    >().toEqualTypeOf<{ id?: string }>();
    expectTypeOf<
      FromSchema<{
        allOf: [{ properties: { a: { type: "string" } }; required: ["a"] }, { properties: { b: { type: "null" } } }];
      }>
    >().toExtend<{ a: string; b?: null }>();
    expectTypeOf<FromSchema<true>>().toEqualTypeOf<JsonValue>();
    expectTypeOf<FromSchema<false>>().toEqualTypeOf<never>();
    expectTypeOf<FromSchema<{ description: "anything" }>>().toEqualTypeOf<JsonValue>();
  });

  it("follows recursion", () => {
    type Tree = FromSchema<{
      type: "object";
      properties: { value: { type: "number" }; children: { type: "array"; items: { $ref: "#" } } };
      required: ["value"];
    }>;
    const tree: Tree = { value: 1, children: [{ value: 2 }] };
    expectTypeOf(tree.children?.[0]?.children?.[0]?.value).toEqualTypeOf<number | undefined>();
    expect(tree.value).toBe(1);
  });
});

describe("the arguments of a handler", () => {
  it("the arguments of a handler come from a JSON Schema written in place, without `as const` [U4]", () => {
    const tool = defineTool({
      name: "a",
      description: "",
      input: {
        type: "object",
        properties: { mode: { type: "string", enum: ["r", "w"] }, count: { type: "integer" } },
        required: ["mode"],
      },
      handler: (args) => {
        expectTypeOf(args).toEqualTypeOf<{ mode: "r" | "w"; count?: number }>();
        return "ok";
      },
    });
    expect(tool.definition.name).toBe("a");
  });

  it("the arguments of a handler come from a Standard Schema: what callers send, not what the library would make of it [U4]", () => {
    defineServer("x").tool("a", "", z.object({ path: z.string(), depth: z.int().default(3) }), (args, context) => {
      expectTypeOf(args).toEqualTypeOf<{ path: string; depth?: number | undefined }>();
      expectTypeOf(context.call).returns.resolves.toEqualTypeOf<ToolResult>();
      return args.path;
    });
  });

  it("the arguments of a handler come from a signature", () => {
    const sum = signature({
      name: "sum",
      description: "",
      inputs: {
        a: field.integer(),
        b: field.integer({ required: false }),
        kind: field.string({ enum: ["x", "y"], default: "x" }),
      },
      outputs: { total: field.float() },
    });
    defineServer("x").tool("sum", "", sum, (args) => {
      expectTypeOf(args).toEqualTypeOf<{ a: number; b?: number; kind?: "x" | "y" }>();
      return { structuredContent: { total: args.a + (args.b ?? 0) } };
    });
  });

  it("the arguments of a handler are plain JSON when the schema is not known to the compiler", () => {
    const schema: JsonObject = { type: "object" };
    defineServer("x").tool("a", "", schema, (args) => {
      expectTypeOf(args).toEqualTypeOf<JsonObject>();
      return undefined;
    });
  });
});

describe("the result of a handler", () => {
  it("the result of a handler is free without an output schema", () => {
    defineServer("x").tool("a", "", {}, (): HandlerResult => "text");
  });

  it("the result of a handler is the structured content where there is one", () => {
    const output = { type: "object", properties: { total: { type: "number" } }, required: ["total"] } as const;
    defineServer("x")
      .tool("good", "", {}, () => ({ structuredContent: { total: 1 } }), { output })
      .tool("failed", "", {}, () => ({ content: [], isError: true as const }), { output })
      // @ts-expect-error the total is a number
      .tool("bad", "", {}, () => ({ structuredContent: { total: "1" } }), { output })
      // @ts-expect-error text alone does not keep the promise of the output schema
      .tool("text", "", {}, () => "1", { output });
  });
});
