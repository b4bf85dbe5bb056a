// `pg_restore` puts the store back in place while replicas are connected and under load: tables are dropped and created
// again, and no connection breaks.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { createKey } from "../../src/auth/index.js";
import { openStorage, type Storage } from "../../src/storage/index.js";
import { missingPrograms } from "../setup/programs.js";
import { type Counting, counting } from "./gateway-world.js";
import { type Replica, type Replicas, startReplicas } from "./replicas.js";
import { slack } from "./serving.js";

const POLICY = `
permit (principal, action, resource);
@id("ask") @outcome("challenge") @approvers("operators")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;
const RECOVERY_MS = 5_000;
const noServer = existsSync("/usr/lib/postgresql") ? missingPrograms("pg_restore") : "skipped: no PostgreSQL server";

let replicas: Replicas | undefined;
let storage: Storage | undefined;
let upstream: Counting | undefined;
let other: Counting | undefined;
/** Ends the load of a test, also of one that failed. */
let isOver = false;

afterEach(async () => {
  isOver = true;
  await storage?.close().catch(() => {});
  await replicas?.close();
  await upstream?.close();
  await other?.close();
});

async function call({ url }: Replica, token: string, tool = "read", text = "x"): Promise<number> {
  const response = await fetch(new URL(`/tools/${tool}`, url), {
    method: "POST",
    signal: AbortSignal.timeout(20_000),
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ text }),
  });
  await response.arrayBuffer();
  return response.status;
}

async function approveAll(): Promise<void> {
  const { dir, all } = replicas as Replicas;
  const operator = readFileSync(join(dir, "operator.token"), "utf8").trim();
  const headers = { authorization: `Bearer ${operator}`, "content-type": "application/json" };
  const { admin } = all[0] as Replica;
  const listed = await fetch(`${admin}/v1/approvals?state=pending`, { headers });
  const { approvals } = (await listed.json()) as { approvals: { id: string }[] };
  for (const { id } of approvals) {
    const answer = await fetch(`${admin}/v1/approvals/${id}/approve`, { method: "POST", headers, body: "{}" });
    expect(answer.status).toBe(200);
  }
}

async function within(ms: number, what: string, isSo: () => Promise<boolean>): Promise<number> {
  const began = performance.now();
  while (!(await isSo().catch(() => false))) {
    if (performance.now() - began > ms) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(50);
  }
  return Math.round(performance.now() - began);
}

describe.skipIf(noServer !== undefined)(`a restore in place ${noServer ?? ""}`.trim(), () => {
  it.each(["clean", "one transaction", "schema dropped"] as const)(
    "follows a store that pg_restore puts back in place (%s), with every revocation and no approval used twice",
    { timeout: 240_000 },
    async (how) => {
      upstream = await counting("one");
      other = await counting("one");
      replicas = await startReplicas(2, POLICY, [], { isSystemPostgres: true });
      const { all, postgres } = replicas;
      const store = await openStorage(replicas.storage, { waitMs: 30_000, sweepMs: 0 });
      storage = store;
      const document = (server: Counting) => ({ servers: { up: { url: server.url, noGuardrail: ["*"] } } });
      const add = (name: string) =>
        createKey(store.keys, { app: "shop", agent: name, name, permissions: ["invoke(*)"] }, "test");
      await store.applications.put("shop", document(upstream), "test");
      const [lasting, revoked, before] = [await add("lasting"), await add("revoked"), await add("before")];
      await store.keys.revoke(before.key.id, "test");
      const first = all[0] as Replica;
      const everywhere = async (token: string, status: number): Promise<boolean> =>
        (await Promise.all(all.map((replica) => call(replica, token)))).every((each) => each === status);
      await within(30_000, "keys are known", () => everywhere(lasting.token, 200));
      expect(await call(first, lasting.token, "write")).not.toBe(200);
      await approveAll();

      const putBack = await postgres.dump(replicas.storage);
      await within(10_000, "the approval counts", async () => (await call(first, lasting.token, "write")) === 200);
      const late = await add("late");
      await store.keys.revoke(revoked.key.id, "test");
      await store.applications.put("shop", document(other), "test");
      await within(30_000, "the changes are known", () => everywhere(late.token, 200));
      await within(30_000, "the revocation is known", () => everywhere(revoked.token, 401));
      const reaches = async (replica: Replica, server: Counting): Promise<boolean> => {
        const count = server.calls.length;
        await call(replica, lasting.token);
        return server.calls.length > count;
      };
      for (const replica of all) await within(30_000, "the new server", () => reaches(replica, other as Counting));

      isOver = false;
      let accepted = 0;
      const load = all.map(async (replica) => {
        while (!isOver) {
          if ((await call(replica, revoked.token).catch(() => 0)) === 200) accepted++;
          await call(replica, lasting.token, "write").catch(() => 0);
        }
      });
      await putBack(how);
      const ended = performance.now();
      const recoveryMs = RECOVERY_MS * slack();
      for (const replica of all) {
        await within(recoveryMs, `the server of the copy at ${replica.name}`, () =>
          reaches(replica, upstream as Counting),
        );
        await within(recoveryMs, "ready", async () => (await fetch(`${replica.admin}/readyz`)).status === 200);
      }
      await within(recoveryMs, "a key that the copy lacks is refused", () => everywhere(late.token, 401));
      await within(recoveryMs, "a key of the copy works", () => everywhere(lasting.token, 200));
      expect(performance.now() - ended).toBeLessThan(recoveryMs);
      await sleep(1_500);
      isOver = true;
      await Promise.all(load);
      expect(accepted).toBe(0);
      expect(await everywhere(revoked.token, 401)).toBe(true);
      expect(await everywhere(before.token, 401)).toBe(true);
      expect((await store.keys.get(revoked.key.id))?.revokedAt).toBeTypeOf("number");
      const writes = [...upstream.calls, ...other.calls].filter((name) => name === "write");
      expect(writes).toHaveLength(1);
    },
  );
});
