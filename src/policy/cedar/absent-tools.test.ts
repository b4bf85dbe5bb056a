import { describe, expect, it } from "vitest";
import { loadPolicy } from "./load.js";
import type { PolicyRequest, ToolSummary } from "./types.js";

const TEXT = `
@id("both") permit (principal, action in [Action::"a.read", Action::"b.send"], resource);
@id("other") forbid (principal, action == Action::"b.send", resource) when { context.arguments.to == "x" };
`;
const tools: ToolSummary[] = [{ name: "a.read", server: "a", inputSchema: { type: "object" } }];
const sources = [{ file: "shared.cedar", text: TEXT }];

function request(action: string): PolicyRequest {
  const resource = { type: "Tool" as const, id: action, server: "a", tags: [], readOnly: false };
  return { app: "x", agent: "y", scope: [], action, resource, arguments: {}, transport: "http" };
}

describe("rules about tools that are not there", () => {
  it("rules about tools that are not there are refused unless the rules are shared", () => {
    expect(() => loadPolicy(sources, tools)).toThrow(/b\.send/);
  });
  it("rules about tools that are not there are kept with a warning when they are, and the rest of the rule holds", () => {
    const set = loadPolicy(sources, tools, { unknownTools: "warn" });
    expect(set.warnings.map((warning) => warning.message)).toEqual(["there is no tool or method b.send here"]);
    expect(set.decide(request("a.read")).effect).toBe("permit");
  });
});
