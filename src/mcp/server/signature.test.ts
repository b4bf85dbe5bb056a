import { describe, expect, it } from "vitest";
import { DefinitionError } from "../../schema/types.js";
import { field, signature, signatureDefinition } from "./signature.js";
import { defineTool } from "./tool.js";

const analyzer = signature({
  name: "FinancialAnalyzer",
  description: "Analyzes stock data and returns investment recommendations",
  inputs: {
    ticker_symbol: field.string({
      description: "Stock ticker symbol (e.g., AAPL)",
      pattern: /^[A-Z]{1,5}$/,
      minLength: 1,
      maxLength: 5,
    }),
    period_days: field.integer({ description: "Historical analysis period in days", minValue: 1, maxValue: 365 }),
    analysis_type: field.string({
      description: "Type of analysis",
      enum: ["technical", "fundamental", "sentiment"],
      default: "technical",
    }),
  },
  outputs: { recommendation: field.string(), confidence: field.float({ minValue: 0, maxValue: 1, required: false }) },
});

describe("a signature", () => {
  it("maps to JSON Schema by the table of the document [G3]", () => {
    expect(signatureDefinition(analyzer)).toEqual({
      name: "FinancialAnalyzer",
      description: "Analyzes stock data and returns investment recommendations",
      inputSchema: {
        type: "object",
        properties: {
          ticker_symbol: {
            type: "string",
            description: "Stock ticker symbol (e.g., AAPL)",
            pattern: "^[A-Z]{1,5}$",
            minLength: 1,
            maxLength: 5,
          },
          period_days: { type: "integer", description: "Historical analysis period in days", minimum: 1, maximum: 365 },
          analysis_type: {
            type: "string",
            description: "Type of analysis",
            enum: ["technical", "fundamental", "sentiment"],
            default: "technical",
          },
        },
        required: ["ticker_symbol", "period_days"],
      },
      outputSchema: {
        type: "object",
        properties: { recommendation: { type: "string" }, confidence: { type: "number", minimum: 0, maximum: 1 } },
        required: ["recommendation"],
      },
    });
  });

  it("maps every type and constraint of the table [G3]", () => {
    const { inputSchema } = signature({
      name: "all",
      description: "",
      inputs: {
        s: field.string({ minLength: 1, maxLength: 2, pattern: "a", format: "date", required: false }),
        i: field.integer({ minValue: 1, maxValue: 2 }),
        f: field.float({ multipleOf: 0.5 }),
        b: field.boolean(),
        l: field.list(field.string({ enum: ["x"] }), { minItems: 1, maxItems: 3, uniqueItems: true }),
        o: field.object({ x: field.integer(), y: field.integer({ required: false }) }, { description: "a point" }),
      },
    });
    expect(inputSchema).toEqual({
      type: "object",
      properties: {
        s: { type: "string", minLength: 1, maxLength: 2, pattern: "a", format: "date" },
        i: { type: "integer", minimum: 1, maximum: 2 },
        f: { type: "number", multipleOf: 0.5 },
        b: { type: "boolean" },
        l: { type: "array", items: { type: "string", enum: ["x"] }, minItems: 1, maxItems: 3, uniqueItems: true },
        o: {
          type: "object",
          properties: { x: { type: "integer" }, y: { type: "integer" } },
          required: ["x"],
          description: "a point",
        },
      },
      required: ["i", "f", "b", "l", "o"],
    });
  });

  it("describes both sides of a tool; a default is documented and never filled in [G1]", async () => {
    const tool = defineTool({
      name: analyzer.name,
      description: analyzer.description,
      input: analyzer,
      handler: (args) => ({
        structuredContent: { recommendation: `${args.ticker_symbol}: ${args.analysis_type ?? "none given"}` },
      }),
    });
    expect(tool.definition.outputSchema).toEqual(analyzer.outputSchema);
    expect(await tool.validate({ ticker_symbol: "AAPL", period_days: 366 })).toMatchObject({
      problems: [{ path: "/period_days" }],
    });
    const result = await tool.run({ ticker_symbol: "AAPL", period_days: 90 }, {} as never);
    expect(result.structuredContent).toEqual({ recommendation: "AAPL: none given" });
  });

  it.each([
    [
      "limits that contradict",
      () => field.string({ minLength: 5, maxLength: 1 }),
      /field `x`: minLength 5 is greater than maxLength 1/,
    ],
    [
      "a default that does not fit",
      () => field.integer({ maxValue: 3, default: 4 }),
      /the default or example 4 must be at most 3/,
    ],
    [
      "an example that does not fit",
      () => field.string({ pattern: "^a", examples: ["b"] }),
      /the default or example "b" does not match/,
    ],
    [
      "a flag that JSON Schema has not",
      () => field.string({ pattern: /^[a-z]+$/i }),
      /has no flag `i`; write it without/,
    ],
    ["a broken pattern", () => field.string({ pattern: "(" }), /not a valid regular expression/],
  ])("a signature with %s is refused", (_, make, message) => {
    expect(() => signature({ name: "s", description: "", inputs: { x: make() } })).toThrow(DefinitionError);
    expect(() => signature({ name: "s", description: "", inputs: { x: make() } })).toThrow(message);
  });

  it("a signature accepts a pattern whose flags change only how to search", () => {
    expect(field.string({ pattern: /^[a-z]+$/gu }).schema).toEqual({ type: "string", pattern: "^[a-z]+$" });
  });
});
