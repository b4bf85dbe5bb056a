import { expect, it } from "vitest";
import { hostTools } from "../../host/index.js";
import { loadPolicy, type PolicyRequest, type ToolSummary } from "../../policy/index.js";
import { HOST_STARTER } from "./starter-policy.js";

const OTHER = { name: "fs.delete", inputSchema: { type: "object", properties: { path: { type: "string" } } } };
const tools: ToolSummary[] = [...hostTools, OTHER].map(({ name, inputSchema }) => {
  return { name, inputSchema, server: "portcullis-host", tags: [] };
});

it("decides with the loaded set as Cedar decides with the text", () => {
  const cedar = loadPolicy([{ file: HOST_STARTER.name, text: HOST_STARTER.text }], tools);
  const args = { path: "/tmp/x", data: "", commandId: "ls" };
  for (const app of ["host", "local"]) {
    for (const action of ["fs.read", "fs.write", "cmd.run", "fs.delete", "resources/read", "elicitation/create"]) {
      const isTool = tools.some(({ name }) => name === action);
      const request: PolicyRequest = {
        app,
        agent: "me",
        scope: [],
        action,
        resource: isTool
          ? { type: "Tool", id: action, server: "portcullis-host", tags: [] }
          : { type: "Method", id: action },
        arguments: isTool ? args : {},
        transport: "stdio",
      };
      const [loaded, written] = [HOST_STARTER.set.decide(request), cedar.decide(request)];
      const expected = app === "host" && isTool && action !== "fs.delete" ? "permit" : "deny";
      expect(loaded.effect, `${app} ${action}`).toBe(expected);
      expect(written.effect, `${app} ${action}`).toBe(expected);
      expect(loaded.rules).toEqual(written.rules);
      expect(HOST_STARTER.set.outlook(request)).toBe(cedar.outlook(request));
    }
  }
});
