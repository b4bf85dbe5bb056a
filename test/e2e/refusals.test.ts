// Denied calls cost their caller something, and the ledger little, however they are made.

import { afterEach, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { read } from "../../src/ledger/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = `
permit (principal, action == Action::"read", resource);
`;

let deployment: Deployment;
let downstream: Counting;
let id = 0;

async function begin(limits: object = {}): Promise<void> {
  downstream = await counting("team");
  deployment = await deploy(POLICY, { limits });
  await deployment.put("team", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } });
}
afterEach(async () => {
  await deployment.close();
  await downstream.close();
});

async function ask(token: string, method: string, params: object): Promise<{ code?: string }> {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const { text } = await deployment.post(
    token,
    { jsonrpc: "2.0", id: ++id, method, params: { ...params, _meta: meta } },
    { "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...named(params) },
  );
  const answer = JSON.parse(text) as {
    error?: { data?: { code?: string } };
    result?: { structuredContent?: { code?: string }; isError?: boolean };
  };
  return { code: answer.error?.data?.code ?? (answer.result?.isError ? answer.result.structuredContent?.code : "ok") };
}

function named(params: { name?: string; uri?: string }): Record<string, string> {
  const name = params.name ?? params.uri;
  return name === undefined ? {} : { "mcp-name": name };
}

describe("denied calls", () => {
  it("denied calls of every kind use up the limit of their key, and of no other key [H11]", async () => {
    await begin();
    const request = { app: "team", agent: "one", name: "one", permissions: ["invoke(*)", "read(*)", "list"] };
    const { token } = await createKey(deployment.runtime.storage.keys, { ...request, limits: { perHour: 4 } }, "test");
    const other = await deployment.key("team", "two");
    expect((await ask(token, "tools/call", { name: "write", arguments: { text: "x" } })).code).toBe("POLICY_DENY");
    expect((await ask(token, "tools/call", { name: "nowhere", arguments: {} })).code).toBe("TOOL_NOT_FOUND");
    expect((await ask(token, "tools/call", { name: "read", arguments: { text: 5 } })).code).toBe("INVALID_ARGS");
    expect((await ask(token, "resources/read", { uri: "note://nowhere" })).code).toBe("POLICY_DENY");
    for (const [method, params] of [
      ["tools/call", { name: "write", arguments: { text: "x" } }],
      ["tools/call", { name: "nowhere", arguments: {} }],
      ["tools/call", { name: "read", arguments: { text: 5 } }],
      ["resources/read", { uri: "note://nowhere" }],
      ["tools/call", { name: "read", arguments: { text: "x" } }],
    ] as const) {
      expect((await ask(token, method, params)).code).toBe("RATE_LIMITED");
    }
    expect((await ask(other, "tools/call", { name: "read", arguments: { text: "x" } })).code).toBe("ok");
    expect(downstream.calls).toEqual(["read"]);
  });

  it("denied calls past the budget are answered without evaluation, and recorded as one sum [H11]", async () => {
    await begin({ refusalsPerMinute: 20 });
    const token = await deployment.key("team", "one");
    const codes: (string | undefined)[] = [];
    const began = performance.now();
    for (let i = 0; i < 60; i++) codes.push((await ask(token, "tools/call", { name: `none${i}`, arguments: {} })).code);
    expect(codes.slice(0, 20)).toEqual(Array.from({ length: 20 }, () => "TOOL_NOT_FOUND"));
    const limited = codes.filter((code) => code === "RATE_LIMITED").length;
    expect(limited).toBeGreaterThan(0);
    await deployment.runtime.applications.peek("team")?.endpoint.gateway.refusals.flush();
    // There is a sum every ten seconds, so that a slow machine has more than one.
    const mostSums = 1 + Math.floor((performance.now() - began) / 10_000);
    const decisions: string[] = [];
    const sums: number[] = [];
    for await (const { record } of read(deployment.runtime.ledger.dir)) {
      const text = JSON.stringify(record);
      if (text.includes('"kind":"decision"') && text.includes("none")) decisions.push(text);
      if (text.includes('"calls.refused"')) sums.push((record.detail as { calls: number }).calls);
    }
    expect(decisions).toHaveLength(60 - limited);
    expect(sums.length).toBeLessThanOrEqual(mostSums);
    expect(sums.reduce((sum, calls) => sum + calls, 0)).toBe(limited);
    expect(downstream.calls).toEqual([]);
  });

  it("denied calls with names, methods and URIs of a megabyte leave a small record with the hash of the name [U9]", async () => {
    await begin();
    const token = await deployment.key("team", "one");
    const client = await deployment.client(token, { revision: "2025-06-18" });
    const long = "n".repeat(1_000_000);
    const { ledger } = deployment.runtime;
    await expect(client.callTool(long, {})).rejects.toThrow();
    await expect(client.readResource(`note://${long}`)).rejects.toThrow();
    await client.close();
    const texts: string[] = [];
    for await (const { record } of read(ledger.dir)) texts.push(JSON.stringify(record));
    const cut = texts.filter((text) => text.includes("nnnn"));
    expect(cut.length).toBeGreaterThanOrEqual(2);
    for (const text of cut) {
      expect(text.length).toBeLessThan(8_192);
      expect(text).toMatch(/characters, sha256 [0-9a-f]{64}/);
    }
    expect(downstream.calls).toEqual([]);
  });
});
