import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { headerValue, paramHeaders, planHeaders, standardHeaders } from "./headers.js";

const object = (properties: Record<string, unknown>) => ({ type: "object", properties });

describe("header values", () => {
  it.each([
    ["us-west1", "us-west1"],
    ["us west 1", "us west 1"],
    ["Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="],
    [" padded ", "=?base64?IHBhZGRlZCA=?="],
    ["line1\nline2", "=?base64?bGluZTEKbGluZTI=?="],
    ["=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="],
    ["", "=?base64??="],
  ])("%j travels as %s", (value, header) => {
    expect(headerValue(value)).toBe(header);
  });

  it("any text is safe on the wire and comes back whole", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const header = headerValue(text);
        expect(header).toMatch(/^[\x20-\x7e]+$/);
        expect(header).toBe(header.trim());
        const encoded = /^=\?base64\?(.*)\?=$/.exec(header);
        const back = encoded ? Buffer.from(encoded[1] as string, "base64").toString("utf8") : header;
        expect(back).toBe(text.toWellFormed());
      }),
    );
  });
});

describe("standard headers", () => {
  it("name the revision, the method and what the request is about", () => {
    expect(standardHeaders("2026-07-28", "tools/call", { name: "sum", arguments: {} })).toEqual({
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "sum",
    });
    expect(standardHeaders("2026-07-28", "resources/read", { uri: "test://é" })).toMatchObject({
      "mcp-name": "=?base64?dGVzdDovL8Op?=",
    });
    expect(standardHeaders("2026-07-28", "tools/list", { name: "not this" })).not.toHaveProperty("mcp-name");
  });
});

describe("declared parameter headers", () => {
  it("are mirrored from the exact place of the property, nested ones too", () => {
    const plan = planHeaders(
      object({
        region: { type: "string", "x-mcp-header": "Region" },
        deep: object({ count: { type: "integer", "x-mcp-header": "Count" } }),
        plain: { type: "string" },
      }),
    );
    if (!plan.ok) throw new Error(plan.reason);
    expect(paramHeaders(plan.params, { region: "eu", deep: { count: -7 }, plain: "x" })).toEqual({
      "mcp-param-Region": "eu",
      "mcp-param-Count": "-7",
    });
  });

  it("are left out when the value is absent, null or of another kind", () => {
    const plan = planHeaders(object({ on: { type: "boolean", "x-mcp-header": "On" } }));
    if (!plan.ok) throw new Error(plan.reason);
    expect(paramHeaders(plan.params, {})).toEqual({});
    expect(paramHeaders(plan.params, { on: null })).toEqual({});
    expect(paramHeaders(plan.params, { on: { a: 1 } })).toEqual({});
    expect(paramHeaders(plan.params, { on: false })).toEqual({ "mcp-param-On": "false" });
  });

  it("do not read a value through a prototype", () => {
    const plan = planHeaders(object({ constructor: { type: "string", "x-mcp-header": "C" } }));
    if (!plan.ok) throw new Error(plan.reason);
    expect(paramHeaders(plan.params, {})).toEqual({});
  });

  it.each([
    ["an empty name", object({ a: { type: "string", "x-mcp-header": "" } })],
    ["a name with a space", object({ a: { type: "string", "x-mcp-header": "My Region" } })],
    ["a name with a colon", object({ a: { type: "string", "x-mcp-header": "A:B" } })],
    ["a name that is not ASCII", object({ a: { type: "string", "x-mcp-header": "Région" } })],
    ["a name with a line break", object({ a: { type: "string", "x-mcp-header": "A\r\nX: y" } })],
    ["a name that is no string", object({ a: { type: "string", "x-mcp-header": 7 } })],
    ["an object", object({ a: { type: "object", "x-mcp-header": "A" } })],
    ["an array", object({ a: { type: "array", "x-mcp-header": "A" } })],
    ["a number", object({ a: { type: "number", "x-mcp-header": "A" } })],
    ["null", object({ a: { type: "null", "x-mcp-header": "A" } })],
    ["no type", object({ a: { "x-mcp-header": "A" } })],
    [
      "the same name twice, whatever the case",
      object({ a: { type: "string", "x-mcp-header": "Same" }, b: { type: "string", "x-mcp-header": "sAME" } }),
    ],
    ["array items", object({ a: { type: "array", items: { type: "string", "x-mcp-header": "A" } } })],
    ["a composed schema", { anyOf: [object({ a: { type: "string", "x-mcp-header": "A" } })] }],
    ["a definition", { $defs: { d: { type: "string", "x-mcp-header": "A" } } }],
    ["the root", { type: "string", "x-mcp-header": "A" }],
  ])("on %s make the tool unusable", (_, schema) => {
    expect(planHeaders(schema)).toMatchObject({ ok: false });
  });

  it("are no declarations inside data or as the name of a property", () => {
    expect(planHeaders(object({ "x-mcp-header": { type: "string" } }))).toEqual({ ok: true, params: [] });
    expect(planHeaders(object({ a: { const: { "x-mcp-header": "" } } }))).toEqual({ ok: true, params: [] });
    expect(planHeaders({ $defs: { "x-mcp-header": { type: "string" } } })).toEqual({ ok: true, params: [] });
  });

  it("of a schema without end are refused, not followed", () => {
    let schema: object = { type: "string" };
    for (let i = 0; i < 30_000; i++) schema = { items: schema };
    expect(planHeaders(schema)).toMatchObject({ ok: false });
  });
});
