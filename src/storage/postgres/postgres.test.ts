import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import pg from "pg";
import { type PostgresCluster, startPostgres } from "../fixtures/postgres.js";
import { type FaultyLine, faultyLine } from "../fixtures/faulty-line.js";
import { openStorage } from "../open.js";
import { storageContract } from "../storage.contract.js";
import type { Storage } from "../types.js";

let cluster: PostgresCluster;
beforeAll(async () => {
  cluster = await startPostgres();
});
afterAll(() => cluster?.stop());

storageContract("PostgreSQL", async () => {
  const url = await cluster.database();
  return { open: (options) => openStorage(url, options), close: async () => {} };
});

describe("PostgreSQL", () => {
  const opened: Storage[] = [];
  const open = async (url: string, options = {}): Promise<Storage> => {
    const storage = await openStorage(url, { maxConnections: 4, ...options });
    opened.push(storage);
    return storage;
  };
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  afterAll(async () => {
    for (const storage of opened) await storage.close();
  });

  it("has its tables made once when several replicas start together", async () => {
    const url = await cluster.database();
    const all = await Promise.all(Array.from({ length: 6 }, () => open(url)));
    await all[0]?.applications.put("blog", {}, "test");
    expect((await all[5]?.applications.get("blog"))?.revision).toBe(1);
  });

  it("of a newer version is refused", async () => {
    const url = await cluster.database();
    await open(url);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("UPDATE portcullis_version SET version = 99");
    await client.end();
    await expect(openStorage(url)).rejects.toMatchObject({ code: "STORAGE_VERSION" });
  });

  describe.each(["fast", "immediate"] as const)("restarted (%s) under use", (how) => {
    it("loses no acknowledged write, does none twice, and half of none", async () => {
      const url = await cluster.database();
      const [one, two] = [await open(url, { waitMs: 20_000 }), await open(url, { waitMs: 20_000 })];
      await one.values.set("blog", "n", 0);
      let acknowledged = 0;
      let running = true;
      const heard = new Set<string>();
      const stop = await two.feed.watch({ change: ({ name }) => heard.add(name), resync: () => {} });
      const counter = async (storage: Storage): Promise<void> => {
        while (running) {
          const now = await storage.values.get("blog", "n");
          const next = (now?.value as number) + 1;
          if (await storage.values.set("blog", "n", next, { version: now?.version as number })) acknowledged++;
        }
      };
      let made = 0;
      const maker = async (): Promise<void> => {
        while (running) expect(await one.applications.put(`app${++made}`, {}, "test", 0)).toBeDefined();
      };
      const all = Promise.all([counter(one), counter(two), counter(one), maker()]);
      for (let i = 0; i < 2; i++) {
        await pause(300);
        await cluster.restart(how);
      }
      await pause(500);
      running = false;
      await all;
      const last = await two.values.get("blog", "n");
      expect(acknowledged).toBeGreaterThan(20);
      expect(last?.value).toBe(acknowledged);
      expect(await two.applications.get(`app${made}`)).toMatchObject({ revision: 1 });
      // Every application, and everyone has heard of every one.
      const until = performance.now() + 3_000;
      while (heard.size < made && performance.now() < until) await pause(20);
      expect(heard.size).toBe(made);
      stop();
    });
  });

  it("that stays away fails clearly, within the bound, and works again when it is back", async () => {
    const url = await cluster.database();
    const storage = await open(url, { waitMs: 400 });
    await cluster.halt("fast");
    const began = performance.now();
    await expect(storage.applications.put("blog", {}, "test")).rejects.toMatchObject({
      code: "STORAGE_UNAVAILABLE",
      message: expect.stringContaining("nothing was written"),
    });
    expect(performance.now() - began).toBeLessThan(3_000);
    await cluster.start();
    expect((await storage.applications.put("blog", {}, "test"))?.revision).toBe(1);
  });

  describe("a line that breaks at the commit", () => {
    let line: FaultyLine;
    let storage: Storage;
    beforeAll(async () => {
      const url = await cluster.database();
      line = await faultyLine(url);
      storage = await open(line.url, { waitMs: 10_000 });
    });
    afterAll(() => line.close());

    it("after the server has it: the write is known to have happened, and is not done again", async () => {
      line.breakAtCommit("after", 1);
      expect((await storage.applications.put("after", {}, "test"))?.revision).toBe(1);
      expect(line.broken).toBe(1);
      expect((await storage.applications.get("after"))?.revision).toBe(1);
      await storage.challenges.open(
        { id: "c", key: "c", app: "x", state: "approved", document: {}, ttlMs: 60_000 },
        10,
      );
      line.breakAtCommit("after", 1);
      expect(await storage.challenges.move("c", "approved", "redeemed")).toBeDefined();
      expect(await storage.challenges.move("c", "approved", "redeemed")).toBeUndefined();
    });

    it("before the server has it: the write is done again, once", async () => {
      line.breakAtCommit("before", 3);
      expect((await storage.applications.put("before", {}, "test"))?.revision).toBe(1);
      expect(line.broken).toBeGreaterThanOrEqual(3);
      const seqs = (await storage.feed.since(0))?.filter(({ name }) => name === "before");
      expect(seqs).toHaveLength(1);
    });

    it("and stays broken: the caller is told that nobody knows", async () => {
      const hasty = await open(line.url, { waitMs: 300 });
      line.breakAtCommit("after", 1, true);
      await expect(hasty.applications.put("unknown", {}, "test")).rejects.toMatchObject({ code: "STORAGE_UNCERTAIN" });
      line.mend();
      expect((await storage.applications.get("unknown"))?.revision).toBe(1);
    });
  });

  it("is swept of what has expired", async () => {
    const url = await cluster.database();
    const storage = await open(url, { sweepMs: 40 });
    await storage.values.set("blog", "short", 1, { ttlMs: 1 });
    await storage.values.set("blog", "long", 1);
    await storage.leases.lease("k", 1, { tokens: 1_000, periodMs: 1, burst: 1 });
    const looker = new pg.Client({ connectionString: url });
    await looker.connect();
    const left = async () => (await looker.query("SELECT key FROM runtime_values UNION SELECT key FROM leases")).rows;
    await vi.waitFor(async () => expect(await left()).toEqual([{ key: "long" }]), 3_000);
    await looker.end();
  });

  it("ends a statement that takes too long", async () => {
    const url = await cluster.database();
    const storage = await open(url, { statementTimeoutMs: 200, waitMs: 300 });
    await storage.applications.put("blog", {}, "test");
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    await holder.query("BEGIN; UPDATE applications SET revision = 5");
    await expect(storage.applications.put("blog", {}, "test")).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
    await holder.query("ROLLBACK");
    await holder.end();
    expect((await storage.applications.put("blog", {}, "test"))?.revision).toBe(2);
  });
});
