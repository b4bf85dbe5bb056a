// Rules about the people behind one agent, through the gateway: each gets decisions and lists of its own.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Fault, META } from "../mcp/index.js";
import type { Principal } from "../policy/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openWorld, type World } from "./fixtures/world.js";

const agent = { app: "shop", agent: "assistant", scope: [], via: "oauth" } as const;
const CALLERS: Readonly<Record<string, Principal>> = {
  alice: { ...agent, user: "alice", groups: ["editors"] },
  bob: { ...agent, user: "bob", groups: ["readers"] },
  "bob, an editor now": { ...agent, user: "bob", groups: ["editors", "readers"] },
  unnamed: agent,
};

const POLICY = `
permit (principal, action, resource) when { resource has name && resource.name like "*read" };
permit (principal, action, resource) when { principal.groups.contains("editors") };
@id("not-bob") forbid (principal, action, resource)
when { resource has name && resource.name like "*sign" && principal has user && principal.user == "bob" };
@id("past") forbid (principal, action, resource) when { context.now < datetime("2020-01-01") };
@id("future") forbid (principal, action, resource)
when { resource has name && resource.name like "*later" && context.now < datetime("9999-01-01") };
`;

describe("two users of one agent", () => {
  let upstream: Server;
  let world: World;
  beforeAll(async () => {
    upstream = createServer({ name: "docs", version: "1" }, { policy: permitAll });
    for (const name of ["read", "write", "sign", "later"]) {
      upstream.tool(name, "does it", { type: "object" }, () => "done", { noGuardrailRequired: true });
    }
    const { url } = await upstream.listen({ transport: "http", port: 0 });
    world = await openWorld({
      policy: POLICY,
      identify: (peer) => {
        const known = CALLERS[(peer.headers?.authorization ?? "").replace(/^Bearer /, "")];
        if (!known) throw new Fault("AuthenticationError", "the credential is wrong");
        return known;
      },
    });
    await world.put("shop", { servers: { docs: { url, prefix: "docs", noGuardrail: ["*"] } } } as never);
  });
  afterAll(async () => {
    await world.close();
    await upstream.close();
  });

  const answer = async (caller: string, method: string, params: { name?: string } = {}): Promise<any> => {
    const _meta = { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} };
    const { body } = await request(world.url, {
      method: "POST",
      headers: {
        authorization: `Bearer ${caller}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        ...(params.name === undefined ? {} : { "mcp-name": params.name }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta } }),
    });
    const text = await body.text();
    return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);
  };
  const listed = async (caller: string): Promise<string[]> => {
    const { result } = await answer(caller, "tools/list");
    return result.tools.map(({ name }: { name: string }) => name).sort();
  };
  const runs = async (caller: string, name: string): Promise<boolean> => {
    const { result } = await answer(caller, "tools/call", { name });
    return result?.content?.[0]?.text === "done";
  };

  const EXPECTED: [string, string[]][] = [
    ["alice", ["docs.read", "docs.sign", "docs.write"]],
    ["bob", ["docs.read"]],
    ["bob, an editor now", ["docs.read", "docs.write"]],
    ["unnamed", ["docs.read"]],
  ];

  it("two users of one agent get different decisions, by their names and groups and the gateway's clock", async () => {
    for (const [caller, names] of EXPECTED) {
      for (const name of ["docs.read", "docs.write", "docs.sign", "docs.later"]) {
        expect(await runs(caller, name), `${caller} ${name}`).toBe(names.includes(name));
      }
    }
  });

  it("two users of one agent get different lists, also after the list of the other was kept", async () => {
    // What only the clock forbids may be permitted by the time it is called.
    const hoped = (caller: string): string[] =>
      ["alice", "bob, an editor now"].includes(caller) ? ["docs.later"] : [];
    for (let round = 0; round < 2; round++) {
      for (const [caller, names] of EXPECTED) {
        expect(await listed(caller), caller).toEqual([...names, ...hoped(caller)].sort());
      }
    }
  });
});
