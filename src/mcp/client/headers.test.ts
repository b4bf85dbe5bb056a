import { describe, expect, it } from "vitest";
import { nameIn, paramHeaders, planHeaders } from "./headers.js";

const object = (properties: Record<string, unknown>) => ({ type: "object", properties });

describe("the name of a request", () => {
  it("the name of a request is what the request is about, where its method has such a parameter", () => {
    expect(nameIn("tools/call", { name: "sum", arguments: {} })).toBe("sum");
    expect(nameIn("resources/read", { uri: "test://é" })).toBe("test://é");
    expect(nameIn("tools/list", { name: "not this" })).toBeUndefined();
  });
});

describe("declared parameter headers", () => {
  it("declared parameter headers are mirrored from the exact place of the property, nested ones too", () => {
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

  it("declared parameter headers are left out when the value is absent, null or of another kind", () => {
    const plan = planHeaders(object({ on: { type: "boolean", "x-mcp-header": "On" } }));
    if (!plan.ok) throw new Error(plan.reason);
    expect(paramHeaders(plan.params, {})).toEqual({});
    expect(paramHeaders(plan.params, { on: null })).toEqual({});
    expect(paramHeaders(plan.params, { on: { a: 1 } })).toEqual({});
    expect(paramHeaders(plan.params, { on: false })).toEqual({ "mcp-param-On": "false" });
  });

  it("declared parameter headers do not read a value through a prototype", () => {
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
    ["a name that is not a string", object({ a: { type: "string", "x-mcp-header": 7 } })],
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
  ])("declared parameter headers on %s make the tool unusable", (_, schema) => {
    expect(planHeaders(schema)).toMatchObject({ ok: false });
  });

  it("declared parameter headers are no declarations inside data or as the name of a property", () => {
    expect(planHeaders(object({ "x-mcp-header": { type: "string" } }))).toEqual({ ok: true, params: [] });
    expect(planHeaders(object({ a: { const: { "x-mcp-header": "" } } }))).toEqual({ ok: true, params: [] });
    expect(planHeaders({ $defs: { "x-mcp-header": { type: "string" } } })).toEqual({ ok: true, params: [] });
  });

  it("declared parameter headers of a schema without end are refused, not followed", () => {
    let schema: object = { type: "string" };
    for (let i = 0; i < 30_000; i++) schema = { items: schema };
    expect(planHeaders(schema)).toMatchObject({ ok: false });
  });
});
