// A tool outside a caller's capabilities is like one that is missing, whatever the request looks like.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Fault, META } from "../mcp/index.js";
import type { DelegationChain, Principal } from "../policy/index.js";
import { createServer, permitAll, type Server } from "../server.js";
import { openWorld, type World } from "./fixtures/world.js";

const SCHEMA = { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } } as const;
const only = (...tools: string[]): { has(tool: string): boolean } => ({ has: (tool) => tools.includes(tool) });
const base = { app: "shop", agent: "bot", scope: [], via: "key", credential: "pk_1" } as const;
const delegated = (...capabilities: string[]): Principal => ({
  ...base,
  tools: only(...capabilities),
  delegation: { agent: "bot", app: "shop", capabilities: new Set(capabilities) } as unknown as DelegationChain,
});
const CALLERS: Record<string, Principal> = {
  all: { ...base, credential: "pk_2" },
  narrow: { ...base, credential: "pk_3", tools: only("up.seen") },
  first: delegated("up.seen"),
  second: delegated("up.hidden"),
};

describe("a tool outside the caller's capabilities", () => {
  let upstream: Server;
  let world: World;
  let effects = 0;
  beforeAll(async () => {
    upstream = createServer({ name: "up", version: "1" }, { policy: permitAll });
    for (const name of ["seen", "hidden"]) {
      upstream.tool(name, "does it", SCHEMA, () => `${++effects}`, { noGuardrailRequired: true });
    }
    const { url } = await upstream.listen({ transport: "http", port: 0 });
    world = await openWorld({
      identify: (peer) => {
        const known = CALLERS[(peer.headers?.authorization ?? "").replace(/^Bearer /, "")];
        if (!known) throw new Fault("AuthenticationError", "the credential is wrong");
        return known;
      },
    });
    await world.put("shop", { names: "short", servers: { up: { url, prefix: "up", noGuardrail: ["*"] } } });
  });
  afterAll(async () => {
    await world.close();
    await upstream.close();
  });

  const ask = async (
    caller: string,
    method: string,
    params: Record<string, unknown>,
    headers: Record<string, string> = {},
  ): Promise<{ status: number; text: string; body: any }> => {
    const answer = await request(world.url, {
      method: "POST",
      headers: {
        authorization: `Bearer ${caller}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        ...(typeof params.name === "string" ? { "mcp-name": params.name } : {}),
        ...headers,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method,
        params: { ...params, _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: {} } },
      }),
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, text: text.replace(/"trace_id":"[^"]*"/g, ""), body: JSON.parse(text) };
  };
  const names = async (caller: string): Promise<string[]> => {
    const { body } = await ask(caller, "tools/list", {});
    return body.result.tools.map((tool: any) => tool._meta?.["portcullis/name"] ?? tool.name);
  };
  const shortNames = async (caller: string): Promise<string[]> => {
    const { body } = await ask(caller, "tools/list", {});
    return body.result.tools.map((tool: any) => tool.name);
  };
  const call = (caller: string, name: string, headers: Record<string, string>) =>
    ask(caller, "tools/call", { name, arguments: { region: "eu" } }, headers);

  it("answers a wrong Mcp-Param header of a hidden tool as it does for a missing one [H3]", async () => {
    const short = (await shortNames("all")).find((name) => name.includes("hidden")) as string;
    const before = effects;
    for (const headers of [{}, { "mcp-param-region": "us" }, { "mcp-param-region": "eu" }] as Record<
      string,
      string
    >[]) {
      const missing = await call("narrow", "up.missin", headers);
      for (const name of ["up.hidden", short]) {
        const hidden = await call("narrow", name, headers);
        expect(hidden.status).toBe(missing.status);
        expect(hidden.text.replaceAll(name, "x")).toBe(missing.text.replaceAll("up.missin", "x"));
      }
    }
    expect(effects).toBe(before);
  });

  it("checks Mcp-Param headers of a tool that is called by its short name", async () => {
    const [short] = (await shortNames("narrow")) as [string];
    expect(short).not.toBe("up.seen");
    const before = effects;
    for (const name of ["up.seen", short]) {
      expect((await call("narrow", name, { "mcp-param-region": "us" })).text).toContain("mcp-param-region");
      expect((await call("narrow", name, {})).text).toContain("mcp-param-region");
    }
    expect(effects).toBe(before);
    expect((await call("narrow", short, { "mcp-param-region": "eu" })).status).toBe(200);
    expect(effects).toBe(before + 1);
  });

  it("a tool outside the caller's capabilities is not listed for one delegation because another one of the same credential listed it [H3]", async () => {
    expect(await names("first")).toEqual(["up.seen"]);
    expect(await names("second")).toEqual(["up.hidden"]);
    expect(await names("first")).toEqual(["up.seen"]);
  });
});
