import { expect, test } from "vitest";
import { withCedar } from "./cedar.js";
import { loadPolicy } from "./load.js";
import type { PolicyRequest, ToolSummary } from "./types.js";

const TOOLS: ToolSummary[] = [
  {
    name: "fs.read",
    server: "host",
    tags: ["files"],
    inputSchema: {
      type: "object",
      required: ["path"],
      properties: {
        path: { type: "string" },
        limit: { type: "integer" },
        labels: { type: "array", items: { type: "string" } },
      },
    },
  },
  ...Array.from({ length: 50 }, (_, i) => ({ name: `srv.t${i}`, server: "srv", inputSchema: { type: "object" } })),
];

const TEXT = [
  `@id("docs") permit (principal in App::"blog", action == Action::"fs.read", resource in Server::"host")
   when { context.arguments.path like "/srv/docs/*" && !(context.arguments.path like "*..*") && principal.scope.contains("read") };`,
  `forbid (principal, action == Action::"fs.read", resource)
   when { context.arguments.path like "*.key" || context.arguments.path like "*/.ssh/*" };`,
  `@outcome("challenge") @approvers("ops") forbid (principal, action == Action::"fs.read", resource)
   when { context.arguments has limit && context.arguments.limit > 100000 } unless { context.approved };`,
  `forbid (principal, action == Action::"fs.read", resource)
   when { context.arguments has labels && context.arguments.labels.containsAny(["secret", "private"]) };`,
  `forbid (principal, action in Action::"tools/call", resource in Tag::"danger") when { context.transport == "http" };`,
  ...Array.from(
    { length: 95 },
    (_, i) => `permit (principal in App::"app${i}", action == Action::"srv.t${i % 50}", resource);`,
  ),
].join("\n");

const REQUEST: PolicyRequest = {
  app: "blog",
  agent: "writer",
  scope: ["read"],
  action: "fs.read",
  resource: { type: "Tool", id: "fs.read", server: "host", tags: ["files"], readOnly: true },
  arguments: { path: "/srv/docs/a/b/c.txt", limit: 4096, labels: ["x", "y"] },
  transport: "http",
};

/** Microseconds of CPU for one turn of `work`. */
function cpuMicros(turns: number, work: () => void): number {
  const before = process.cpuUsage();
  for (let turn = 0; turn < turns; turn++) work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / turns;
}

test("prints what a decision costs on closures and on Cedar, in one run", () => {
  const started = process.cpuUsage();
  const policy = loadPolicy([{ file: "p.cedar", text: TEXT }], TOOLS);
  const first = process.cpuUsage(started);
  const again = cpuMicros(3, () => loadPolicy([{ file: "p.cedar", text: TEXT }], TOOLS));
  const rules = Object.fromEntries(policy.rules.map((rule) => [rule.id, rule.text]));
  withCedar((cedar) => cedar.preparsePolicySet("measure", { staticPolicies: rules }));
  const agent = { type: "Agent", id: "blog/writer" };
  const tool = { type: "Tool", id: "fs.read" };
  const action = { type: "Action", id: "fs.read" };
  const call = {
    principal: agent,
    action,
    resource: tool,
    context: { arguments: REQUEST.arguments, approved: false, transport: "http" },
    preparsedPolicySetId: "measure",
    entities: [
      { uid: agent, attrs: { app: "blog", agent: "writer", scope: ["read"] }, parents: [{ type: "App", id: "blog" }] },
      {
        uid: tool,
        attrs: { server: "host", tags: ["files"], readOnly: true },
        parents: [{ type: "Server", id: "host" }],
      },
      { uid: action, attrs: {}, parents: [{ type: "Action", id: "tools/call" }] },
    ],
  };
  expect(policy.decide(REQUEST).effect).toBe("permit");
  const onCedar = (): string => {
    const answer = withCedar((cedar) => cedar.statefulIsAuthorized(call as never));
    return answer.type === "success" ? answer.response.decision : "failure";
  };
  expect(onCedar()).toBe("allow");
  cpuMicros(50_000, () => policy.decide(REQUEST));
  cpuMicros(500, onCedar);
  const rows = [1, 2, 3].map(() => ({
    closures: cpuMicros(200_000, () => policy.decide(REQUEST)).toFixed(2),
    cedar: cpuMicros(1000, onCedar).toFixed(1),
    outlook: cpuMicros(20_000, () => policy.outlook(REQUEST)).toFixed(2),
  }));
  console.log(
    `first load ${Math.round((first.user + first.system) / 1000)} ms, again ${Math.round(again / 1000)} ms of CPU`,
  );
  console.log("µs of CPU, 100 rules:", JSON.stringify(rows));
});
