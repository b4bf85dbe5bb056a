// The restart test many times over: what it guards against shows in one restart of a few.

import { afterAll, beforeAll, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "../fixtures/postgres.js";
import { openStorage } from "../open.js";
import type { Storage } from "../types.js";

const RESTARTS = Number(process.env.RESTARTS ?? (process.env.CI ? 10 : 60));

let cluster: PostgresCluster;
beforeAll(async () => {
  cluster = await startPostgres();
});
afterAll(() => cluster?.stop());

/** After a lost connection nothing is redeemed before the history of the store was compared; that is tried again. */
async function redeemOnce(storage: Storage, id: string): Promise<unknown> {
  for (let tries = 0; ; tries++) {
    try {
      return await storage.challenges.move(id, "approved", "redeemed");
    } catch (error) {
      if (tries === 300 || !(error as Error).message.includes("its history is compared first")) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

it(`${RESTARTS} crashes of PostgreSQL under use lose and double nothing`, async () => {
  const stores = await Promise.all([1, 2, 3].map(() => openStorage(cluster.url, { waitMs: 30_000 })));
  const [first] = stores as [Storage];
  await first.values.set("blog", "n", 0);
  let acknowledged = 0;
  let redeemed = 0;
  let opened = 0;
  let running = true;
  const count = async (storage: Storage): Promise<void> => {
    while (running) {
      const now = await storage.values.get("blog", "n");
      const next = (now?.value as number) + 1;
      if (await storage.values.set("blog", "n", next, { version: now?.version as number })) acknowledged++;
    }
  };
  const redeem = async (): Promise<void> => {
    while (running) {
      const id = `c${++opened}`;
      await first.challenges.open(
        { id, key: id, app: "x", agent: "bot", state: "approved", document: {}, payload: {}, ttlMs: 600_000 },
        { perApp: 1_000, perAgent: 1_000 },
      );
      const moves = await Promise.all(stores.map((storage) => redeemOnce(storage, id)));
      expect(moves.filter(Boolean)).toHaveLength(1);
      redeemed++;
    }
  };
  const all = Promise.all([...stores.map(count), ...stores.map(count), redeem()]);
  for (let i = 0; i < RESTARTS; i++) {
    await new Promise((resolve) => setTimeout(resolve, 200 + Math.random() * 200));
    await cluster.restart(i % 3 === 0 ? "fast" : "immediate");
  }
  running = false;
  await all;
  expect((await first.values.get("blog", "n"))?.value).toBe(acknowledged);
  expect(redeemed).toBe(opened);
  for (const storage of stores) await storage.close();
});
