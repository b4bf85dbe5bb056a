import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type Ledger, openLedger, read } from "../ledger/index.js";
import { openStorage, type Storage } from "../storage/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { type ChangeRecorder, recordChanges } from "./record-changes.js";

const ORIGIN = "portcullis.local/test";
const telemetry = createTelemetry({ env: {}, log: { level: "critical" } });
const cleanUp: (() => unknown)[] = [];
let dir: string;
let storage: Storage;
let ledger: Ledger;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-changes-"));
  cleanUp.push(() => rmSync(dir, { recursive: true, force: true }));
  storage = await openStorage(`sqlite:${join(dir, "store.db")}`);
  cleanUp.push(() => storage.close());
  ledger = await openLedger({ dir: join(dir, "ledger"), origin: ORIGIN, retryMs: 5 });
  cleanUp.push(() => ledger.close());
});
afterEach(async () => {
  for (const each of cleanUp.splice(0).reverse()) await each();
});

async function start(origin = ORIGIN, more: { gatherMs?: number } = { gatherMs: 5 }): Promise<ChangeRecorder> {
  const recorder = await recordChanges({ storage, ledger, origin, telemetry, firstPauseMs: 5, ...more });
  cleanUp.push(() => recorder.close());
  return recorder;
}

type Recorded = { actor: string; action: string; detail: { app?: string; name?: string; at?: string; seq?: number } };

async function recorded(): Promise<Recorded[]> {
  const found: Recorded[] = [];
  for await (const { record } of read(join(dir, "ledger"))) {
    if (record.kind === "admin") found.push(record as unknown as Recorded);
  }
  return found;
}

async function until<T>(look: () => Promise<T>, is: (value: T) => boolean): Promise<T> {
  for (const end = performance.now() + 20_000; ; ) {
    const value = await look();
    if (is(value)) return value;
    if (performance.now() > end) throw new Error(`not within 20 s: ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

it("records changes that were made while no gateway was running, with who, when and what [U7]", async () => {
  await storage.applications.put("blog", {}, "cli:anna");
  await storage.secrets.put("blog", "token", Buffer.from("sealed"), "cli:ben");
  await start();
  const [put, secret] = await until(recorded, (all) => all.length === 2);
  expect(put).toMatchObject({ actor: "cli:anna", action: "application.put", detail: { app: "blog", seq: 1 } });
  expect(secret).toMatchObject({ actor: "cli:ben", action: "secret.put", detail: { app: "blog", name: "token" } });
  expect(Date.parse(put?.detail.at as string)).toBeGreaterThan(0);
});

it("records each change once over restarts, and lets a new ledger begin where the furthest one is", async () => {
  await storage.applications.put("one", {}, "cli:anna");
  const first = await start();
  await until(recorded, (all) => all.length === 1);
  await first.close();
  await storage.applications.put("two", {}, "cli:anna");
  const second = await start();
  await until(recorded, (all) => all.length === 2);
  await second.close();
  await storage.applications.put("three", {}, "cli:anna");
  await start("portcullis.local/another");
  const all = await until(recorded, (found) => found.length === 3);
  expect(all.map(({ detail }) => detail.app)).toEqual(["one", "two", "three"]);
});

it("records changes made while the ledger could not be written, once it can", async () => {
  const recorder = await start();
  renameSync(join(dir, "ledger"), join(dir, "away"));
  await storage.applications.put("blog", {}, "cli:anna");
  await until(
    async () => recorder.problem,
    (problem) => problem !== undefined,
  );
  renameSync(join(dir, "away"), join(dir, "ledger"));
  // The ledger records its own outage too.
  const byAnna = async (): Promise<Recorded[]> => (await recorded()).filter(({ actor }) => actor === "cli:anna");
  const all = await until(byAnna, (found) => found.length > 0);
  expect(all[0]).toMatchObject({ action: "application.put", detail: { app: "blog" } });
  await until(
    async () => recorder.problem,
    (problem) => problem === undefined,
  );
});

it("writes its position once for changes that come soon after each other, and records all of them at its end", async () => {
  let writes = 0;
  const { setRecorded } = storage.feed;
  storage.feed.setRecorded = (...args) => {
    writes++;
    return setRecorded.apply(storage.feed, args);
  };
  await storage.applications.put("first", {}, "cli:anna");
  const recorder = await start(ORIGIN, { gatherMs: 60_000 });
  await until(recorded, (all) => all.length === 1);
  for (let i = 0; i < 20; i++) await storage.applications.put(`app-${i}`, {}, "cli:anna");
  let last = "";
  const stop = await storage.feed.watch({ change: ({ name }) => (last = name), resync: () => {} });
  await storage.applications.put("last", {}, "cli:anna");
  await until(
    async () => last,
    (name) => name === "last",
  );
  stop();
  await recorder.close();
  expect((await recorded()).map(({ detail }) => detail.app).at(-1)).toBe("last");
  expect(await recorded()).toHaveLength(22);
  expect(writes).toBe(2);
});

it("records that changes are missing when the store no longer keeps them", async () => {
  const changes = [41, 42].map((seq) => ({
    seq,
    topic: "application" as const,
    action: "put" as const,
    app: `app-${seq}`,
    name: "",
    by: "cli:anna",
    at: 1,
    origin: "other",
  }));
  let position = 10;
  const feed = {
    ...storage.feed,
    watch: async () => () => {},
    recordedBy: async () => position,
    kept: async (from: number) => changes.filter(({ seq }) => seq >= from),
    setRecorded: async (_ledger: string, seq: number) => {
      position = seq;
    },
  };
  const recorder = await recordChanges({ storage: { feed }, ledger, origin: ORIGIN, telemetry });
  cleanUp.push(() => recorder.close());
  const all = await until(recorded, (found) => found.length === 3);
  expect(all[0]).toMatchObject({ action: "changes.missing", detail: { from: 11, to: 40 } });
  // The position follows the records.
  await until(
    async () => position,
    (seq) => seq === 42,
  );
});
