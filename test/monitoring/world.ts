// A gateway whose every metric has something to count: permitted, denied, challenged, limited, shed and failed calls.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/mcp/client/index.js";
import type { GatewayRuntimeOptions } from "../../src/runtime/start.js";
import { counting, type Deployment, deploy } from "../e2e/gateway-world.js";

const POLICY = `
  @id("allow-all") permit (principal, action, resource);
  @id("no-writing") forbid (principal, action == Action::"write", resource);
  @id("ask-first") @outcome("challenge") @approvers("operators")
  forbid (principal, action == Action::"pay", resource) unless { context.approved };
`;

export interface MonitoredGateway extends Deployment {
  /** Calls of each kind, one after the other. */
  exercise(): Promise<void>;
  admin(path: string, token?: "metrics.token" | "operator.token", init?: RequestInit): Promise<Response>;
}

const AGENT_CALLS = 2;

export async function monitoredGateway(options: Partial<GatewayRuntimeOptions> = {}): Promise<MonitoredGateway> {
  const gateway = await deploy(POLICY, {
    replica: "one",
    limits: { maxAgentCalls: AGENT_CALLS, challengeWaitMs: 0 },
    ...options,
  });
  const downstream = await counting("up", (server) => {
    const input = { type: "object", properties: {} } as const;
    const open = { noGuardrailRequired: true } as const;
    server.tool("pay", "pays", input, () => "paid", open);
    server.tool("fail", "fails", input, () => Promise.reject(new Error("no")), open);
    server.tool("slow", "takes a while", input, () => sleep(1_000).then(() => "done"), open);
  });
  await gateway.put("shop", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } });
  await gateway.put("limited", {
    servers: { up: { url: downstream.url, noGuardrail: ["*"] } },
    limits: { agent: { perMinute: 1 } },
  });
  const admin: MonitoredGateway["admin"] = (path, token, init = {}) =>
    fetch(new URL(path, gateway.runtime.admin?.url), {
      ...init,
      headers: {
        ...(token ? { authorization: `Bearer ${readFileSync(join(gateway.dir, token), "utf8").trim()}` } : {}),
        ...(init.body === undefined ? {} : { "content-type": "application/json" }),
      },
    });
  const exercise = async (): Promise<void> => {
    const client = await gateway.client(await gateway.key("shop", "clerk"));
    // After the first time its limit refuses the connection itself.
    const limited = await gateway.client(await gateway.key("limited", "clerk")).catch(() => undefined);
    const tryCall = (name: string, by?: Client): Promise<unknown> =>
      (by ?? client).callTool(name, {}).catch(() => undefined);
    for (const name of ["read", "read", "write", "fail", "pay", "no-such-tool"]) await tryCall(name);
    for (let i = 0; i < 3 && limited; i++) await tryCall("read", limited);
    await Promise.all(Array.from({ length: 3 * AGENT_CALLS }, () => tryCall("slow")));
    const { approvals } = (await (await admin("/v1/approvals", "operator.token")).json()) as {
      approvals: { id: string }[];
    };
    for (const { id } of approvals) {
      await admin(`/v1/approvals/${id}/approve`, "operator.token", { method: "POST", body: "{}" });
    }
    await client.getPrompt("ask", {}).catch(() => undefined);
    await fetch(gateway.url, { method: "POST", body: "{}" });
    await client.close();
    await limited?.close();
  };
  const close = async (): Promise<void> => {
    await gateway.close();
    await downstream.close();
  };
  return { ...gateway, exercise, admin, close, [Symbol.asyncDispose]: close };
}
