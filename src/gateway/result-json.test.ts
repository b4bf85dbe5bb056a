import { expect, it } from "vitest";
import type { JsonObject } from "../mcp/index.js";
import { resultJson } from "./answer.js";

const long = 'a "line"\n\u2028ü\u0007'.repeat(10_000);

it.each<[string, object]>([
  ["a long text twice", { content: [{ type: "text", text: long }], structuredContent: { data: long, size: 5 } }],
  [
    "the same text under two names",
    { content: [{ type: "text", text: long }], structuredContent: { a: long, b: long } },
  ],
  [
    "more beside it",
    {
      _meta: { x: 1 },
      content: [{ type: "text", text: long, annotations: {} }],
      structuredContent: { n: null, data: long },
      isError: false,
    },
  ],
  [
    "something undefined",
    {
      content: [{ type: "text", text: long, _meta: undefined }],
      structuredContent: { data: long, signal: undefined },
      isError: undefined,
    },
  ],
  ["another long text", { content: [{ type: "text", text: long }], structuredContent: { data: `${long}.` } }],
  ["a short text", { content: [{ type: "text", text: "x" }], structuredContent: { data: "x" } }],
  [
    "two blocks",
    {
      content: [
        { type: "text", text: long },
        { type: "text", text: "x" },
      ],
      structuredContent: { data: long },
    },
  ],
  ["no structure", { content: [{ type: "text", text: long }] }],
  ["a list as structure", { content: [{ type: "text", text: long }], structuredContent: [long] }],
  ["nothing", {}],
])("is the same JSON with %s", (_, result) => {
  expect(resultJson(result as JsonObject)).toBe(JSON.stringify(result));
});
