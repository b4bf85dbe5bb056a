import { describe, expect, it } from "vitest";
import type { JsonObject } from "../index.js";
import { failure, text } from "./content.js";
import { composeTools, defineTool } from "./tool.js";
import type { CallContext, ToolResult } from "./types.js";

/** A context that answers calls from a table and remembers them: what the gate would see. */
function contextOf(answers: Record<string, (args: JsonObject) => ToolResult>) {
  const calls: [string, JsonObject][] = [];
  const controller = new AbortController();
  const context = {
    signal: controller.signal,
    progress: () => {},
    call: async (tool: string, args: JsonObject) => {
      calls.push([tool, args]);
      return (answers[tool] as (args: JsonObject) => ToolResult)(args);
    },
  } as unknown as CallContext;
  return { context, calls, controller };
}

const search = defineTool({ name: "search", description: "", input: {}, handler: () => "" });
const input = {
  type: "object",
  properties: { topic: { type: "string" }, deep: { type: "boolean" } },
  required: ["topic"],
} as const;

const report = composeTools({
  name: "report",
  description: "Searches and summarizes",
  input,
  steps: [
    { tool: search, args: ({ input: { topic } }) => ({ query: topic }) },
    {
      tool: "search",
      as: "more",
      when: ({ input: { deep } }) => deep === true,
      args: ({ input: { topic } }) => ({ query: `more ${topic}` }),
    },
    { tool: "summarize", args: ({ results }) => ({ found: Object.keys(results) }) },
  ],
});

describe("a tool made of tools", () => {
  it("calls its parts through the context, in order, with arguments made from what came before [G1]", async () => {
    const { context, calls } = contextOf({
      search: () => ({ content: [text("hits")] }),
      summarize: () => ({ content: [text("short")], structuredContent: { n: 1 } }),
    });
    expect(await report.run({ topic: "gates", deep: true }, context)).toEqual({
      content: [text("short")],
      structuredContent: { n: 1 },
    });
    expect(calls).toEqual([
      ["search", { query: "gates" }],
      ["search", { query: "more gates" }],
      ["summarize", { found: ["search", "more"] }],
    ]);
  });

  it("skips a step whose condition does not hold", async () => {
    const { context, calls } = contextOf({ search: () => ({ content: [] }), summarize: () => ({ content: [] }) });
    await report.run({ topic: "x" }, context);
    expect(calls.map(([tool]) => tool)).toEqual(["search", "summarize"]);
  });

  it("stops at a part that failed, and says which", async () => {
    const { context, calls } = contextOf({ search: () => failure("no index") });
    expect(await report.run({ topic: "x" }, context)).toEqual({
      content: [text("step `search` failed:"), text("no index")],
      isError: true,
    });
    expect(calls).toHaveLength(1);
  });

  it("a tool made of tools continues where a part may fail, and makes its own result", async () => {
    const lenient = composeTools({
      name: "lenient",
      description: "",
      input,
      steps: [{ tool: "search", mayFail: true, args: () => ({}) }],
      result: ({ results }) => (results.search?.isError ? "nothing found" : "found"),
    });
    const { context } = contextOf({ search: () => failure("no index") });
    expect(await lenient.run({ topic: "x" }, context)).toEqual({ content: [text("nothing found")] });
  });

  it("a refusal by the gate ends the whole [G1]", async () => {
    const { context } = contextOf({
      search: () => {
        throw new Error("denied by policy");
      },
    });
    await expect(report.run({ topic: "x" }, context)).rejects.toThrow("denied by policy");
  });

  it("stops between steps when it is cancelled", async () => {
    const { context, calls, controller } = contextOf({
      search: () => {
        controller.abort();
        return { content: [] };
      },
    });
    await expect(report.run({ topic: "x" }, context)).rejects.toThrow(/abort/i);
    expect(calls).toHaveLength(1);
  });

  it.each([
    ["no steps", [], /needs at least one step/],
    [
      "two steps of one name",
      [
        { tool: "a", args: () => ({}) },
        { tool: "a", args: () => ({}) },
      ],
      /two steps are called `a`; tell them apart with `as`/,
    ],
    ["itself as a step", [{ tool: "t", args: () => ({}) }], /cannot be a step of itself/],
    [
      "too many steps",
      Array.from({ length: 65 }, (_, i) => ({ tool: `a${i}`, args: () => ({}) })),
      /has 65 steps; the limit is 64/,
    ],
  ])("a tool made of tools with %s is refused", (_, steps, message) => {
    expect(() => composeTools({ name: "t", description: "", input: {}, steps })).toThrow(message);
  });
});
