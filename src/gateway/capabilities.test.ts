// What a caller reads before its first call: nothing of servers that its credential does not reach.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readPermissions } from "../auth/index.js";
import { Fault, META } from "../mcp/index.js";
import type { Principal } from "../policy/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openWorld, type World } from "./fixtures/world.js";

const base = { app: "shop", scope: [], via: "key" } as const;
const holder = (name: string, ...permissions: string[]): Principal => {
  const { invoke, read, resources, prompts } = readPermissions(permissions);
  return { ...base, agent: name, credential: `pk_${name}`, tools: invoke, shown: read, resources, prompts };
};
const CALLERS: Record<string, Principal> = {
  unrestricted: { ...base, agent: "unrestricted", credential: "pk_0" },
  everything: holder("everything", "invoke(*)", "list"),
  tools: holder("tools", "invoke(one.*)"),
  prompt: holder("prompt", "read(prompt:two.*)"),
  resource: holder("resource", "read(resource:*)"),
  nothing: holder("nothing", "invoke(absent)"),
};

describe("the answer to initialize and server/discover", () => {
  const upstreams: Server[] = [];
  let world: World;
  beforeAll(async () => {
    const servers: Record<string, object> = {};
    for (const name of ["one", "two"]) {
      const server = createServer({ name, version: "1", instructions: `how to use ${name}` }, { policy: permitAll });
      server.tool("do", "does it", { type: "object" }, () => "done", { noGuardrailRequired: true });
      server.prompt("ask", "asks", {}, () => [{ role: "user", content: { type: "text", text: "?" } }]);
      server.resource(`doc://${name}/a`, "a document", () => "text");
      upstreams.push(server);
      const { url } = await server.listen({ transport: "http", port: 0 });
      servers[name] = { url, prefix: name, noGuardrail: ["*"] };
    }
    world = await openWorld({
      identify: (peer) => {
        const known = CALLERS[(peer.headers?.authorization ?? "").replace(/^Bearer /, "")];
        if (!known) throw new Fault("AuthenticationError", "the credential is wrong");
        return known;
      },
    });
    await world.put("shop", { servers } as never);
  });
  afterAll(async () => {
    await world.close();
    for (const server of upstreams) await server.close();
  });

  const answer = async (caller: string, message: object, headers: Record<string, string> = {}): Promise<any> => {
    const { body } = await request(world.url, {
      method: "POST",
      headers: {
        authorization: `Bearer ${caller}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...message }),
    });
    const text = await body.text();
    return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result;
  };
  const introductions = async (caller: string): Promise<any[]> => [
    await answer(caller, {
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    }),
    await answer(
      caller,
      {
        method: "server/discover",
        params: { _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} } },
      },
      { "mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover" },
    ),
  ];

  const BOTH = "# one\n\nhow to use one\n\n# two\n\nhow to use two";
  it.each([
    ["unrestricted", BOTH, ["resources", "prompts"]],
    ["everything", BOTH, ["resources", "prompts"]],
    ["tools", "# one\n\nhow to use one", []],
    ["prompt", "# two\n\nhow to use two", ["prompts"]],
    ["resource", BOTH, ["resources"]],
    ["nothing", undefined, []],
  ])(
    "shows a caller with the permission %s only servers and capabilities that it reaches [G6]",
    async (caller, text, kinds) => {
      for (const { instructions, capabilities } of await introductions(caller)) {
        expect(instructions).toBe(text);
        expect(Object.keys(capabilities).filter((name) => name === "resources" || name === "prompts")).toEqual(kinds);
        expect(capabilities.tools).toBeDefined();
      }
    },
  );
});
