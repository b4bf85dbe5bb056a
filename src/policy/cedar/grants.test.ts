import { describe, expect, it } from "vitest";
import type { JsonObject } from "../../mcp/index.js";
import { Schema } from "../../mcp/server/index.js";
import { grantPolicy } from "./grants.js";
import { loadPolicy } from "./load.js";

const inputSchema = {
  type: "object",
  properties: {
    path: { type: "string" },
    mode: { type: "string", enum: ["r", "w"] },
    count: { type: "integer" },
    ratio: { type: "number" },
    deep: { type: "boolean" },
    tags: { type: "array", items: { type: "string" } },
    note: { type: ["string", "null"] },
    "odd name": { type: "string" },
    where: { type: "object", properties: { x: { type: "integer" } }, additionalProperties: false },
  },
  required: ["path"],
  additionalProperties: false,
};
const tools = [{ name: "t.do", server: "t", inputSchema, tags: [], readOnly: false }];

const decides = (schema: unknown, args: JsonObject): string => {
  const { text } = grantPolicy([{ app: "local", agent: "a", tool: "t.do", arguments: schema }], tools);
  const policy = loadPolicy([{ file: "p.cedar", text }], tools);
  return policy.decide({
    app: "local",
    agent: "a",
    scope: [],
    action: "t.do",
    resource: { type: "Tool", id: "t.do", server: "t", tags: [], readOnly: false },
    arguments: args,
    transport: "http",
    approvedRules: [],
  }).effect;
};

/** Every combination of a few values at a time. */
const SAMPLES: JsonObject[] = ["/srv/a", "/etc/x", ""].flatMap((path) =>
  [
    {},
    { mode: "r" },
    { mode: "w" },
    { count: 3 },
    { count: 30 },
    { ratio: 0.5 },
    { ratio: 7 },
    { deep: true },
    { deep: false },
    { tags: ["a"] },
    { tags: ["a", "z"] },
    { tags: [] },
    { note: null },
    { note: "x" },
    { "odd name": "*" },
    { where: {} },
    { where: { x: 1 } },
    { where: { x: 9 } },
    { mode: "r", count: 3, deep: true },
  ].map((more): JsonObject => ({ path, ...(more as JsonObject) })),
);

const SAID = {
  "one value": { properties: { mode: { const: "r" } } },
  "one of several": { properties: { path: { enum: ["/srv/a", ""] } } },
  "a range": { properties: { count: { minimum: 2, maximum: 10 } } },
  "a range of numbers": { properties: { ratio: { exclusiveMinimum: 0.25, exclusiveMaximum: 7 } } },
  "must be there": { required: ["mode"] },
  "must not be there": { properties: { count: false, deep: false } },
  "these and no others": { properties: { path: true, mode: true }, additionalProperties: false },
  "begins with": { properties: { path: { pattern: "^/srv/" } } },
  "is, as a pattern": { properties: { path: { pattern: "^/srv/a$" } } },
  "not empty": { properties: { path: { minLength: 1 } } },
  "not this": { properties: { path: { not: { const: "" } } } },
  "a flag": { properties: { deep: { const: true } }, required: ["deep"] },
  elements: { properties: { tags: { items: { enum: ["a", "b"] } } } },
  "an odd name": { properties: { "odd name": { const: "x" } } },
  "inside an object": { properties: { where: { properties: { x: { maximum: 5 } }, required: ["x"] } } },
  either: {
    anyOf: [{ properties: { mode: { const: "r" } }, required: ["mode"] }, { properties: { path: { const: "" } } }],
  },
  both: { allOf: [{ properties: { mode: { const: "r" } } }, { properties: { count: { minimum: 5 } } }] },
  nothing: false,
  "what the tool says anyway": { type: "object", title: "x", properties: { path: { type: "string" } } },
};

describe("a policy made of grants", () => {
  it.each(Object.entries(SAID))("says exactly: %s", (_name, schema) => {
    const judge = new Schema(schema as ConstructorParameters<typeof Schema>[0]);
    for (const args of SAMPLES) {
      const fits = judge.validateNow(args)?.ok === true;
      expect({ args, effect: decides(schema, args) }).toEqual({ args, effect: fits ? "permit" : "deny" });
    }
  });

  it.each([
    { properties: { path: { pattern: "^/srv/[a-z]+$" } } },
    { properties: { path: { minLength: 3 } } },
    { properties: { path: { format: "uri" } } },
    { properties: { note: { type: "string" } } },
    { properties: { count: { multipleOf: 2 } } },
    { properties: { ratio: { type: "integer" } } },
    { properties: { ratio: { not: { const: 0.123456 } } } },
    { $ref: "#/$defs/x", $defs: { x: true } },
    { maxProperties: 1 },
    { not: { required: ["mode"] } },
    { patternProperties: { "^m": false } },
  ])("permits nothing where Cedar has no words for it: %j", (schema) => {
    const grant = { app: "local", agent: "a", tool: "t.do", arguments: schema };
    expect(grantPolicy([grant], tools).unsaid).toEqual([grant]);
    for (const args of SAMPLES) expect(decides(schema, args)).toBe("deny");
  });

  it("says nothing about names that an open tool might take", () => {
    const open = [{ ...(tools[0] as (typeof tools)[0]), inputSchema: { ...inputSchema, additionalProperties: true } }];
    const schema = { properties: { path: true }, additionalProperties: false };
    expect(grantPolicy([{ app: "local", agent: "a", tool: "t.do", arguments: schema }], open).unsaid).toHaveLength(1);
  });

  it("leaves the condition to another check when told to", () => {
    const grant = { app: "local", agent: "a", tool: "t.do", arguments: { maxProperties: 1 } };
    const { text } = grantPolicy([grant], tools, { argumentsElsewhere: true });
    expect(text).toContain('permit (\n  principal == Agent::"local/a",\n  action == Action::"t.do",');
  });

  it("writes one rule for agents that hold the same grant, and for no other agent", () => {
    const grants = Array.from({ length: 450 }, (_, i) => ({ app: "local", agent: `a${i}`, tool: "t.do" }));
    const { text } = grantPolicy(grants, tools);
    const policy = loadPolicy([{ file: "p.cedar", text }], tools);
    expect(policy.rules).toHaveLength(3);
    const resource = { type: "Tool" as const, id: "t.do", server: "t", tags: [], readOnly: false };
    const ask = (app: string, agent: string): string =>
      policy.decide({
        app,
        agent,
        scope: [],
        action: "t.do",
        resource,
        arguments: { path: "" },
        transport: "http",
        approvedRules: [],
      }).effect;
    expect([ask("local", "a0"), ask("local", "a449"), ask("local", "a450"), ask("other", "a0")]).toEqual([
      "permit",
      "permit",
      "deny",
      "deny",
    ]);
    const shown = { app: "local", scope: [], action: "t.do", resource, transport: "http" };
    expect(policy.outlook({ ...shown, agent: "a7" })).not.toBe("never");
    expect(policy.outlook({ ...shown, agent: "b" })).toBe("never");
  });

  it("permits nothing at all when nothing is granted, and cannot be broken out of by a name", () => {
    expect(loadPolicy([{ file: "p.cedar", text: grantPolicy([], tools).text }], tools).rules).toHaveLength(1);
    const grant = { app: "local", agent: 'a");\npermit (principal, action, resource);//', tool: "t.do" };
    const { text } = grantPolicy([grant], tools, { header: ["from x\npermit (principal, action, resource);"] });
    expect(loadPolicy([{ file: "p.cedar", text }], tools).rules).toHaveLength(1);
  });
});
