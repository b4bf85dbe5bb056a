// The key of request states is replaced while calls, approvals and sessions are under way at two replicas: nothing that is
// valid is refused, and what the old key encrypted does not count after the overlap.

import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { keysOrLocal } from "../../src/runtime/identity.js";
import { type GatewayRuntime, startGateway } from "../../src/runtime/start.js";
import { rotateSharedKey } from "../../src/runtime/store/sealer.js";
import { type Counting, counting } from "./gateway-world.js";
import { root } from "./serving.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"publish", resource) unless { context.approved };
`;
const TEXT = { type: "object", properties: { text: { type: "string" } } } as const;
/** The gateways run in this process: while a command is waited for, they continue. */
const rotate = (...args: string[]): Promise<unknown> =>
  promisify(execFile)(process.execPath, [
    join(root, "dist", "cli", "main.js"),
    ...["--dir", dir, "rotate", "request-state-key", ...args],
  ]);
const APPROVER = { name: "anna", groups: ["operators"] };

let dir: string;
let token: string;
let downstream: Counting;
const reached: string[] = [];
const gateways: GatewayRuntime[] = [];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-rotating-"));
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "test.cedar"), POLICY);
  reached.length = 0;
  downstream = await counting("rotating", (server) => {
    const publish = ({ text = "" }: { text?: string }): string => (reached.push(text), "done");
    server.tool("publish", "needs an approval", TEXT, publish, { noGuardrailRequired: true });
  });
  for (const replica of ["r1", "r2"]) {
    gateways.push(
      await startGateway({
        stateDir: dir,
        replica,
        ledger: join(dir, "ledgers", replica),
        telemetry: { log: { level: "critical" } },
        http: { host: "127.0.0.1", port: 0 },
        admin: { host: "127.0.0.1", port: 0 },
        limits: { challengeWaitMs: 0 },
        identity: keysOrLocal({ localApp: "local", isLoopback: false }),
      }),
    );
  }
  const { storage } = at(0);
  await storage.applications.put("shop", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } }, "test");
  const request = { app: "shop", agent: "worker", name: "worker", permissions: ["invoke(*)"] };
  ({ token } = await createKey(storage.keys, request, "test"));
  for (const index of [0, 1]) await expect.poll(async () => (await call(index, "warm")).requestState).toBeTruthy();
});

afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.close().catch(() => {});
  await downstream.close();
  rmSync(dir, { recursive: true, force: true });
});

const at = (index: number): GatewayRuntime => gateways[index] as GatewayRuntime;

interface Result {
  readonly resultType?: string;
  readonly requestState?: string;
  readonly message?: string;
}

/** The result, or the error with its message. */
async function call(index: number, text: string, requestState?: string): Promise<Result> {
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": { elicitation: { url: {} } },
  };
  const answer = { requestState, inputResponses: { portcullis_approval: { action: "accept" } } };
  const params = { name: "publish", arguments: { text }, _meta, ...(requestState === undefined ? {} : answer) };
  const response = await fetch(at(index).listeners[0]?.url as string, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "publish",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params }),
  });
  const { result, error } = (await response.json()) as { result?: Result; error?: Result };
  return result ?? (error as Result);
}

/** The state of a call that waits for its approval, which is given. */
async function approvedState(index: number, text: string): Promise<string> {
  const { requestState } = await call(index, text);
  const { approvals } = at(index);
  const [found] = (await approvals.list()).filter((each) => each.argumentsPreview.includes(`"${text}"`));
  await approvals.approve(found?.id as string, APPROVER);
  return requestState as string;
}

it("continues every call that waits for input while the key of request states is replaced [H12]", async () => {
  const client = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
  };
  const url = at(0).listeners[0]?.url as string;
  const initialize = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "c", version: "1" } };
  const begun = await fetch(url, {
    method: "POST",
    headers: client,
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: initialize }),
  });
  await begun.text();
  const session = begun.headers.get("mcp-session-id") as string;
  const inSession = (index: number, message: object): Promise<Response> =>
    fetch(at(index).listeners[0]?.url as string, {
      method: "POST",
      headers: { ...client, "mcp-session-id": session },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    });
  await (await inSession(0, { method: "notifications/initialized" })).text();
  let isOver = false;
  const failures: string[] = [];
  const load = [0, 1].map(async (index) => {
    for (let n = 0; !isOver; n++) {
      const text = `${index}-${n}`;
      const state = await approvedState(index, text);
      const result = await call(1 - index, text, state);
      if (result.resultType !== "complete") failures.push(`${text}: ${JSON.stringify(result)}`);
    }
  });
  const held = await approvedState(0, "held");
  await rotate();
  // Encrypted with the old key, opened by both replicas after it was replaced.
  expect((await call(1, "held", held)).resultType).toBe("complete");
  await sleep(1_000);
  isOver = true;
  await Promise.all(load);
  expect(failures).toEqual([]);
  const listed = await inSession(1, { id: 2, method: "tools/list", params: {} });
  expect(listed.status).toBe(200);
  expect(await listed.text()).toContain("publish");
  expect(reached.length).toBe(new Set(reached).size);
});

it("refuses what the old key encrypted after the overlap, and at once when the operator says so", async () => {
  const { storage, sealer } = at(0);
  const late = await approvedState(0, "late");
  await rotateSharedKey(storage, sealer, 1_000);
  await sleep(1_500);
  for (const index of [1, 0]) expect((await call(index, "late", late)).message).toMatch(/requestState.*not valid/);
  const known = await approvedState(0, "known");
  const others = await Promise.all([0, 1].map(async (index) => await approvedState(index, `other-${index}`)));
  await rotate("--at-once");
  // A replica reads of the change from the store a moment after the command has ended.
  for (const index of [1, 0]) {
    const other = (): Promise<Result> => call(index, `other-${index}`, others[index]);
    await expect.poll(async () => (await other()).message).toMatch(/requestState.*not valid/);
  }
  for (const index of [1, 0]) expect((await call(index, "known", known)).message).toMatch(/requestState.*not valid/);
  expect(reached).not.toContain("late");
  expect(reached).not.toContain("known");
});
