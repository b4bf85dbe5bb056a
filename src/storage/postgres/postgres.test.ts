import { once } from "node:events";
import { createServer } from "node:net";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type FaultyLine, faultyLine } from "../fixtures/faulty-line.js";
import { type PostgresCluster, startPostgres } from "../fixtures/postgres.js";
import { openStorage, sweep } from "../open.js";
import { storageContract } from "../storage.contract.js";
import type { Storage } from "../types.js";
import { listen } from "./connection.js";
import { openPostgres } from "./engine.js";

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

  it("PostgreSQL has its tables made once when several replicas start together", async () => {
    const url = await cluster.database();
    const all = await Promise.all(Array.from({ length: 6 }, () => open(url)));
    await all[0]?.applications.put("blog", {}, "test");
    expect((await all[5]?.applications.get("blog"))?.revision).toBe(1);
  });

  it("PostgreSQL of a newer version is refused", async () => {
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
      const progress = async (): Promise<void> => {
        const from = acknowledged;
        for (const until = performance.now() + 60_000; acknowledged < from + 10 && performance.now() < until; )
          await pause(20);
      };
      for (let i = 0; i < 2; i++) {
        await progress();
        await cluster.restart(how);
      }
      await progress();
      running = false;
      await all;
      const last = await two.values.get("blog", "n");
      expect(acknowledged).toBeGreaterThan(20);
      expect(last?.value).toBe(acknowledged);
      expect(await two.applications.get(`app${made}`)).toMatchObject({ revision: 1 });
      // Every application, and everyone has heard of every one.
      const until = performance.now() + 30_000;
      while (heard.size < made && performance.now() < until) await pause(20);
      expect(heard.size).toBe(made);
      stop();
    });
  });

  it("PostgreSQL that lost commits in a failover makes every watcher read everything again, also after it counted on", async () => {
    const url = await cluster.database();
    const storage = await open(url);
    for (let i = 0; i < 3; i++) await storage.applications.put(`app${i}`, {}, "test");
    let resyncs = 0;
    const stop = await storage.feed.watch({ change: () => {}, resync: () => resyncs++ });
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    // In one step the standby lacks the last change and has already made two others.
    await client.query("UPDATE changes SET name = 'another', at = at + 1 WHERE seq = (SELECT max(seq) FROM changes)");
    await storage.applications.put("later", {}, "test");
    await client.end();
    for (const until = performance.now() + 30_000; resyncs === 0 && performance.now() < until; ) await pause(20);
    expect(resyncs).toBe(1);
    stop();
  });

  it("PostgreSQL is not flooded with connections by a proxy that accepts and closes [H12]", async () => {
    let accepted = 0;
    let open = 0;
    let most = 0;
    const proxy = createServer((socket) => {
      accepted++;
      most = Math.max(most, ++open);
      socket.on("error", () => {});
      socket.on("close", () => open--);
      setTimeout(() => socket.destroy(), 5);
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    const { port } = proxy.address() as { port: number };
    const stop = await listen(
      { host: "127.0.0.1", port, user: "nobody", database: "none" },
      () => {},
      () => {},
    );
    await pause(3_000);
    await stop();
    const after = accepted;
    await pause(200);
    proxy.close();
    expect(most).toBe(1);
    expect(after).toBeGreaterThan(1);
    // 50 ms doubling to 2 s: five or six attempts in three seconds, never more than one at a time.
    expect(after).toBeLessThan(12);
    expect(accepted).toBe(after);
  });

  it("PostgreSQL has a bounded number of connections through a proxy that accepts and closes, and the feed recovers", async () => {
    const url = await cluster.database();
    const line = await faultyLine(url);
    const storage = await open(line.url, { waitMs: 200 });
    const other = await open(url);
    const seen = new Set<string>();
    let resyncs = 0;
    const stop = await storage.feed.watch({ change: ({ name }) => seen.add(name), resync: () => resyncs++ });
    let running = true;
    let calls = 0;
    const callers = Array.from({ length: 20 }, async () => {
      for (; running; calls++) await storage.applications.get("x").catch(() => pause(10));
    });
    for (let round = 0; round < 3; round++) {
      await line.cut("close");
      const [before, callsBefore] = [line.accepted, calls];
      await pause(1_500);
      // Each call waits longer after each failure: 12 attempts fit into its 200 ms. The listener and the feed make few.
      const begun = calls - callsBefore + callers.length;
      expect(line.accepted - before).toBeLessThan(12 * begun + 100);
      await line.mend();
      const [name, last] = [`round${round}`, resyncs];
      await other.applications.put(name, {}, "test");
      // A watcher that could not read meanwhile reads everything again, and is told of what comes after.
      await vi.waitFor(() => expect(resyncs > last || seen.has(name)).toBe(true), 30_000);
      await other.applications.put(`${name}-after`, {}, "test");
      await vi.waitFor(() => expect(seen.has(`${name}-after`)).toBe(true), 30_000);
    }
    running = false;
    await Promise.all(callers);
    stop();
    // Four of the pool and the one that listens.
    expect(line.mostOpen).toBeLessThanOrEqual(5);
    await line.close();
  });

  it("PostgreSQL that accepts connections and never answers fails reads and writes within the bound, and works again", async () => {
    const url = await cluster.database();
    const line = await faultyLine(url);
    const storage = await open(line.url, { waitMs: 1_000 });
    try {
      await storage.applications.put("blog", {}, "test");
      await line.cut("swallow");
      const began = performance.now();
      const failures = await Promise.all(
        // More than there are connections.
        Array.from({ length: 12 }, (_, i) =>
          (i % 2 === 0 ? storage.applications.get("blog") : storage.applications.put("blog", {}, "test")).then(
            () => "answered",
            ({ code }: { code: string }) => code,
          ),
        ),
      );
      expect(failures).toEqual(failures.map(() => "STORAGE_UNAVAILABLE"));
      // One second, and room for a loaded machine; the statement timeout is 10 s.
      expect(performance.now() - began).toBeLessThan(5_000);
      await line.mend();
      await vi.waitFor(() => storage.applications.put("blog", {}, "test"), 30_000);
      await line.cut("swallow");
      const closing = performance.now();
      await storage.close();
      expect(performance.now() - closing).toBeLessThan(10_000);
    } finally {
      await line.close();
    }
  });

  it("PostgreSQL that stays away fails clearly, within the bound, and works again when it is back", async () => {
    const url = await cluster.database();
    const storage = await open(url, { waitMs: 400 });
    await cluster.halt("fast");
    const began = performance.now();
    await expect(storage.applications.put("blog", {}, "test")).rejects.toMatchObject({
      code: "STORAGE_UNAVAILABLE",
      message: expect.stringContaining("nothing was written"),
    });
    expect(performance.now() - began).toBeLessThan(30_000);
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
        { id: "c", key: "c", app: "x", agent: "bot", state: "approved", document: {}, payload: {}, ttlMs: 60_000 },
        { perApp: 10, perAgent: 10 },
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

    it("reports an unknown outcome when the connection stays broken", async () => {
      const hasty = await open(line.url, { waitMs: 300 });
      line.breakAtCommit("after", 1, true);
      await expect(hasty.applications.put("unknown", {}, "test")).rejects.toMatchObject({ code: "STORAGE_UNCERTAIN" });
      await line.mend();
      expect((await storage.applications.get("unknown"))?.revision).toBe(1);
    });
  });

  it("PostgreSQL is swept of what has expired", async () => {
    const url = await cluster.database();
    const storage = await open(url, { sweepMs: 40 });
    await storage.values.set("blog", "short", 1, { ttlMs: 1 });
    await storage.values.set("blog", "long", 1);
    await storage.leases.lease("k", 1, { tokens: 1_000, periodMs: 1, burst: 1 });
    const looker = new pg.Client({ connectionString: url });
    await looker.connect();
    const left = async () => (await looker.query("SELECT key FROM runtime_values UNION SELECT key FROM leases")).rows;
    await vi.waitFor(async () => expect(await left()).toEqual([{ key: "long" }]), 60_000);
    await looker.end();
  });

  it("removes a backlog of expired rows in one round while another replica does the same", async () => {
    const url = await cluster.database();
    const settings = { waitMs: () => 30_000, maxWaiting: 100, maxConnections: 2, statementTimeoutMs: 10_000 };
    const engines = await Promise.all(
      ["one", "two"].map((origin) => openPostgres(url, { ...settings, origin, stalledTransactionMs: 1_000 })),
    );
    const [engine] = engines;
    try {
      await engine?.write((sql) =>
        sql.all("INSERT INTO spent (key, expires_at) SELECT 'k' || n, n FROM generate_series(1, 12000) AS n"),
      );
      await Promise.all(engines.map((each) => sweep(each)));
      expect(await engine?.read((sql) => sql.all("SELECT count(*) AS n FROM spent"))).toEqual([{ n: 0 }]);
    } finally {
      for (const each of engines) await each.close();
    }
  });

  describe("a transaction whose client stalls before its commit", () => {
    let line: FaultyLine;
    afterEach(() => line.close());

    it("blocks no write to other rows, and the feed misses neither [H12]", async () => {
      const url = await cluster.database();
      line = await faultyLine(url);
      // It stays open for the whole test: the other writes succeed without its end.
      const stalled = await open(line.url, { stalledTransactionMs: 120_000, waitMs: 60_000 });
      const other = await open(url);
      const before = await other.feed.latest();
      const heard: string[] = [];
      const stop = await other.feed.watch({ change: ({ name }) => heard.push(name), resync: () => {} });
      line.stallAtCommit();
      const late = stalled.applications.put("late", {}, "test");
      await vi.waitFor(() => expect(line.stalled).toBe(true), 30_000);
      for (let i = 0; i < 5; i++) await other.applications.put(`other${i}`, {}, "test");
      await other.challenges.open(
        { id: "c", key: "c", app: "x", agent: "bot", state: "pending", document: {}, payload: {}, ttlMs: 60_000 },
        { perApp: 10, perAgent: 10 },
      );
      const others = ["other0", "other1", "other2", "other3", "other4", "c"];
      await vi.waitFor(() => expect(heard).toEqual(others), 30_000);
      expect(line.stalled).toBe(true);
      line.resume();
      await late;
      await vi.waitFor(() => expect(heard).toEqual([...others, "late"]), 30_000);
      const numbers = ((await other.feed.since(before)) ?? []).map(({ seq }) => seq);
      expect(numbers).toEqual([1, 2, 3, 4, 5, 6, 7].map((n) => before + n));
      stop();
    });

    it("a transaction whose client stalls before its commit is ended by the server, so that writes to the same row continue and its own is done once [H12]", async () => {
      const url = await cluster.database();
      line = await faultyLine(url);
      const stalled = await open(line.url, { waitMs: 60_000 });
      const other = await open(url, { waitMs: 60_000 });
      await other.applications.put("shared", { description: "0" }, "test");
      line.stallAtCommit();
      const late = stalled.applications.put("shared", { description: "1" }, "test");
      await vi.waitFor(() => expect(line.stalled).toBe(true), 30_000);
      const began = performance.now();
      expect(await other.applications.put("shared", { description: "2" }, "test")).toMatchObject({ revision: 2 });
      // One second, and room for a loaded machine; before there was a timeout of 20 s.
      expect(performance.now() - began).toBeLessThan(10_000);
      line.resume();
      expect(await late).toMatchObject({ revision: 3 });
      expect(await other.applications.get("shared")).toMatchObject({ revision: 3, document: { description: "1" } });
    });
  });

  describe("a foreign client that holds locks in an open transaction", () => {
    it("keeps no other write and no watcher from going on", async () => {
      const url = await cluster.database();
      const [one, two] = [await open(url), await open(url)];
      await one.applications.put("locked", {}, "test");
      await one.feed.latest();
      const seen: string[] = [];
      const stop = await two.feed.watch({ change: ({ name }) => seen.push(name), resync: () => {} });
      const holder = new pg.Client({ connectionString: url });
      await holder.connect();
      await holder.query("BEGIN");
      for (const table of ["feed", "changes", "unnumbered_changes", "commits", "applications", "recorded", "store"]) {
        await holder.query(`SELECT * FROM ${table} FOR UPDATE`);
      }
      await holder.query(
        "INSERT INTO unnumbered_changes (topic, action, app, name, by_whom, at, origin) VALUES ('key', 'put', 'x', 'late', 'x', 1, 'x')",
      );
      // It stays open until everything below has happened.
      await one.applications.put("other", {}, "test");
      await two.values.set("other", "n", 1);
      await two.replicas.beat({ id: "r", ledgerOrigin: "o", detail: {} });
      await one.leases.lease("k", 1, { tokens: 1, periodMs: 1, burst: 1 });
      await vi.waitFor(() => expect(seen).toEqual(["other"]), 30_000);
      expect((await one.applications.get("locked"))?.revision).toBe(1);
      await holder.query("COMMIT");
      await holder.end();
      await vi.waitFor(() => expect(seen).toEqual(["other", "late"]), 30_000);
      stop();
    });

    it("keeps only changes waiting when it holds the lock of the numbering", async () => {
      const url = await cluster.database();
      const storage = await open(url);
      await storage.applications.put("first", {}, "test");
      const before = await storage.feed.latest();
      const holder = new pg.Client({ connectionString: url });
      await holder.connect();
      await holder.query("BEGIN; SELECT pg_advisory_xact_lock(7042161)");
      await storage.applications.put("second", {}, "test");
      expect(await storage.feed.latest()).toBe(before);
      await holder.query("COMMIT");
      await holder.end();
      expect(await storage.feed.latest()).toBe(before + 1);
    });
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
