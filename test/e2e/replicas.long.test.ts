// Three replicas on one PostgreSQL, and one of them is killed every few seconds while calls run: every acknowledged call
// is on record exactly once, no approval is spent twice, no limit is exceeded by more than one burst.

import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { read, verify } from "../../src/ledger/index.js";
import { openStorage } from "../../src/storage/index.js";
import { counting } from "./gateway-world.js";
import { type Replica, startReplicas } from "./replicas.js";

const SECONDS = Number(process.env.CHAOS_SECONDS ?? (process.env.CI ? 30 : 300));
const CALLERS = 8;
const PER_MINUTE = 60;
const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;

interface Answer {
  readonly status: number;
  readonly body: { result?: { isError?: boolean; structuredContent?: { code?: string } }; error?: object } | undefined;
}

let nextId = 0;
async function call(replica: Replica, token: string, name: string, text: string): Promise<Answer | undefined> {
  try {
    const response = await fetch(replica.url, {
      method: "POST",
      signal: AbortSignal.timeout(20_000),
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": name,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: nextId++,
        method: "tools/call",
        params: {
          name,
          arguments: { text },
          _meta: {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
          },
        },
      }),
    });
    return { status: response.status, body: (await response.json()) as Answer["body"] };
  } catch {
    // The replica was killed meanwhile: nothing was acknowledged.
    return undefined;
  }
}

const isGood = (answer: Answer | undefined): boolean =>
  answer?.body?.result !== undefined && answer.body.result.isError !== true;

it(`${SECONDS} s of load while replicas are killed lose nothing acknowledged and spend nothing twice [H12]`, async () => {
  const reached: string[] = [];
  const downstream = await counting("replicas", (server) => {
    server.tool(
      "count",
      "counts",
      { type: "object", properties: { text: { type: "string" } } },
      ({ text }) => {
        reached.push(text ?? "");
        return "counted";
      },
      { noGuardrailRequired: true },
    );
  });
  const replicas = await startReplicas(3, POLICY);
  const storage = await openStorage(replicas.storage);
  try {
    await storage.applications.put("busy", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
    const keyFor = async (agent: string, limits?: object): Promise<string> => {
      const request = { app: "busy", agent, name: agent, permissions: ["invoke(*)"], ...(limits ? { limits } : {}) };
      return (await createKey(storage.keys, request, "test")).token;
    };
    const token = await keyFor("worker");
    const limited = await keyFor("limited", { perMinute: PER_MINUTE });
    const some = (): Replica => {
      const up = replicas.all.filter((replica) => replica.isUp);
      return up[Math.floor(Math.random() * up.length)] as Replica;
    };
    for (let i = 0; i < 40 && !isGood(await call(some(), token, "count", "warm-up")); i++) await sleep(500);

    const until = Date.now() + SECONDS * 1_000;
    const acknowledged: string[] = [];
    let within = 0;
    const limitedFrom = Date.now();
    const worker = async (id: number): Promise<void> => {
      for (let n = 0; Date.now() < until; n++) {
        const text = `${id}-${n}`;
        if (isGood(await call(some(), token, "count", text))) acknowledged.push(text);
      }
    };
    const limitedCaller = async (): Promise<void> => {
      for (let n = 0; Date.now() < until; n++) {
        if (isGood(await call(some(), limited, "read", `limited-${n}`))) within++;
        else await sleep(50);
      }
    };
    /** Each challenge is approved once and then tried at all replicas at the same time. */
    let spent = 0;
    let opened = 0;
    const approving = async (): Promise<void> => {
      for (let n = 0; Date.now() < until; n++) {
        const text = `approve-${n}`;
        await call(some(), token, "write", text);
        const open = await storage.challenges.list(100).catch(() => []);
        const mine = open.find((each) => JSON.stringify(each.document).includes(text));
        if (!mine || !(await storage.challenges.move(mine.id, "pending", "approved").catch(() => undefined))) continue;
        opened++;
        const tries = await Promise.all(replicas.all.map((replica) => call(replica, token, "write", text)));
        spent += tries.filter(isGood).length;
        await sleep(200);
      }
    };
    const killing = async (): Promise<void> => {
      while (Date.now() < until) {
        await sleep(3_000 + Math.random() * 2_000);
        const victim = some();
        if (replicas.all.filter((replica) => replica.isUp).length < 2) continue;
        await replicas.kill(victim);
        await sleep(500);
        await replicas.start(victim);
      }
    };
    await Promise.all([
      ...Array.from({ length: CALLERS }, (_, id) => worker(id)),
      limitedCaller(),
      approving(),
      killing(),
    ]);

    const writes = downstream.calls.filter((name) => name === "write").length;
    expect(acknowledged.length).toBeGreaterThan(SECONDS);
    // Exactly once: each acknowledged call reached the server once, and no two calls share an argument.
    const counts = new Map<string, number>();
    for (const text of reached) counts.set(text, (counts.get(text) ?? 0) + 1);
    expect(acknowledged.filter((text) => counts.get(text) !== 1)).toEqual([]);
    expect(opened).toBeGreaterThan(0);
    expect(writes).toBeLessThanOrEqual(opened);
    expect(spent).toBeLessThanOrEqual(opened);
    const minutes = (Date.now() - limitedFrom) / 60_000;
    expect(within).toBeLessThanOrEqual(Math.ceil(PER_MINUTE * minutes) + PER_MINUTE);

    for (const replica of replicas.all) await replicas.kill(replica);
    // What was killed in the middle is settled at the next start.
    for (const replica of replicas.all) await replicas.start(replica);
    for (const replica of replicas.all) await replicas.kill(replica);
    let decisions = 0;
    let outcomes = 0;
    for (const { ledgerDir } of replicas.all) {
      expect((await verify(ledgerDir)).problems).toEqual([]);
      for await (const { record } of read(ledgerDir)) {
        if (record.kind === "decision" && record.tool === "count" && record.effect === "permit") decisions++;
        if (record.kind === "outcome" && record.tool === "count") outcomes++;
      }
    }
    console.log(
      `${acknowledged.length} acknowledged, ${reached.length} reached the server, ${decisions} decisions, ${outcomes} outcomes; ` +
        `${opened} approved, ${writes} written; ${within} within ${PER_MINUTE} a minute`,
    );
    expect(outcomes).toBe(decisions);
    expect(decisions).toBeGreaterThanOrEqual(reached.length);
  } finally {
    await storage.close();
    await replicas.close();
    await downstream.close();
  }
});
