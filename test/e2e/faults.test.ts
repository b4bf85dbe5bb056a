// Servers that misbehave, and a store that goes away, while other calls run: what fails fails alone, with a clear error,
// and nothing that was acknowledged is lost.

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { read } from "../../src/ledger/index.js";
import type { Client } from "../../src/mcp/client/index.js";
import { type PostgresCluster, startPostgres } from "../../src/storage/fixtures/postgres.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";
import { root } from "./serving.js";

const hostile = (...habits: string[]) => ({
  command: process.execPath,
  args: [join(root, "src", "upstream", "fixtures", "server.mjs"), ...habits],
  noGuardrail: ["*"],
  timeoutMs: 2_000,
});

/** Calls that must not notice anything, one after the other, until told to stop. */
function steadily(client: Client, tool: string): { stop(): Promise<{ good: number; bad: unknown[] }> } {
  let isOver = false;
  const bad: unknown[] = [];
  let good = 0;
  const running = (async () => {
    for (let n = 0; !isOver; n++) {
      const answer = await client.callTool(tool, { text: `${n}` }).catch((error: Error) => error);
      if (answer instanceof Error || answer.isError) bad.push(answer);
      else good++;
    }
  })();
  return {
    stop: async () => {
      isOver = true;
      await running;
      return { good, bad };
    },
  };
}

async function outcomesOf(deployment: Deployment): Promise<{ decisions: number; outcomes: number }> {
  let decisions = 0;
  let outcomes = 0;
  for await (const { record } of read(join(deployment.dir, "ledger"))) {
    if (record.kind === "decision" && record.method === "tools/call" && record.effect === "permit") decisions++;
    if (record.kind === "outcome" && !String(record.tool).includes("/")) outcomes++;
  }
  return { decisions, outcomes };
}

describe("a downstream server that misbehaves", () => {
  let deployment: Deployment;
  let good: Counting;
  let steady: Client;
  let caller: Client;

  beforeAll(async () => {
    deployment = await deploy("permit (principal, action, resource);");
    good = await counting("good");
    const well = { url: good.url, noGuardrail: ["*"] };
    await deployment.put("team", { servers: { good: well, bad: hostile("all") } });
    await deployment.put("other", { servers: { good: well, more: well } });
    steady = await deployment.client(await deployment.key("other", "steady"));
    caller = await deployment.client(await deployment.key("team", "caller"));
    await steady.callTool("good.read", { text: "warm" });
  });
  afterAll(async () => {
    await steady.close();
    await caller.close();
    await deployment.close();
    await good.close();
  });

  it.each([
    ["hang", /TIMEOUT|did not finish/],
    ["die", /UNAVAILABLE|TOOL_FAILURE|ended|lost/],
    ["garbage", /./],
    ["wrong", /./],
    ["flood", /./],
  ])(
    "a server that misbehaves by `%s` fails its own call and no other call",
    { timeout: 60_000 },
    async (habit, says) => {
      const others = steadily(steady, "good.read");
      const mine = steadily(caller, "good.write");
      let answer: Awaited<ReturnType<Client["callTool"]>> | Error;
      const loads: Awaited<ReturnType<typeof others.stop>>[] = [];
      try {
        answer = await caller.callTool(`bad.${habit}`, {}).catch((error: Error) => error);
        await sleep(200);
      } finally {
        for (const load of [others, mine]) loads.push(await load.stop());
      }
      expect(answer instanceof Error || answer.isError === true).toBe(true);
      expect(answer instanceof Error ? answer.message : JSON.stringify(answer)).toMatch(says);
      for (const { good: calls, bad } of loads) {
        expect(bad).toEqual([]);
        expect(calls).toBeGreaterThan(0);
      }
      // It is back for the next call, by itself.
      let back: unknown;
      for (let i = 0; i < 30; i++) {
        back = await caller.callTool("bad.echo", { text: "again" }).catch((error: Error) => error);
        if (!(back instanceof Error) && (back as { isError?: boolean }).isError !== true) break;
        await sleep(300);
      }
      expect(back).toMatchObject({ content: [{ text: "again" }] });
    },
  );

  it("every permitted call of a misbehaving server is recorded with its outcome", async () => {
    await sleep(200);
    const { decisions, outcomes } = await outcomesOf(deployment);
    expect(decisions).toBeGreaterThan(10);
    expect(outcomes).toBe(decisions);
  });
});

describe("PostgreSQL that goes away and comes back", () => {
  let postgres: PostgresCluster;
  let deployment: Deployment;
  let good: Counting;

  beforeAll(async () => {
    postgres = await startPostgres();
    deployment = await deploy("permit (principal, action, resource);", { storage: await postgres.database() });
    good = await counting("good");
    await deployment.put("team", { servers: { up: { url: good.url, noGuardrail: ["*"] } } });
  });
  afterAll(async () => {
    await deployment.close();
    await good.close();
    await postgres.stop();
  });

  it("an interruption of PostgreSQL fails no call, and later changes take effect", { timeout: 120_000 }, async () => {
    const token = await deployment.key("team", "worker");
    const client = await deployment.client(token);
    await client.callTool("read", { text: "warm" });
    const load = steadily(client, "read");
    try {
      await postgres.restart("immediate");
      await sleep(1_000);
      await postgres.restart("fast");
    } finally {
      await load.stop();
    }
    const { good: calls, bad } = await load.stop();
    expect(bad).toEqual([]);
    expect(calls).toBeGreaterThan(5);
    const [key] = (await deployment.runtime.storage.keys.list({ app: "team" })).items;
    await deployment.runtime.storage.keys.revoke(key?.id as string, "test");
    let refused: unknown;
    for (let i = 0; i < 50 && refused === undefined; i++) {
      await sleep(100);
      refused = await client.callTool("read", { text: "x" }).then(
        () => undefined,
        (error: Error) => error,
      );
    }
    expect(String(refused)).toMatch(/credential|401|Authentication/i);
    await client.close();
  });
});
