import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PostgresCluster, startPostgres } from "./fixtures/postgres.js";
import { openStorage } from "./open.js";
import type { LoadReport, Storage, StoreChange } from "./types.js";

const directory = mkdtempSync(join(tmpdir(), "portcullis-dump-"));
let postgres: PostgresCluster;
let files = 0;
beforeAll(async () => {
  postgres = await startPostgres();
}, 120_000);
afterAll(async () => {
  await postgres.stop();
  rmSync(directory, { recursive: true, force: true });
});

type Kind = "sqlite" | "postgres";
const addressOf = async (kind: Kind): Promise<string> =>
  kind === "sqlite" ? `sqlite:${join(directory, `${++files}.db`)}` : postgres.database();
const open = (address: string): Promise<Storage> => openStorage(address, { sweepMs: 0 });

async function linesOf(storage: Storage): Promise<string[]> {
  const lines: string[] = [];
  await storage.dumps.write(async (line) => void lines.push(line));
  return lines;
}
async function* each(lines: readonly string[]): AsyncGenerator<string> {
  yield* lines;
}
const load = (storage: Storage, lines: readonly string[], revoke: string[] = []): Promise<LoadReport> =>
  storage.dumps.load(() => each(lines), { name: "b1", by: "cli:test", revoke });

const key = (id: string) => ({
  id,
  app: "blog",
  agent: "a",
  name: "a",
  hash: Buffer.from(id.padEnd(32, "x")).toString("hex"),
  prefix: id,
  permissions: ["list"],
  limits: {},
});
const challenge = (id: string) => ({
  id,
  key: `key-${id}`,
  app: "blog",
  agent: "a",
  state: "pending",
  document: {},
  payload: {},
  ttlMs: 600_000,
});
const bounds = { perApp: 100, perAgent: 100 };

async function fill(storage: Storage): Promise<void> {
  await storage.applications.put("blog", { description: "one" }, "test");
  await storage.keys.add(key("pk_1"), "test");
  await storage.keys.add(key("pk_2"), "test");
  await storage.secrets.put("blog", "db", Buffer.from([0, 1, 254, 255]), "test");
  await storage.values.set("blog", "counter", { n: 1.5 });
  await storage.repositories.push("blog", undefined, "head", Buffer.alloc(9 << 20, 7), "test");
  await storage.challenges.open(challenge("c1"), bounds);
  await storage.challenges.move("c1", "pending", "approved");
}

describe.each([
  ["sqlite", "sqlite"],
  ["sqlite", "postgres"],
  ["postgres", "sqlite"],
  ["postgres", "postgres"],
] as const)("a copy of a store in %s", (from, to) => {
  it(`has everything that outlives a process when it is loaded into ${to}`, async () => {
    const source = await open(await addressOf(from));
    await fill(source);
    const lines = await linesOf(source);
    const target = await open(await addressOf(to));
    expect(await target.dumps.isEmpty()).toBe(true);
    const report = await load(target, lines);
    expect(report).toMatchObject({ applicationsBack: ["blog"], keysBack: ["pk_1", "pk_2"], expiredApprovals: 1 });
    expect(await target.dumps.isEmpty()).toBe(false);
    expect(await target.applications.get("blog")).toEqual(await source.applications.get("blog"));
    expect(await target.keys.get("pk_1")).toEqual(await source.keys.get("pk_1"));
    const secret = await target.secrets.get("blog", "db");
    expect([...Buffer.from(secret?.sealed as Uint8Array)]).toEqual([0, 1, 254, 255]);
    expect((await target.values.get("blog", "counter"))?.value).toEqual({ n: 1.5 });
    const [one, two] = [await source.repositories.state("blog"), await target.repositories.state("blog")];
    expect(two.repository).toEqual(one.repository);
    expect(two.store).not.toBe(one.store);
    expect(await target.access.get()).toMatchObject({ hasCredentials: true });
    // An approval that was given before the copy was made may have been redeemed since.
    expect((await target.challenges.get("c1"))?.state).toBe("expired");
    expect(await target.challenges.move("c1", "approved", "redeemed")).toBeUndefined();
    // The store works: changes are numbered on from where it was.
    const before = await target.feed.latest();
    await target.keys.revoke("pk_2", "test");
    expect(await target.feed.latest()).toBe(before + 1);
    await source.close();
    await target.close();
  });
});

describe.each(["sqlite", "postgres"] as const)("loading an older copy into %s", (kind) => {
  it("takes back no revocation, no spent nonce and no used limit, and reports what is gone and back", async () => {
    const storage = await open(await addressOf(kind));
    await fill(storage);
    const rate = { tokens: 10, periodMs: 3_600_000, burst: 10 };
    const lines = await linesOf(storage);
    await storage.keys.revoke("pk_1", "test");
    await storage.keys.add(key("pk_3"), "test");
    await storage.applications.put("late", {}, "test");
    await storage.applications.put("blog", { description: "two" }, "test");
    expect(await storage.once.first("nonce", 600_000)).toBe(true);
    expect((await storage.leases.lease("limit", 10, rate)).granted).toBe(10);
    const report = await load(storage, lines, ["pk_2"]);
    expect(report).toEqual({
      applicationsGone: ["late"],
      applicationsBack: [],
      applicationsChanged: ["blog"],
      keysGone: ["pk_3"],
      keysBack: [],
      keysStayRevoked: ["pk_1", "pk_2"],
      expiredApprovals: 1,
    });
    expect((await storage.keys.list({ activeOnly: true })).items).toEqual([]);
    expect(await storage.once.first("nonce", 600_000)).toBe(false);
    expect((await storage.leases.lease("limit", 1, rate)).granted).toBe(0);
    expect((await storage.applications.get("blog"))?.document).toEqual({ description: "one" });
    await storage.close();
  });

  it("makes every process that watches the store read everything again, and says who did it", async () => {
    const address = await addressOf(kind);
    const [one, other] = [await open(address), await open(address)];
    await fill(one);
    const lines = await linesOf(one);
    for (let i = 0; i < 3; i++) await one.applications.put("blog", { description: `later ${i}` }, "test");
    let resyncs = 0;
    await other.feed.watch({ change: () => {}, resync: () => resyncs++ });
    await load(one, lines);
    await expect.poll(() => resyncs).toBeGreaterThan(0);
    const last = (await other.feed.kept(0)).at(-1) as StoreChange;
    expect(last).toMatchObject({ topic: "store", action: "restored", name: "b1", by: "cli:test" });
    await one.close();
    await other.close();
  });

  it("leaves the store as it was when the copy is damaged", async () => {
    const storage = await open(await addressOf(kind));
    await fill(storage);
    const lines = await linesOf(storage);
    await storage.applications.put("late", {}, "test");
    for (const broken of [lines.slice(0, -1), lines.toSpliced(2, 1), ["{}"], [...lines, "[]"], ["no"]]) {
      await expect(load(storage, broken)).rejects.toMatchObject({ code: "STORAGE_INVALID" });
    }
    const newer = [lines[0]?.replace(/"level":\d+/, '"level":999') as string, ...lines.slice(1)];
    await expect(load(storage, newer)).rejects.toMatchObject({ code: "STORAGE_VERSION" });
    expect(await storage.applications.get("late")).toBeDefined();
    await storage.close();
  });

  it("shows one moment while another process writes", async () => {
    const address = await addressOf(kind);
    const [one, other] = [await open(address), await open(address)];
    let isDone = false;
    let n = 0;
    // Each application is written with its key: a copy with one of the two shows two moments.
    const writing = (async () => {
      while (!isDone && n < 500) {
        await other.applications.put("a", { description: String(n) }, "test");
        await other.applications.put("b", { description: String(n++) }, "test");
      }
    })();
    for (let i = 0; i < 10; i++) {
      const rows = (await linesOf(one)).map((line) => JSON.parse(line) as unknown);
      const values = rows.filter((row): row is string[] => Array.isArray(row) && (row[0] === "a" || row[0] === "b"));
      const [a = -1, b = -1] = values.toSorted().map((row) => Number(/\d+/.exec(row[1] as string)?.[0] ?? -1));
      expect(a - b).toBeGreaterThanOrEqual(0);
      expect(a - b).toBeLessThanOrEqual(1);
    }
    isDone = true;
    await writing;
    await one.close();
    await other.close();
  });
});
