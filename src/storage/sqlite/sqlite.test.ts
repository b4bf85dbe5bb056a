import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import { openStorage } from "../open.js";
import { storageContract } from "../storage.contract.js";
import { openDriver, type SqliteLibrary } from "./driver.js";

const directory = mkdtempSync(join(tmpdir(), "portcullis-sqlite-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));
let files = 0;
const newFile = (): string => join(directory, `${++files}`, "store.db");

const hasOwn = process.getBuiltinModule("node:sqlite") !== undefined;
const libraries: SqliteLibrary[] = hasOwn ? ["node:sqlite", "libsql"] : ["libsql"];

describe.skipIf(hasOwn)("node:sqlite", () => {
  it.skip(
    `node:sqlite is not in Node ${process.version}: the contract runs on libsql here, and on both from Node 22.13`,
  );
});

for (const sqliteLibrary of libraries) {
  storageContract(`SQLite by ${sqliteLibrary} on a thread of its own`, async () => {
    const file = newFile();
    const fixed = { sqliteLibrary, isThreaded: true };
    return { open: (options) => openStorage(`sqlite:${file}`, { ...fixed, ...options }), close: async () => {} };
  });

  describe(`an SQLite file by ${sqliteLibrary}`, () => {
    it("is created once when several processes start together, readable by its owner only", async () => {
      const file = newFile();
      const opened = await Promise.all(
        Array.from({ length: 6 }, () => openStorage(`sqlite:${file}`, { sqliteLibrary })),
      );
      await opened[0]?.applications.put("blog", {}, "test");
      expect((await opened[5]?.applications.get("blog"))?.revision).toBe(1);
      const modes = readdirSync(join(file, "..")).map((name) => statSync(join(file, "..", name)).mode & 0o777);
      expect(new Set(modes)).toEqual(new Set([0o600]));
      for (const each of opened) await each.close();
    });

    it("is locked against other processes, however often this one has it open", async () => {
      const file = newFile();
      const one = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      await one.applications.put("blog", {}, "test");
      // Opening it once more must not cost the first connection its locks: the other process would take itself for
      // the only one, put the journal away, and the first would go on reading what was.
      const two = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      await two.close();
      const script = `const Libsql = require("libsql"); const db = new Libsql(process.argv[1]);
        db.exec("UPDATE applications SET revision = revision + 1"); db.close();`;
      for (const revision of [2, 3, 4]) {
        const other = spawnSync(process.execPath, ["-e", script, file], { cwd: import.meta.dirname, encoding: "utf8" });
        expect(other.stderr).toBe("");
        expect((await one.applications.get("blog"))?.revision).toBe(revision);
      }
      await one.close();
    });

    it("of an older version is brought up to date, with what is in it", async () => {
      const file = newFile();
      const before = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      await before.applications.put("blog", {}, "test");
      await before.close();
      const driver = openDriver(file, sqliteLibrary);
      for (const table of [
        "halts",
        "ledgers",
        "recorded",
        "access",
        "packs",
        "repositories",
        "store",
        "spent",
        "letters",
      ])
        driver.all(`DROP TABLE ${table}`, []);
      driver.all("DROP INDEX challenges_open", []);
      for (const column of ["agent", "payload"]) driver.all(`ALTER TABLE challenges DROP COLUMN ${column}`, []);
      // An approval request of before, with everything in its document.
      driver.all(
        `INSERT INTO challenges (id, key, app, state, live, document, created_at, expires_at)
         VALUES ('old', 'old', 'blog', 'pending', 1, '{"agent":"bot","argumentsText":"{}"}', 0, 99999999999999)`,
        [],
      );
      driver.all("UPDATE portcullis_version SET version = 1", []);
      driver.close();
      const after = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      expect((await after.applications.get("blog"))?.revision).toBe(1);
      expect(await after.once.first("x", 60_000)).toBe(true);
      expect((await after.challenges.get("old"))?.payload).toMatchObject({ argumentsText: "{}" });
      expect(await after.repositories.push("blog", undefined, "head", Buffer.from("pack"), "me")).toMatchObject({
        seq: 1,
      });
      await after.close();
    });

    it.each([
      ["a key that is revoked", "has no local access", "", true],
      ["had keys of an application that was removed", "has no local access", "DELETE FROM keys", true],
      ["a feed that was pruned", "has no local access", "DELETE FROM keys; DELETE FROM changes", true],
      ["no key ever", "keeps local access", "DELETE FROM keys; UPDATE changes SET topic = 'pin'", false],
    ])("of an older version with %s %s", async (_has, _then, statements, hasCredentials) => {
      const file = newFile();
      const before = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      await before.applications.put("blog", {}, "test");
      const key = { id: "k", app: "blog", agent: "a", name: "n", prefix: "p", permissions: [], limits: {} };
      await before.keys.add({ ...key, hash: "0".repeat(64) }, "test");
      await before.keys.revoke("k", "test");
      await before.close();
      const driver = openDriver(file, sqliteLibrary);
      for (const statement of [
        "DROP TABLE halts",
        "DROP TABLE access",
        "DROP TABLE recorded",
        "DROP TABLE ledgers",
        ...statements.split("; ").filter(Boolean),
      ])
        driver.all(statement, []);
      driver.all("UPDATE portcullis_version SET version = 4", []);
      driver.close();
      const after = await openStorage(`sqlite:${file}`, { sqliteLibrary });
      expect(await after.access.get()).toEqual({ localAccess: true, hasCredentials });
      await after.close();
    });

    it("of a newer version is refused, and left as it is", async () => {
      const file = newFile();
      await (await openStorage(`sqlite:${file}`, { sqliteLibrary })).close();
      const driver = openDriver(file, sqliteLibrary);
      driver.all("UPDATE portcullis_version SET version = 99", []);
      driver.close();
      await expect(openStorage(`sqlite:${file}`, { sqliteLibrary })).rejects.toMatchObject({ code: "STORAGE_VERSION" });
    });

    it("that is none is refused", async () => {
      const file = join(directory, `text-${sqliteLibrary.replace(":", "-")}`);
      writeFileSync(file, "not a database at all, but long enough to be mistaken for the header of one".repeat(20));
      await expect(openStorage(`sqlite:${file}`, { sqliteLibrary })).rejects.toMatchObject({ code: "STORAGE_VERSION" });
    });

    it("that another process holds is waited for without blocking, up to the bound", async () => {
      const file = newFile();
      const storage = await openStorage(`sqlite:${file}`, { sqliteLibrary, waitMs: 2_000 });
      const holder = openDriver(file, sqliteLibrary);
      holder.all("BEGIN IMMEDIATE", []);
      let ticks = 0;
      const ticking = setInterval(() => ticks++, 10);
      await expect(storage.applications.put("blog", {}, "test")).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
      clearInterval(ticking);
      expect(ticks).toBeGreaterThan(1);
      const waiting = storage.applications.put("blog", {}, "test");
      setTimeout(() => holder.all("COMMIT", []), 100);
      expect((await waiting)?.revision).toBe(1);
      holder.close();
      await storage.close();
    });

    it.each(["and its journal is left", "and its journal is removed"])(
      "follows the file that takes the place of its own %s",
      async (how) => {
        const file = newFile();
        const copy = `${file}-copy`;
        const storage = await openStorage(`sqlite:${file}`, { sqliteLibrary, waitMs: 5_000 });
        let resyncs = 0;
        const stop = await storage.feed.watch({ change: () => {}, resync: () => resyncs++ });
        await storage.applications.put("blog", {}, "test");
        const key = { id: "k", app: "blog", agent: "a", name: "n", prefix: "p", permissions: [], limits: {} };
        await storage.keys.add({ ...key, hash: "0".repeat(64) }, "test");
        const approval = { id: "ch_1", key: "ch_1", app: "blog", agent: "a", document: {}, payload: {} };
        const bounds = { perApp: 10, perAgent: 10 };
        await storage.challenges.open({ ...approval, state: "approved", ttlMs: 600_000 }, bounds);
        const driver = openDriver(file, sqliteLibrary);
        driver.all(`VACUUM INTO '${copy}'`, []);
        driver.close();
        expect(await storage.challenges.move("ch_1", "approved", "redeemed")).toBeDefined();
        expect(await storage.once.first("nonce", 600_000)).toBe(true);
        await storage.keys.revoke("k", "test");
        await storage.applications.put("lost", {}, "test");
        await vi.waitFor(async () => expect(storage.feed.lagMs).toBeLessThan(1_000), 60_000);
        if (how.endsWith("removed")) for (const end of ["-wal", "-shm"]) rmSync(file + end, { force: true });
        renameSync(copy, file);

        await vi.waitFor(() => expect(resyncs).toBe(1), 60_000);
        expect(await storage.applications.get("lost")).toBeUndefined();
        expect((await storage.keys.get("k"))?.revokedAt).toBeGreaterThan(0);
        expect(await storage.challenges.move("ch_1", "approved", "redeemed")).toBeUndefined();
        expect(await storage.once.first("nonce", 600_000)).toBe(false);
        // What is written from now on is in the file that others open.
        await storage.applications.put("after", {}, "test");
        const other = await openStorage(`sqlite:${file}`, { sqliteLibrary });
        expect((await other.applications.get("after"))?.revision).toBe(1);
        expect((await other.keys.get("k"))?.revokedAt).toBeGreaterThan(0);
        await other.applications.put("remote", {}, "test");
        expect((await storage.applications.get("remote"))?.revision).toBe(1);
        await other.close();
        stop();
        await storage.close();
      },
    );

    it("is unavailable while its file is missing or is not a whole store", async () => {
      const file = newFile();
      const storage = await openStorage(`sqlite:${file}`, { sqliteLibrary, waitMs: 200 });
      await storage.applications.put("blog", {}, "test");
      const whole = `${file}-whole`;
      const driver = openDriver(file, sqliteLibrary);
      driver.all(`VACUUM INTO '${whole}'`, []);
      driver.close();
      const unavailable = { code: "STORAGE_UNAVAILABLE", message: expect.stringContaining(file) };
      rmSync(file);
      await expect(storage.ping()).rejects.toMatchObject(unavailable);
      const bytes = readFileSync(whole);
      writeFileSync(file, "");
      await expect(storage.ping()).rejects.toMatchObject(unavailable);
      expect(readFileSync(file)).toHaveLength(0);
      writeFileSync(file, bytes.subarray(0, bytes.length / 2));
      await expect(storage.ping()).rejects.toMatchObject(unavailable);
      writeFileSync(file, bytes);
      expect((await storage.applications.get("blog"))?.revision).toBe(1);
      await storage.close();
    });

    it("is swept of what has expired", async () => {
      const file = newFile();
      const storage = await openStorage(`sqlite:${file}`, { sqliteLibrary, sweepMs: 40 });
      await storage.values.set("blog", "short", 1, { ttlMs: 1 });
      await storage.values.set("blog", "long", 1);
      await storage.leases.lease("k", 1, { tokens: 1_000, periodMs: 1, burst: 1 });
      const looker = openDriver(file, sqliteLibrary);
      const left = (): unknown => [
        looker.all("SELECT key FROM runtime_values", []).map(({ key }) => key),
        looker.all("SELECT key FROM leases", []).length,
      ];
      await vi.waitFor(() => expect(left()).toEqual([["long"], 0]), 60_000);
      looker.close();
      await storage.close();
    });

    it("takes only so many operations in its queue", async () => {
      const storage = await openStorage("sqlite::memory:", { sqliteLibrary, maxWaiting: 10 });
      const results = await Promise.allSettled(Array.from({ length: 15 }, () => storage.ping()));
      expect(results.filter(({ status }) => status === "rejected")).toHaveLength(5);
      await storage.close();
      await expect(storage.ping()).rejects.toThrow("the store is closed");
    });
  });
}

it("an address that is none is refused without being repeated", async () => {
  await expect(openStorage("mysql://root:hunter2@db/x")).rejects.toThrow(/^a store's address begins with sqlite: or/);
  await expect(openStorage("sqlite:")).rejects.toThrow("names no file");
});
