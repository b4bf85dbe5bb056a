import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ajvValidator } from "../fixtures/ajv.js";
import { schemaOf, value } from "../fixtures/schemas.js";
import { remembering } from "../fixtures/triples.js";
import type { JsonSchema } from "../inclusion/document.js";
import { acceptsValue, toSchema, typeOf } from "../inclusion/type.js";
import { canSubstitute, compareAuthority, compareSubstitutability, hasAtMostAuthority } from "./order.js";
import { BOTTOM, type Capability, type CapabilitySet, capabilitiesOf, effective, join, meet, TOP } from "./set.js";

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

function narrowed(tool: string, inputSchema: JsonSchema, outputSchema: JsonSchema = true): CapabilitySet {
  return capabilitiesOf({ tools: [{ name: tool, inputSchema, outputSchema }] });
}

describe("capability sets", () => {
  it("are read from a manifest, a tool without output schema answering anything", () => {
    const caps = capabilitiesOf(fileManager) as ReadonlyMap<string, Capability>;
    expect([...caps.keys()]).toEqual(["readFile", "writeFile"]);
    expect(caps.get("writeFile")?.result).toEqual({ is: "schema", schema: true });
  });

  it.each([
    [{}, "a manifest must be an object with a list `tools`, as tools/list answers"],
    [{ tools: [{ name: "a" }, { name: "a" }] }, "the manifest lists the tool `a` twice; names must be unique"],
    [{ tools: [{ description: "x" }] }, "tools[0] of the manifest has no name"],
    [{ tools: [{ name: "a", inputSchema: "x" }] }, "`inputSchema` of the tool `a` is no schema; it must be an object"],
  ])("refuse %j", (manifest, message) => {
    expect(() => capabilitiesOf(manifest)).toThrow(message);
  });

  it("never grow by delegation", () => {
    const scope = narrowed("readFile", { type: "object", properties: { path: { pattern: "^/tmp/" } } });
    const granted = effective(capabilitiesOf(fileManager), scope, { validator });
    expect(hasAtMostAuthority(granted, scope, { validator })).toBe(true);
    expect(hasAtMostAuthority(granted, capabilitiesOf(fileManager), { validator })).toBe(true);
    expect([...(granted as ReadonlyMap<string, Capability>).keys()]).toEqual(["readFile"]);
  });

  it("compare by authority: fewer arguments, less authority", () => {
    const any = narrowed("t", { type: "object" });
    const few = narrowed("t", { type: "object", maxProperties: 0 });
    expect(compareAuthority(few, any, { validator })).toEqual({ answer: "yes" });
    expect(compareAuthority(any, few, { validator })).toMatchObject({ answer: "no", tool: "t", part: "arguments" });
    expect(compareAuthority(any, BOTTOM, { validator })).toMatchObject({ answer: "no", tool: "t", part: "name" });
  });

  it("compare by substitutability the other way round in the arguments", () => {
    const any = narrowed("t", { type: "object" }, { type: "string" });
    const few = narrowed("t", { type: "object", maxProperties: 0 }, { type: ["string", "null"] });
    expect(canSubstitute(any, few, { validator })).toBe(true);
    expect(compareSubstitutability(few, any, { validator })).toMatchObject({ answer: "no", part: "arguments" });
  });

  it("treat what cannot be decided as no", () => {
    const backReference = narrowed("t", { type: "object", propertyNames: { pattern: "(a)\\1" } });
    const other = narrowed("t", { type: "object", propertyNames: { pattern: "(aa)\\1" } });
    expect(compareAuthority(other, backReference).answer).toBe("unknown");
    expect(hasAtMostAuthority(other, backReference)).toBe(false);
  });

  it("write an intersection of schemas with references as one schema that means the same", () => {
    const list = { $ref: "#/$defs/n", $defs: { n: { type: "object", properties: { next: { $ref: "#" } } } } };
    const both = { is: "all", of: [typeOf(list), typeOf({ maxProperties: 1 })] } as const;
    const schema = toSchema(both) as JsonSchema;
    expect(schema).toMatchObject({ allOf: [{ $ref: "#/allOf/0/$defs/n" }, { maxProperties: 1 }] });
    const check = validator(schema);
    expect([check({ next: { next: {} } }), check({ next: 1 }), check({ a: 1, b: 1 })]).toEqual([true, false, false]);
  });
});

const names = ["t", "u"] as const;
const capability = fc
  .tuple(schemaOf("2020-12"), schemaOf("2020-12"))
  .map(([inputSchema, outputSchema]) => ({ inputSchema, outputSchema }));
const capabilitySet: fc.Arbitrary<CapabilitySet> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc
      .dictionary(fc.constantFrom(...names), capability, { noNullPrototype: true })
      .map((tools) =>
        capabilitiesOf({ tools: Object.entries(tools).map(([name, schemas]) => ({ name, ...schemas })) }),
      ),
  },
  { weight: 1, arbitrary: fc.constantFrom<CapabilitySet>(TOP, BOTTOM) },
);

/** Which of some calls and answers a set permits: what two sets must agree on to be the same. */
function permits(
  set: CapabilitySet,
  values: readonly unknown[],
  check = remembering(validator),
): (boolean | undefined)[] {
  const one = (schema: JsonSchema, v: unknown): boolean => check(schema)(v);
  return names.flatMap((name) =>
    values.flatMap((v) => {
      if (set === "all") return [true, true];
      const held = set.get(name);
      return held === undefined
        ? [false, false]
        : [acceptsValue(held.arguments, v, one), acceptsValue(held.result, v, one)];
    }),
  );
}

describe("lattice laws, judged by the values that are accepted", () => {
  const three = fc.tuple(capabilitySet, capabilitySet, capabilitySet, fc.array(value, { minLength: 6, maxLength: 6 }));
  // No validator: simplification must be right by proof alone.
  const laws: Record<
    string,
    (a: CapabilitySet, b: CapabilitySet, c: CapabilitySet) => readonly [CapabilitySet, CapabilitySet]
  > = {
    "meet is idempotent": (a) => [meet(a, a), a],
    "join is idempotent": (a) => [join(a, a), a],
    "meet is commutative": (a, b) => [meet(a, b), meet(b, a)],
    "join is commutative": (a, b) => [join(a, b), join(b, a)],
    "meet is associative": (a, b, c) => [meet(meet(a, b), c), meet(a, meet(b, c))],
    "join is associative": (a, b, c) => [join(join(a, b), c), join(a, join(b, c))],
    "meet absorbs join": (a, b) => [meet(a, join(a, b)), a],
    "join absorbs meet": (a, b) => [join(a, meet(a, b)), a],
    "top is neutral for meet": (a) => [meet(a, TOP), a],
    "bottom is neutral for join": (a) => [join(a, BOTTOM), a],
    "top absorbs join": (a) => [join(a, TOP), TOP],
    "bottom absorbs meet": (a) => [meet(a, BOTTOM), BOTTOM],
  };

  it.each(Object.keys(laws))("%s", (name) => {
    fc.assert(
      fc.property(three, ([a, b, c, values]) => {
        const [left, right] = laws[name]?.(a, b, c) ?? [a, b];
        expect(permits(left, values)).toEqual(permits(right, values));
      }),
      { numRuns: 25 },
    );
  });

  it("meet permits exactly what both permit, and join what either permits", () => {
    fc.assert(
      fc.property(three, ([a, b, , values]) => {
        const [inA, inB] = [permits(a, values), permits(b, values)];
        expect(permits(meet(a, b), values)).toEqual(inA.map((yes, i) => yes === true && inB[i] === true));
        expect(permits(join(a, b), values)).toEqual(inA.map((yes, i) => yes === true || inB[i] === true));
      }),
      { numRuns: 40 },
    );
  });

  it("meet is monotone: less authority stays less", () => {
    fc.assert(
      fc.property(three, ([a, b, c, values]) => {
        const smaller = meet(a, b);
        const [left, right] = [permits(meet(smaller, c), values), permits(meet(a, c), values)];
        for (const [i, yes] of left.entries()) if (yes === true) expect(right[i]).toBe(true);
        expect(compareAuthority(meet(smaller, c), meet(a, c), { validator }).answer).not.toBe("no");
      }),
      { numRuns: 25 },
    );
  });
});
