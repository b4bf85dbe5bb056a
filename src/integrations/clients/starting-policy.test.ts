import { expect, it } from "vitest";
import { loadPolicy, type ToolSummary } from "../../policy/index.js";
import { startingPolicy } from "./starting-policy.js";

/** Name, tags by the server's hints, and what happens to a call. */
const CASES: readonly [string, readonly string[], "permit" | "challenge" | "deny"][] = [
  ["fs.read_file", [], "permit"],
  ["fs.open_nodes", [], "challenge"],
  ["fs.open_nodes", ["hint:readOnly"], "permit"],
  ["fs.get_and_mark", ["hint:writes"], "challenge"],
  ["fs.list_and_clear", ["hint:destructive"], "challenge"],
  ["fs.both", ["hint:readOnly", "hint:destructive"], "challenge"],
  ["fs.delete_file", [], "deny"],
  ["fs.delete_file", ["hint:readOnly"], "deny"],
  ["everything.get-env", [], "challenge"],
  ["everything.printEnv", ["hint:readOnly"], "challenge"],
  ["ops.read_environment", [], "challenge"],
  ["vault.get_secret", ["hint:readOnly"], "challenge"],
  ["mail.get_envelope", [], "permit"],
];

it.each(CASES)("decides on a call of %s with the hints %j: %s [H5]", (name, tags, effect) => {
  const tool: ToolSummary = { name, server: "s", inputSchema: { type: "object" }, tags };
  const set = loadPolicy([{ file: "imported.cedar", text: startingPolicy("local") }], [tool]);
  const resource = { type: "Tool", id: name } as const;
  const decided = set.decide({
    app: "local",
    agent: "a",
    scope: [],
    action: name,
    resource,
    arguments: {},
    transport: "stdio",
  });
  expect(decided.effect).toBe(effect);
});
