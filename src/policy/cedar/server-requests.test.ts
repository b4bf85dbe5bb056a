import { describe, expect, it } from "vitest";
import { parseCases, runCases } from "./cases.js";
import { permitForServer, serverRequest } from "./catalog.js";
import { loadPolicy } from "./load.js";
import type { PolicyRequest } from "./types.js";

const TOOLS = [
  {
    name: "github.create_issue",
    server: "github",
    inputSchema: { type: "object", properties: { title: { type: "string" } } },
  },
];
const load = (text: string) => loadPolicy([{ file: "p.cedar", text }], TOOLS);

function asks(more: Partial<PolicyRequest> = {}): PolicyRequest {
  const parts = { app: "shop", server: "github", agent: "alice", scope: ["read"], tool: "github.create_issue" };
  const request = serverRequest({ ...parts, method: "elicitation/create" });
  return { ...request, arguments: { message: "your name?", mode: "form" }, transport: "http", ...more };
}

describe("a request of a server to a client", () => {
  it("a request of a server to a client is denied by a permit for everything, which was written for agents [U7]", () => {
    const all = load("permit (principal, action, resource);");
    expect(all.decide(asks())).toMatchObject({ effect: "deny", rules: [] });
    expect(load('permit (principal in App::"shop", action, resource);').decide(asks()).effect).toBe("deny");
    expect(load('permit (principal, action in Action::"tools/call", resource);').decide(asks()).effect).toBe("deny");
  });

  it("a request of a server to a client is permitted by the rule that the log names, for that server, method and application alone", () => {
    const set = load(permitForServer("shop", "github", "elicitation/create"));
    expect(set.decide(asks()).effect).toBe("permit");
    const other = (more: Partial<Parameters<typeof serverRequest>[0]>) =>
      set.decide({
        ...asks(),
        ...serverRequest({
          app: "shop",
          server: "github",
          agent: "alice",
          scope: [],
          tool: "",
          method: "elicitation/create",
          ...more,
        }),
      }).effect;
    expect(other({ server: "files" })).toBe("deny");
    expect(other({ app: "blog" })).toBe("deny");
    expect(other({ method: "sampling/createMessage" })).toBe("deny");
  });

  it("a request of a server to a client is decided by the call in flight, the asked agent and what would be shown", () => {
    const set = load(`permit (principal, action in [Action::"elicitation/create", Action::"roots/list"], resource)
      when { context.tool == "github.create_issue" && resource.agent == "alice" && resource.scope.contains("read")
        && principal.app == "shop" && context.arguments.mode == "form" };`);
    expect(set.decide(asks()).effect).toBe("permit");
    expect(set.decide(asks({ arguments: { mode: "url" } })).effect).toBe("deny");
    expect(set.decide(asks({ serverRequest: { server: "github", tool: "github.delete" } })).effect).toBe("deny");
  });

  it("a request of a server to a client is stopped by a forbid about every action", () => {
    const set = load(`${permitForServer("shop", "github", "elicitation/create")}
      forbid (principal, action, resource) when { context.transport == "http" };`);
    expect(set.decide(asks()).effect).toBe("deny");
    expect(set.decide(asks({ transport: "stdio" })).effect).toBe("permit");
  });

  it("a request of a server to a client cannot be decided as the action of an agent, nor the other way round", () => {
    const set = load("permit (principal, action, resource);");
    const { serverRequest: _server, ...asAgent } = asks();
    expect(set.decide(asAgent).effect).toBe("deny");
    const call = {
      ...asks(),
      action: "github.create_issue",
      resource: { type: "Tool" as const, id: "github.create_issue" },
    };
    expect(set.decide(call).effect).toBe("deny");
  });

  it("a request of a server to a client can be written as a policy test", async () => {
    const cases = await parseCases(
      "t.yaml",
      `cases:
        - { app: shop, agent: alice, method: elicitation/create, server: github, arguments: { message: hi }, expect: permit }
        - { app: shop, agent: alice, method: sampling/createMessage, server: github, during: github.create_issue, expect: deny }
        - { app: shop, agent: alice, tool: github.create_issue, forwarded: { _meta: { x: 1 } }, expect: deny }
        - { app: shop, agent: alice, tool: github.create_issue, expect: permit }`,
    );
    const set = load(`${permitForServer("shop", "github", "elicitation/create")}
      permit (principal, action in Action::"tools/call", resource) unless { context.forwarded has _meta };`);
    expect(runCases(set, cases).map(({ message }) => message)).toEqual(["", "", "", ""]);
    await expect(parseCases("t.yaml", "- { method: roots/list, expect: deny }")).rejects.toThrow("needs a server");
  });
});
