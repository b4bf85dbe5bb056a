import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { LedgerEntry } from "../ledger/index.js";
import { Halts } from "../policy/index.js";
import { openStorage, type Storage } from "../storage/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { followHalts, HALT_FILE, type HaltsHere } from "./halts.js";

let dir: string;
let records: LedgerEntry[];
let stores: Storage[];
let here: HaltsHere[];
const telemetry = createTelemetry({ log: { level: "emergency" } });

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-halts-"));
  records = [];
  stores = [];
  here = [];
});
afterEach(async () => {
  for (const each of here) await each.close();
  for (const each of stores) await each.close();
  rmSync(dir, { recursive: true, force: true });
});

async function replica(): Promise<HaltsHere> {
  const storage = await openStorage(`sqlite:${join(dir, "store.db")}`);
  stores.push(storage);
  const ledger = { append: async (entry: LedgerEntry) => void records.push(entry) as never };
  const halts = await followHalts({ stateDir: dir, storage, ledger, telemetry });
  here.push(halts);
  return halts;
}

const inForce = (halts: HaltsHere): string[] => halts.list().map(({ target }) => Halts.nameOf(target));
const become = (halts: HaltsHere, expected: string[]): Promise<void> =>
  vi.waitFor(() => expect(inForce(halts)).toEqual(expected), { timeout: 20_000, interval: 20 });

it("a halt of one process is in force in the others of the store, and after a restart, until it is resumed", async () => {
  const [first, second] = [await replica(), await replica()];
  await first.put({ app: "blog" }, "leak", "admin:operator");
  expect(inForce(first)).toEqual(["app=blog"]);
  await become(second, ["app=blog"]);
  expect(inForce(await replica())).toEqual(["app=blog"]);
  expect(await second.remove({ app: "blog" }, "admin:operator")).toBe(true);
  expect(await second.remove({ app: "blog" }, "admin:operator")).toBe(false);
  await become(first, []);
});

it("an empty file HALT halts every call, a line of it only what it names, and both are recorded", async () => {
  const file = join(dir, HALT_FILE);
  writeFileSync(file, "");
  const halts = await replica();
  expect(inForce(halts)).toEqual(["everything"]);
  writeFileSync(file, "# a leak\napp=blog tool=mail.*\n");
  await become(halts, ["app=blog tool=mail.*"]);
  expect(halts.list()[0]).toMatchObject({ reason: "a leak", source: "file" });
  rmSync(file);
  await become(halts, []);
  expect(records.map((entry) => (entry as { action: string }).action)).toEqual([
    "halt.put",
    "halt.put",
    "halt.remove",
    "halt.remove",
  ]);
});

it("a file HALT that cannot be understood halts every call", async () => {
  writeFileSync(join(dir, HALT_FILE), "all of the blog, please\n");
  expect(inForce(await replica())).toEqual(["everything"]);
});

it("calls are denied while the halts of the store cannot be read again", async () => {
  const halts = await replica();
  const [storage] = stores as [Storage];
  const call = { target: { builtin: false } } as never;
  expect(halts.halts.check(call)).toBeUndefined();
  const list = vi.spyOn(storage.halts, "list").mockRejectedValue(new Error("away"));
  storage.feed.resync();
  await vi.waitFor(() => expect(halts.halts.check(call)).toMatchObject({ effect: "deny" }), { timeout: 20_000 });
  list.mockRestore();
  await vi.waitFor(() => expect(halts.halts.check(call)).toBeUndefined(), { timeout: 20_000 });
});
