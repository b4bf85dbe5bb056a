import { describe, expect, it } from "vitest";
import { z } from "zod";
import { DefinitionError, SchemaError } from "../../schema/types.js";
import type { JsonObject } from "../index.js";
import { audio, failure, image, link, resource, structured, text } from "./content.js";
import { defineServer } from "./server.js";
import { compileDefinition, defineTool } from "./tool.js";
import type { CallContext, HandlerResult, ToolDefinition } from "./types.js";
import {
  allValid,
  anyValid,
  type Validator,
  validAt,
  validateArguments,
  validationFault,
  validWhen,
} from "./validators.js";

const context = {} as CallContext;
const returning = (result: HandlerResult) =>
  defineTool({ name: "t", description: "", input: {}, handler: () => result }).run({}, context);

describe("server_schema_generation [U11]", () => {
  const sum = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: {
      a: { type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 },
      b: { type: "integer", minimum: -9007199254740991, maximum: 9007199254740991 },
    },
    required: ["a", "b"],
  };

  it("tool() publishes the JSON Schema of its typed arguments by itself", async () => {
    const server = defineServer("math").tool(
      "sum",
      "Add two integers",
      z.object({ a: z.int(), b: z.int() }),
      ({ a, b }) => String(a + b),
    );
    expect(server.tools.get("sum")?.definition).toEqual({
      name: "sum",
      description: "Add two integers",
      inputSchema: sum,
    });
    expect(await server.tools.get("sum")?.run({ a: 2, b: 3 }, context)).toEqual({
      content: [{ type: "text", text: "5" }],
    });
  });

  it("what it publishes is what it enforces [U4]", async () => {
    const tool = defineTool({
      name: "sum",
      description: "",
      input: z.object({ a: z.int(), b: z.int() }),
      handler: () => "",
    });
    const published = compileDefinition(tool.definition);
    for (const args of [{ a: 1, b: 2 }, { a: 1 }, { a: "1", b: 2 }, { a: 1.5, b: 2 }, {}] as JsonObject[]) {
      expect((await tool.validate(args)).ok).toBe((await published.validate(args)).ok);
    }
  });

  it("an output schema is published and enforced too [U5]", async () => {
    const tool = defineTool({
      name: "sum",
      title: "Sum",
      description: "",
      input: { type: "object" },
      output: z.object({ total: z.number() }),
      annotations: { readOnlyHint: true },
      handler: () => ({ structuredContent: { total: 3 } }),
    });
    expect(tool.definition).toMatchObject({
      title: "Sum",
      outputSchema: { type: "object", required: ["total"] },
      annotations: { readOnlyHint: true },
    });
    expect(await tool.run({}, context)).toEqual({ content: [text('{"total":3}')], structuredContent: { total: 3 } });
    expect(await tool.validateOutput({ total: 3 })).toEqual({ ok: true });
    expect(await tool.validateOutput({ total: "3" })).toMatchObject({ ok: false, problems: [{ path: "/total" }] });
    expect(await tool.validateOutput(undefined)).toMatchObject({
      ok: false,
      problems: [{ message: "structured content is missing" }],
    });
  });
});

describe("a definition", () => {
  it.each(["", "a b", "tool!", "ü", "x".repeat(129)])("a definition cannot be named %j", (name) => {
    expect(() => defineTool({ name, description: "", input: {}, handler: () => "" })).toThrow(
      /use 1 to 128 of the characters A-Z a-z 0-9 _ - \. \//,
    );
  });
  it.each(["a", "core.fs.read", "GET/users", "snake_case-1", "x".repeat(128)])(
    "a definition can be named %s",
    (name) => {
      expect(defineTool({ name, description: "", input: {}, handler: () => "" }).definition.name).toBe(name);
    },
  );
  it.each([
    [
      "a type that is not an object",
      { type: "string" },
      /arguments are an object, so the schema's type must be "object"/,
    ],
    ["a broken schema", { type: "object", properties: { a: { type: "text" } } }, /at \/properties\/a\/type/],
    ["no schema", "string", /must be a Standard Schema, a signature or a JSON Schema object/],
  ])("a definition with %s is refused", (_, input, message) => {
    expect(() => defineTool({ name: "t", description: "", input: input as JsonObject, handler: () => "" })).toThrow(
      DefinitionError,
    );
    expect(() => defineTool({ name: "t", description: "", input: input as JsonObject, handler: () => "" })).toThrow(
      message,
    );
  });
  it("a definition without a handler or a description is refused", () => {
    expect(() => defineTool({ name: "t", description: "", input: {}, handler: undefined as never })).toThrow(
      "the handler must be a function",
    );
    expect(() => defineTool({ name: "t", description: 5 as never, input: {}, handler: () => "" })).toThrow(
      "the description must be text",
    );
  });
  it("a definition cannot be changed after it was hashed", () => {
    const schema = { type: "object", properties: { a: { type: "string" } } };
    const { definition, definitionHash } = defineTool({ name: "t", description: "", input: schema, handler: () => "" });
    schema.properties.a.type = "number";
    expect(definition.inputSchema).toEqual({ type: "object", properties: { a: { type: "string" } } });
    expect(() => Object.assign(definition.inputSchema, { type: "array" })).toThrow(TypeError);
    expect(definitionHash).toMatch(/^[0-9a-f]{64}$/);
  });
  it("a definition has a hash that depends on every field and on nothing else", () => {
    const hash = (definition: object) => compileDefinition(definition as ToolDefinition).definitionHash;
    const base = { name: "t", description: "d", inputSchema: { type: "object", properties: { a: {}, b: {} } } };
    const reordered = { inputSchema: { properties: { b: {}, a: {} }, type: "object" }, description: "d", name: "t" };
    expect(hash(reordered)).toBe(hash(base));
    expect(hash(base)).toBe("5e2624964983dcbb92599c921f110e8f00e1f09b6aef5f9146241b1f6bb2c2f5");
    expect(hash({ ...base, description: "D" })).not.toBe(hash(base));
    expect(hash({ ...base, unknownField: 1 })).not.toBe(hash(base));
  });
  it("a definition of another author is compiled as it is, or rejected with the place", () => {
    expect(() => compileDefinition({ name: "x", inputSchema: { $ref: "https://evil.example" } })).toThrow(SchemaError);
    let deep: JsonObject = {};
    for (let i = 0; i < 3_000; i++) deep = { a: deep };
    expect(() => compileDefinition({ name: "x", inputSchema: {}, _meta: deep })).toThrow(
      /nested deeper than 200 levels/,
    );
    expect(compileDefinition({ name: "any name", inputSchema: true }).definition.name).toBe("any name");
  });
});

describe("what a handler may return [U5]", () => {
  it.each<[string, HandlerResult, unknown]>([
    ["text", "hi", { content: [text("hi")] }],
    ["nothing", undefined, { content: [] }],
    ["a block", image("AAAA", "image/png"), { content: [{ type: "image", data: "AAAA", mimeType: "image/png" }] }],
    [
      "blocks",
      [text("a"), audio(new Uint8Array([1, 2, 3]), "audio/wav")],
      { content: [text("a"), { type: "audio", data: "AQID", mimeType: "audio/wav" }] },
    ],
    [
      "a resource",
      resource("file:///a", "x", "text/plain"),
      { content: [{ type: "resource", resource: { uri: "file:///a", mimeType: "text/plain", text: "x" } }] },
    ],
    [
      "bytes",
      resource("file:///a", new Uint8Array([255])),
      { content: [{ type: "resource", resource: { uri: "file:///a", blob: "/w==" } }] },
    ],
    [
      "a link",
      link("file:///a", "a", { size: 3 }),
      { content: [{ type: "resource_link", uri: "file:///a", name: "a", size: 3 }] },
    ],
    [
      "structured content",
      { structuredContent: { a: 1 } },
      { content: [text('{"a":1}')], structuredContent: { a: 1 } },
    ],
    ["structured content, by name", structured([1, 2]), { content: [text("[1,2]")], structuredContent: [1, 2] }],
    ["a failure", failure("no such file"), { content: [text("no such file")], isError: true }],
    ["a whole result", { content: [], _meta: { a: 1 }, extra: 2 }, { content: [], _meta: { a: 1 }, extra: 2 }],
  ])("%s", async (_, returned, result) => {
    expect(await returning(returned)).toEqual(result);
  });
  it("anything else is a mistake of the tool", async () => {
    await expect(returning({ total: 3 } as never)).rejects.toThrow(
      "tool `t`: the handler returned neither text, content blocks",
    );
    await expect(returning(null as never)).rejects.toThrow(DefinitionError);
  });
  it.each([
    ["NaN", { structuredContent: { b: Number.NaN } }, /`b` is NaN, which has no JSON form/],
    ["a hidden NaN", { structuredContent: { b: { toJSON: () => 1 / 0 } } }, /`b` is Infinity/],
    ["a function", { structuredContent: { b: () => 1 } }, /`b` is of type function/],
    ["a hole", { structuredContent: { b: [undefined] } }, /`0` is of type undefined/],
    ["a text block without text", { content: [{ type: "text" }] }, /content block 0 needs `text` as a string/],
    ["an image without its type", [{ type: "image", data: "" }], /block 0 needs `mimeType`/],
    ["a resource without contents", [{ type: "resource", resource: { uri: "a:b" } }], /block 0 needs `blob`/],
    ["a block of no type", [{ type: "video", data: "" }], /block 0 must have a `type`/],
    ["isError that is not a boolean", { content: [], isError: "yes" }, /`isError` must be true or false/],
    ["200 levels", { structuredContent: JSON.parse(`${"[".repeat(200)}${"]".repeat(200)}`) }, /nested deeper than 126/],
  ])("%s cannot be sent, and is not", async (_name, result, message) => {
    const error = await returning(result as HandlerResult).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ type: "OutputInvalid" });
    expect((error as Error).message).toMatch(message);
  });

  it("what a handler may return [U5] is checked in the form in which it is sent [U5]", async () => {
    const when = new Date(0);
    const sent = await returning({ structuredContent: { when, gone: undefined } as never });
    expect(sent).toEqual({
      content: [text('{"when":"1970-01-01T00:00:00.000Z"}')],
      structuredContent: { when: "1970-01-01T00:00:00.000Z" },
    });
    expect(Object.keys(sent.structuredContent as object)).toEqual(["when"]);
    const plain = { content: [text("a")], structuredContent: { a: [1, null, { b: "c" }] } };
    expect(await returning(plain)).toBe(plain);
  });

  it("what a handler throws goes to its caller", async () => {
    const tool = defineTool({
      name: "t",
      description: "",
      input: {},
      handler: () => Promise.reject(new Error("boom")),
    });
    await expect(tool.run({}, context)).rejects.toThrow("boom");
  });
});

describe("validators of an author's own", () => {
  const input = {
    type: "object",
    properties: { from: { type: "integer" }, to: { type: "integer" }, unit: { type: "string" } },
    required: ["from"],
  } as const;
  type Args = { from: number; to?: number; unit?: string };
  const make = (...validators: Validator<Args>[]) =>
    defineTool({ name: "t", description: "", input, validators, handler: () => "" });

  it("validators of an author run after the schema, and accept by returning nothing", async () => {
    let ran = 0;
    const tool = make(() => void ran++);
    expect(await tool.validate({ from: "x" })).toMatchObject({ ok: false });
    expect(ran).toBe(0);
    expect(tool.validate({ from: 1 })).toEqual({ ok: true });
    expect(ran).toBe(1);
  });
  it("validators of an author compose [G7]", async () => {
    const ordered = (args: Args) =>
      args.to === undefined || args.from <= args.to ? undefined : "from must not be after to";
    const even = (value: number) =>
      value % 2 === 0 ? true : { path: "", message: "must be even", suggestion: "Add 1" };
    const tool = make(
      allValid(ordered, validAt("from", even)),
      validWhen<Args>(
        (args) => args.unit !== undefined,
        anyValid(
          (args) => (args.unit === "day" ? true : "only days"),
          (args) => (args.unit === "hour" ? true : "only hours"),
        ),
      ),
    );
    expect(await tool.validate({ from: 3, to: 1 })).toEqual({
      ok: false,
      problems: [
        { path: "", message: "from must not be after to" },
        { path: "/from", message: "must be even", suggestion: "Add 1" },
      ],
    });
    expect(await tool.validate({ from: 2, unit: "hour" })).toEqual({ ok: true });
    expect(await tool.validate({ from: 2, unit: "year" })).toEqual({
      ok: false,
      problems: [{ path: "", message: "only days" }],
    });
  });
  it("validators of an author that throw, fail or never answer reject [G5]", async () => {
    const throwing = make(() => {
      throw new Error("oops");
    });
    expect(await throwing.validate({ from: 1 })).toEqual({
      ok: false,
      problems: [{ path: "", message: "could not be checked: oops" }],
    });
    expect(await make(async () => Promise.reject(new Error("later"))).validate({ from: 1 })).toMatchObject({
      ok: false,
    });
    const endless = defineTool({
      name: "t",
      description: "",
      input,
      validationTimeoutMs: 50,
      validators: [() => new Promise<void>(() => {})],
      handler: () => "",
    });
    expect(await endless.validate({ from: 1 })).toEqual({
      ok: false,
      problems: [{ path: "", message: "could not be checked within 50 ms" }],
    });
  });
  it("validators of an author share one time limit with the patterns of the schema", async () => {
    const slow = defineTool({
      name: "t",
      description: "",
      input: { type: "object", properties: { text: { type: "string", pattern: "^(a+)+$" } } },
      validationTimeoutMs: 100,
      handler: () => "",
    });
    expect(await slow.validate({ text: `${"a".repeat(60)}!` })).toMatchObject({
      ok: false,
      problems: [{ message: expect.stringContaining("could not be checked within 100 ms") }],
    });
  });
  it("validators of an author receive a copy: what runs is what was hashed [G7]", async () => {
    const args = { from: 1 };
    await make((given) => void (given.from = 99)).validate(args);
    expect(args).toEqual({ from: 1 });
  });
});

describe("what a caller is told", () => {
  const tool = defineTool({
    name: "analyze",
    description: "",
    input: {
      type: "object",
      properties: {
        ticker_symbol: { type: "string", maxLength: 5 },
        deep: { type: "object", properties: { days: { type: "integer" } } },
      },
      required: ["ticker_symbol"],
    },
    handler: () => "",
  });
  it("tools/validate answers with everything that is wrong [G2]", async () => {
    expect(await validateArguments(tool, { ticker_symbol: "A" })).toEqual({
      tool: "analyze",
      valid: true,
      problems: [],
    });
    expect(await validateArguments(tool, { ticker_symbol: "TOOLONG" })).toEqual({
      tool: "analyze",
      valid: false,
      problems: [
        {
          path: "/ticker_symbol",
          message: "must have at most 5 characters, not 7",
          expected: "at most 5 characters",
          suggestion: "Length must be at most 5 characters",
        },
      ],
    });
  });
  it("a call that does not fit becomes one error object with all the problems", async () => {
    const validation = await tool.validate({ deep: { days: "3" } });
    if (validation.ok) throw new Error("must not fit");
    const fault = validationFault("analyze", validation);
    expect(fault.type).toBe("ValidationError");
    expect(fault.message).toBe("`ticker_symbol` is required (and 1 more)");
    expect(fault.detail).toMatchObject({
      field: "ticker_symbol",
      suggestions: ["Add `ticker_symbol` (a string, at most 5 characters)", "Send the number without quotes"],
      extra: { tool_name: "analyze", problems: [{ path: "/ticker_symbol" }, { path: "/deep/days" }] },
    });
  });
});
