// PostgreSQL is put back to a copy while replicas run, at once after something that counts once was used: before any
// replica could read of it.

import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../fixtures/postgres.js";
import { openStorage } from "../open.js";
import type { Storage } from "../types.js";

const BOUNDS = { perApp: 10, perAgent: 10 };
let cluster: PostgresCluster;
let a: Storage;
let b: Storage;
const stops: (() => void)[] = [];

beforeAll(async () => {
  cluster = await startPostgres();
}, 120_000);
afterAll(() => cluster?.stop());
beforeEach(async () => {
  const url = await cluster.database();
  a = await openStorage(url, { waitMs: 20_000 });
  b = await openStorage(url, { waitMs: 20_000 });
  for (const each of [a, b]) stops.push(await each.feed.watch({ change: () => {}, resync: () => {} }));
});
afterEach(async () => {
  for (const stop of stops.splice(0)) stop();
  await a.close();
  await b.close();
});

async function approved(id: string): Promise<void> {
  const facts = { id, key: id, app: "blog", agent: "writer", state: "pending", document: {}, payload: {} };
  await a.challenges.open({ ...facts, ttlMs: 600_000 }, BOUNDS);
  expect(await a.challenges.move(id, "pending", "approved")).toBeDefined();
}

/** What may be refused for a moment; undefined while it is. */
async function eventually<T>(work: () => Promise<T>): Promise<T> {
  for (let i = 0; ; i++) {
    try {
      return await work();
    } catch (error) {
      if (i === 100) throw error;
      await sleep(100);
    }
  }
}

it("redeems no approval that was redeemed a moment before the store was put back [H12]", {
  timeout: 120_000,
}, async () => {
  await approved("ch_1");
  const restore = await cluster.backup();
  expect(await eventually(() => a.challenges.move("ch_1", "approved", "redeemed"))).toBeDefined();
  await restore();
  const again = [b, a, b].map((each) => eventually(() => each.challenges.move("ch_1", "approved", "redeemed")));
  expect(await Promise.all(again)).toEqual([undefined, undefined, undefined]);
  expect((await b.challenges.get("ch_1"))?.state).toBe("expired");
  // What is opened afterwards counts.
  await approved("ch_2");
  expect(await eventually(() => b.challenges.move("ch_2", "approved", "redeemed"))).toBeDefined();
});

it("accepts no nonce again that was used a moment before the store was put back", { timeout: 120_000 }, async () => {
  const restore = await cluster.backup();
  expect(await eventually(() => a.once.first("nonce", 600_000))).toBe(true);
  await restore();
  const again = [b, a, b].map((each) => eventually(() => each.once.first("nonce", 600_000)));
  expect(await Promise.all(again)).toEqual([false, false, false]);
  expect(await eventually(() => b.once.first("another", 600_000))).toBe(true);
});

it("keeps approvals when PostgreSQL only restarted", { timeout: 120_000 }, async () => {
  await approved("ch_1");
  await approved("ch_2");
  expect(await a.challenges.move("ch_1", "approved", "redeemed")).toBeDefined();
  expect(await a.once.first("nonce", 600_000)).toBe(true);
  await cluster.restart("immediate");
  await sleep(2_000);
  expect(await eventually(() => b.challenges.move("ch_2", "approved", "redeemed"))).toBeDefined();
  expect(await eventually(() => b.challenges.move("ch_1", "approved", "redeemed"))).toBeUndefined();
});
