import { describe, expect, it } from "vitest";
import {
  BOTTOM,
  type Capability,
  type CapabilitySet,
  canSubstitute,
  capabilitiesOf,
  compareAuthority,
  compareSubstitutability,
  effective,
  hasAtMostAuthority,
} from "../capability.js";
import { ajvValidator } from "../fixtures/ajv.js";
import type { SchemaValue } from "../inclusion/document.js";
import { toSchema, typeOf } from "../inclusion/type.js";

const validator = ajvValidator();
const fileManager = {
  tools: [
    {
      name: "readFile",
      inputSchema: {
        type: "object",
        properties: { path: { type: "string" }, encoding: { type: "string", enum: ["utf8", "base64"] } },
        required: ["path"],
      },
      outputSchema: { type: "object", properties: { content: { type: "string" } }, required: ["content"] },
    },
    {
      name: "writeFile",
      inputSchema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
    },
  ],
};

function narrowed(tool: string, inputSchema: SchemaValue, outputSchema: SchemaValue = true): CapabilitySet {
  return capabilitiesOf({ tools: [{ name: tool, inputSchema, outputSchema }] });
}

describe("capability sets", () => {
  it("capability sets are read from a manifest, a tool without output schema answering anything", () => {
    const caps = capabilitiesOf(fileManager) as ReadonlyMap<string, Capability>;
    expect([...caps.keys()]).toEqual(["readFile", "writeFile"]);
    expect(caps.get("writeFile")?.result).toEqual({ is: "schema", schema: true });
  });

  it.each([
    [{}, "a manifest must be an object with a list `tools`, as tools/list answers"],
    [{ tools: [{ name: "a" }, { name: "a" }] }, "the manifest lists the tool `a` twice; names must be unique"],
    [{ tools: [{ description: "x" }] }, "tools[0] of the manifest has no name"],
    [{ tools: [{ name: "a", inputSchema: "x" }] }, "`inputSchema` of the tool `a` is not a schema: expected an object"],
  ])("capability sets refuse %j", (manifest, message) => {
    expect(() => capabilitiesOf(manifest)).toThrow(message);
  });

  it("capability sets never grow by delegation [L4]", () => {
    const scope = narrowed("readFile", { type: "object", properties: { path: { pattern: "^/tmp/" } } });
    const granted = effective(capabilitiesOf(fileManager), scope, { validator });
    expect(hasAtMostAuthority(granted, scope, { validator })).toBe(true);
    expect(hasAtMostAuthority(granted, capabilitiesOf(fileManager), { validator })).toBe(true);
    expect([...(granted as ReadonlyMap<string, Capability>).keys()]).toEqual(["readFile"]);
  });

  it("capability sets compare by authority: fewer arguments, less authority [L4]", () => {
    const any = narrowed("t", { type: "object" });
    const few = narrowed("t", { type: "object", maxProperties: 0 });
    expect(compareAuthority(few, any, { validator })).toEqual({ answer: "yes" });
    expect(compareAuthority(any, few, { validator })).toMatchObject({ answer: "no", tool: "t", part: "arguments" });
    expect(compareAuthority(any, BOTTOM, { validator })).toMatchObject({ answer: "no", tool: "t", part: "name" });
  });

  it("capability sets compare by substitutability the other way round in the arguments", () => {
    const any = narrowed("t", { type: "object" }, { type: "string" });
    const few = narrowed("t", { type: "object", maxProperties: 0 }, { type: ["string", "null"] });
    expect(canSubstitute(any, few, { validator })).toBe(true);
    expect(compareSubstitutability(few, any, { validator })).toMatchObject({ answer: "no", part: "arguments" });
  });

  it("capability sets treat what cannot be decided as no [L4]", () => {
    const backReference = narrowed("t", { type: "object", propertyNames: { pattern: "(a)\\1" } });
    const other = narrowed("t", { type: "object", propertyNames: { pattern: "(aa)\\1" } });
    expect(compareAuthority(other, backReference).answer).toBe("unknown");
    expect(hasAtMostAuthority(other, backReference)).toBe(false);
  });

  it("capability sets write an intersection of schemas with references as one schema that means the same", () => {
    const list = { $ref: "#/$defs/n", $defs: { n: { type: "object", properties: { next: { $ref: "#" } } } } };
    const both = { is: "all", of: [typeOf(list), typeOf({ maxProperties: 1 })] } as const;
    const schema = toSchema(both) as SchemaValue;
    expect(schema).toMatchObject({ allOf: [{ $ref: "#/allOf/0/$defs/n" }, { maxProperties: 1 }] });
    const check = validator(schema);
    expect([check({ next: { next: {} } }), check({ next: 1 }), check({ a: 1, b: 1 })]).toEqual([true, false, false]);
  });
});
