import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { withJsonSchema } from "./standard.js";
import { defineTool } from "./tool.js";
import type { Tool } from "./types.js";

function tool(input: Parameters<typeof defineTool>[0]["input"]): Tool {
  return defineTool({ name: "t", description: "a tool", input, handler: () => undefined });
}

describe("a Standard Schema", () => {
  it("publishes its JSON Schema", () => {
    const { definition } = tool(z.object({ ticker: z.string().min(1).max(5), days: z.int().min(1).optional() }));
    expect(definition.inputSchema).toEqual({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      properties: {
        ticker: { type: "string", minLength: 1, maxLength: 5 },
        days: { type: "integer", minimum: 1, maximum: 9007199254740991 },
      },
      required: ["ticker"],
    });
  });

  it("a Standard Schema is checked first as JSON Schema, with its words, then by the library for what only it knows", async () => {
    const range = tool(
      z
        .object({ from: z.int(), to: z.int() })
        .refine(({ from, to }) => from <= to, { path: ["to"], message: "must not be before from" }),
    );
    expect(await range.validate({ from: 1, to: "2" })).toMatchObject({
      problems: [{ path: "/to", message: "must be an integer, not a string" }],
    });
    expect(await range.validate({ from: 3, to: 2 })).toEqual({
      ok: false,
      problems: [{ path: "/to", message: "must not be before from" }],
    });
    expect(range.validate({ from: 1, to: 2 })).toEqual({ ok: true });
  });

  it("a Standard Schema may check asynchronously", async () => {
    const known = tool(z.object({ id: z.string().refine(async (id) => id === "a", "is not known") }));
    expect(await known.validate({ id: "a" })).toEqual({ ok: true });
    expect(await known.validate({ id: "b" })).toEqual({
      ok: false,
      problems: [{ path: "/id", message: "is not known" }],
    });
  });

  it("a Standard Schema that throws has not agreed", async () => {
    const broken = tool(
      z.object({ id: z.string() }).refine(() => {
        throw new Error("database down");
      }),
    );
    expect(await broken.validate({ id: "a" })).toMatchObject({
      ok: false,
      problems: [{ message: expect.stringContaining("database down") }],
    });
  });

  it("a Standard Schema never fills defaults, drops keys or coerces: the handler gets what was sent", async () => {
    const seen: unknown[] = [];
    const plain = defineTool({
      name: "t",
      description: "",
      input: z.object({ n: z.coerce.number(), mode: z.string().default("fast") }),
      handler: (args) => {
        seen.push(args);
        return undefined;
      },
    });
    const args = { n: 1, extra: true };
    expect(await plain.validate(args)).toEqual({ ok: true });
    expect(await plain.validate({ n: "1" })).toMatchObject({ ok: false });
    await plain.run(args, {} as never);
    expect(seen).toEqual([{ n: 1, extra: true }]);
  });

  it.each([
    ["a transformation", z.object({ n: z.string().transform((text) => text.length) })],
    ["a codec", z.object({ n: z.stringbool() })],
    ["trimming", z.object({ name: z.string().trim() })],
    ["lower case", z.object({ name: z.string().toLowerCase() })],
    ["overwriting", z.object({ n: z.number().overwrite((n) => n + 1) })],
  ])("a Standard Schema with %s is refused when it is defined", (_, schema) => {
    expect(() => tool(schema)).toThrow(
      /tool `t`: the zod schema changes its input .* move the transformation into the handler/,
    );
  });

  it.each([
    ["dates", z.object({ d: z.date() }), /cannot be written as JSON Schema: Date cannot be represented/],
    ["text instead of an object", z.string(), /arguments are an object/],
  ])("a Standard Schema of %s is refused", (_, schema, message) => {
    expect(() => tool(schema)).toThrow(message);
  });

  it("unions of objects get the type that MCP asks for", async () => {
    const shape = tool(
      z.discriminatedUnion("kind", [
        z.object({ kind: z.literal("a") }),
        z.object({ kind: z.literal("b"), n: z.number() }),
      ]),
    );
    expect(shape.definition.inputSchema).toMatchObject({ type: "object", oneOf: [{}, {}] });
    expect(await shape.validate({ kind: "b", n: 1 })).toEqual({ ok: true });
    expect(await shape.validate({ kind: "b" })).toMatchObject({ problems: [{ path: "/n", message: "is required" }] });
  });
});

describe("a library without JSON Schema", () => {
  const schema = v.object({ name: v.pipe(v.string(), v.maxLength(3)) });

  it("a library without JSON Schema is refused with a way out", () => {
    expect(() => tool(schema)).toThrow(
      "tool `t`: the valibot schema offers no JSON Schema; wrap it with `toStandardJsonSchema` of `@valibot/to-json-schema`, or with `withJsonSchema(schema, { … })`",
    );
  });

  it("a library without JSON Schema works with a JSON Schema given beside it; both decide", async () => {
    const json = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const wrapped = tool(withJsonSchema(schema, json));
    expect(wrapped.definition.inputSchema).toEqual(json);
    expect(await wrapped.validate({ name: "abc" })).toEqual({ ok: true });
    expect(await wrapped.validate({})).toMatchObject({ problems: [{ path: "/name", message: "is required" }] });
    expect(await wrapped.validate({ name: "abcd" })).toMatchObject({
      problems: [{ path: "/name", message: /Invalid length/ }],
    });
  });

  it("a schema with a transformation is rejected, also with a JSON Schema given beside it", () => {
    const json = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const changing = v.object({ name: v.pipe(v.string(), v.toUpperCase()) });
    expect(() => tool(withJsonSchema(changing, json))).toThrow(/changes its input/);
  });
});
