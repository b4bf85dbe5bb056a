// A store that is put back to an older copy, by the operator's own means, knows nothing of what was used since. What
// counts once must not count again: approvals and request states, with replicas that run on and with ones that start.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { read } from "../../src/ledger/index.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"publish", resource) unless { context.approved };
`;
const TEXT = { type: "object", properties: { text: { type: "string" } } } as const;

interface Result {
  readonly resultType?: string;
  readonly requestState?: string;
  readonly isError?: boolean;
  readonly structuredContent?: { readonly code?: string };
}
interface Answered {
  readonly result?: Result;
  readonly error?: { readonly message: string; readonly data?: { readonly code?: string } };
}

let replicas: Replicas;
let storage: Storage;
let downstream: Counting;
let token: string;
let reached: string[];

beforeEach(async () => {
  reached = [];
  downstream = await counting("restored", (server) => {
    const publish = ({ text = "" }: { text?: string }): string => (reached.push(text), "done");
    server.tool("publish", "needs an approval", TEXT, publish, { noGuardrailRequired: true });
  });
  replicas = await startReplicas(2, POLICY);
  storage = await openStorage(replicas.storage, { waitMs: 30_000 });
  await storage.applications.put("shop", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const request = { app: "shop", agent: "worker", name: "worker", permissions: ["invoke(*)"] };
  ({ token } = await createKey(storage.keys, request, "test"));
  for (const replica of replicas.all) await until(async () => codeOf(await call(replica, "warm")) === "CHALLENGE");
}, 120_000);

afterEach(async () => {
  await storage?.close().catch(() => {});
  await replicas?.close();
  await downstream?.close();
});

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 600; i++) {
    if (await isSo().catch(() => false)) return;
    await sleep(50);
  }
  throw new Error("not within 30 s");
}

async function call({ url }: Replica, text: string, capabilities: object = {}, state?: string): Promise<Answered> {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": capabilities,
  };
  const answers = { inputResponses: { portcullis_approval: { action: "accept" } }, requestState: state };
  const response = await fetch(url, {
    method: "POST",
    signal: AbortSignal.timeout(20_000),
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "publish",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "publish", arguments: { text }, _meta, ...(state === undefined ? {} : answers) },
    }),
  });
  return (await response.json()) as Answered;
}

const codeOf = ({ result, error }: Answered): string =>
  error?.data?.code ?? (result?.isError ? (result.structuredContent?.code ?? "error") : (result?.resultType ?? "ok"));

async function approve(text: string): Promise<string> {
  const operator = readFileSync(join(replicas.dir, "operator.token"), "utf8").trim();
  const headers = { authorization: `Bearer ${operator}`, "content-type": "application/json" };
  const { admin } = replicas.all.find(({ isUp }) => isUp) as Replica;
  const listed = await fetch(`${admin}/v1/approvals?state=pending`, { headers });
  const { approvals } = (await listed.json()) as { approvals: { id: string; arguments_preview: string }[] };
  const { id } = approvals.find((each) => each.arguments_preview.includes(`"${text}"`)) as { id: string };
  const answer = await fetch(`${admin}/v1/approvals/${id}/approve`, { method: "POST", headers, body: "{}" });
  expect(answer.status).toBe(200);
  return id;
}

/** An approved request is in the copy of the store; it is redeemed after the copy was made. */
async function redeemedAfterCopy(text: string, at: Replica): Promise<() => Promise<void>> {
  expect(codeOf(await call(at, text))).toBe("CHALLENGE");
  await approve(text);
  const restore = await replicas.postgres.backup();
  await until(async () => (await call(at, text)).result?.resultType === "complete");
  expect(reached.filter((each) => each === text)).toHaveLength(1);
  return restore;
}

async function expectNotAgain(text: string): Promise<void> {
  for (let i = 0; i < 5; i++) {
    for (const replica of replicas.all) if (replica.isUp) await call(replica, text).catch(() => {});
    await sleep(200);
  }
  for (const replica of replicas.all)
    if (replica.isUp) await until(async () => codeOf(await call(replica, text)) === "CHALLENGE");
  expect(reached.filter((each) => each === text)).toHaveLength(1);
}

it("does not run an approved call again after the store was restored under running replicas [H12]", {
  timeout: 120_000,
}, async () => {
  const [first] = replicas.all as [Replica, Replica];
  const restore = await redeemedAfterCopy("running", first);
  await restore();
  await expectNotAgain("running");
  // A new approval counts, once.
  await approve("running");
  await until(async () => (await call(first, "running")).result?.resultType === "complete");
  expect(reached.filter((each) => each === "running")).toHaveLength(2);
});

it("does not run an approved call again after the store was restored while no replica ran [H12]", {
  timeout: 120_000,
}, async () => {
  const [first, second] = replicas.all as [Replica, Replica];
  const restore = await redeemedAfterCopy("killed", first);
  await replicas.kill(first);
  await replicas.kill(second);
  await restore();
  // The one that did not execute the call starts first, and alone.
  await replicas.start(second);
  await expectNotAgain("killed");
  await replicas.start(first);
  await expectNotAgain("killed");
});

it("refuses a request state that was used before the store was restored [H12]", { timeout: 120_000 }, async () => {
  const [first, second] = replicas.all as [Replica, Replica];
  const opensPages = { elicitation: { url: {} } };
  const { result } = await call(first, "state", opensPages);
  expect(result?.resultType).toBe("input_required");
  const state = result?.requestState as string;
  await approve("state");
  const restore = await replicas.postgres.backup();
  await until(async () => (await call(first, "state", opensPages, state)).result?.resultType === "complete");
  await restore();
  for (const replica of [second, first]) {
    await until(async () => {
      const { error } = await call(replica, "state", opensPages, state);
      return error?.data?.code !== "UNAVAILABLE" && /requestState/.test(error?.message ?? "");
    });
  }
  expect(reached.filter((each) => each === "state")).toHaveLength(1);
});

it("keeps open approvals when a replica is killed and the store was not restored", { timeout: 120_000 }, async () => {
  const [first, second] = replicas.all as [Replica, Replica];
  expect(codeOf(await call(first, "kept"))).toBe("CHALLENGE");
  expect(codeOf(await call(first, "spent"))).toBe("CHALLENGE");
  await approve("kept");
  await approve("spent");
  await until(async () => (await call(first, "spent")).result?.resultType === "complete");
  await replicas.kill(first);
  await replicas.start(first);
  await until(async () => (await call(second, "kept")).result?.resultType === "complete");
  expect(reached.filter((each) => each === "kept")).toHaveLength(1);
  await replicas.kill(first);
  const events: string[] = [];
  for await (const { record } of read(first.ledgerDir)) if (record.kind === "challenge") events.push(record.event);
  expect(events).toContain("redeemed");
});

it("keeps a key revoked after the store was restored while no replica ran", { timeout: 120_000 }, async () => {
  const [first, second] = replicas.all as [Replica, Replica];
  const restore = await replicas.postgres.backup();
  const id = token.split("_").slice(0, 2).join("_");
  expect(await storage.keys.revoke(id, "test")).toBe(true);
  // One of the replicas records the change.
  const isRecorded = async (): Promise<boolean> => {
    for (const { ledgerDir } of replicas.all) {
      for await (const { record } of read(ledgerDir)) {
        if (record.kind === "admin" && record.action === "key.revoke") return true;
      }
    }
    return false;
  };
  await until(isRecorded);
  await replicas.kill(first);
  await replicas.kill(second);
  await restore();
  await replicas.start(second);
  expect(codeOf(await call(second, "revoked"))).toBe("UNAUTHENTICATED");
  await replicas.start(first);
  expect(codeOf(await call(first, "revoked"))).toBe("UNAUTHENTICATED");
});
