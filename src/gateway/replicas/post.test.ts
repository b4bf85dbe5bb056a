import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Fault, type JsonObject } from "../../mcp/index.js";
import { openStorage, type Storage } from "../../storage/index.js";
import { encryptState } from "../../pipeline/encryption.js";
import type { StreamListener, ReplicaStream } from "./stream.js";
import { faultFromJson, faultToJson, ReplicaBus } from "./bus.js";

const KEY = Buffer.alloc(32, 1);
const ME = { app: "shop", agent: "me" };
const TIMES = { answerMs: 1_500, beatMs: 100, silenceMs: 2_000 };

let dir: string;
let stores: Storage[];
let a: ReplicaBus;
let b: ReplicaBus;

async function open(key = KEY): Promise<ReplicaBus> {
  const storage = await openStorage(`sqlite:${join(dir, "store.db")}`);
  stores.push(storage);
  await storage.replicas.beat({ id: storage.origin, ledgerOrigin: "x", detail: { address: storage.origin } });
  return ReplicaBus.open({ storage, keys: { current: key, previous: undefined, refresh: async () => {} }, ...TIMES });
}

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-post-"));
  stores = [];
  a = await open();
  b = await open();
});
afterEach(async () => {
  a.close();
  b.close();
  for (const storage of stores) await storage.close();
  rmSync(dir, { recursive: true, force: true });
});

const until = async (check: () => boolean): Promise<void> => {
  for (const end = Date.now() + 5_000; !check(); await sleep(10)) if (Date.now() > end) throw new Error("not in time");
};

/** Remembers what it hears and how it ended. */
function ears(): StreamListener & { readonly bodies: JsonObject[]; end: Fault | undefined | "open" } {
  const told = {
    bodies: [] as JsonObject[],
    end: "open" as Fault | undefined | "open",
    heard: (body: JsonObject) => void told.bodies.push(body),
    ended: (fault: Fault | undefined) => {
      told.end = fault;
    },
  };
  return told;
}

describe("what is told", () => {
  it("reaches the one it is for, or all but oneself", async () => {
    const heard: string[] = [];
    a.onTold("x", ({ n }) => heard.push(`a${n}`));
    b.onTold("x", ({ n }) => heard.push(`b${n}`));
    expect(await a.tell(b.address, "x", { n: 1 }, ME)).toBe(true);
    await a.tellOthers("x", { n: 2 }, ME);
    await until(() => heard.length >= 2);
    await sleep(300);
    expect(heard).toEqual(["b1", "b2"]);
  });

  it("to nobody is not even written", async () => {
    expect(await a.tell("nobody", "x", {}, ME)).toBe(false);
    expect(await a.tell("*", "x", {}, ME)).toBe(false);
  });

  it("is believed only of those that have the key, and to whom it was written", async () => {
    const heard: JsonObject[] = [];
    b.onTold("x", (body) => heard.push(body));
    const [store] = stores as [Storage];
    const letter = (from: string) => JSON.stringify({ tell: "x", body: { from }, from: a.address });
    await store.letters.post(b.address, letter("plain"), 60_000);
    await store.letters.post(
      b.address,
      encryptState(Buffer.alloc(32, 2), `letter ${b.address}`, letter("key")),
      60_000,
    );
    await store.letters.post(b.address, encryptState(KEY, "letter *", letter("address")), 60_000);
    await store.letters.post(b.address, encryptState(KEY, `letter ${b.address}`, letter("a")), 60_000);
    await until(() => heard.length > 0);
    expect(heard).toEqual([{ from: "a" }]);
  });
});

describe("a line", () => {
  it("brings what is said in order, both ways, and its end after everything", async () => {
    b.onCalled("sum", (body, line) => {
      for (let i = 0; i < 200; i++) line.say({ i });
      return {
        heard: ({ n }) => {
          line.say({ sum: Number(n) + Number(body.start) });
          if (n === 2) line.end();
        },
        ended: () => {},
      };
    });
    const told = ears();
    const line = a.call(b.address, "sum", { start: 40 }, told, ME);
    line.say({ n: 1 });
    line.say({ n: 2 });
    line.say({ n: 3 });
    await until(() => told.end !== "open");
    expect(told.bodies).toEqual([...Array.from({ length: 200 }, (_, i) => ({ i })), { sum: 41 }, { sum: 42 }]);
    expect(told.end).toBeUndefined();
  });

  it("stays while nothing is said, and ends when the other side is gone", async () => {
    b.onCalled("wait", () => ({ heard: () => {}, ended: () => {} }));
    const told = ears();
    a.call(b.address, "wait", {}, told, ME);
    await sleep(2_500);
    expect(told.end).toBe("open");
    b.close();
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "Unavailable" });
  });

  it("tells the one who is called when the caller leaves or is gone", async () => {
    const ends: unknown[] = [];
    b.onCalled("wait", () => ({ heard: () => {}, ended: (fault) => ends.push(fault?.type) }));
    const line = a.call(b.address, "wait", {}, ears(), ME);
    await sleep(600);
    line.end();
    await until(() => ends.length === 1);
    a.call(b.address, "wait", {}, ears(), ME);
    await sleep(600);
    a.close();
    await until(() => ends.length === 2);
    expect(ends).toEqual([undefined, "Unavailable"]);
  });

  it.each([
    ["nobody", "x"],
    ["there", "nothing that anybody answers to"],
    ["there", "fails"],
  ])("to %s about %s ends soon, with a reason", async (whom, kind) => {
    b.onCalled("fails", () => {
      throw new Error("a defect");
    });
    const told = ears();
    a.call(whom === "there" ? b.address : whom, kind, {}, told, ME);
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "Unavailable" });
  });

  it("that is told more than it can carry ends instead of growing", async () => {
    const lines: ReplicaStream[] = [];
    b.onCalled("much", (_, line) => {
      lines.push(line);
      return { heard: () => {}, ended: () => {} };
    });
    const told = ears();
    const line = a.call(b.address, "much", {}, told, ME);
    for (let i = 0; i < 2_000; i++) line.say({ i });
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "TooMany" });
    expect(line.isOver).toBe(true);
  });
});

it("one caller cannot have all the lines, and others have theirs", async () => {
  b.onCalled("wait", () => ({ heard: () => {}, ended: () => {} }));
  const mine = Array.from({ length: 16 }, () => a.call(b.address, "wait", {}, ears(), ME));
  expect(() => a.call(b.address, "wait", {}, ears(), ME)).toThrow("too many lines");
  const other = a.call(b.address, "wait", {}, ears(), { app: "blog", agent: "me" });
  expect(other.isOver).toBe(false);
  mine[0]?.end();
  await until(() => mine[0]?.isOver === true);
  await sleep(300);
  a.call(b.address, "wait", {}, ears(), ME);
});

it("a fault is the same after the way, without what caused it", () => {
  const fault = new Fault("InvalidParams", "no", { field: "x", extra: { n: 1 }, cause: new Error("inner") });
  const back = faultFromJson(faultToJson(fault));
  expect(back).toMatchObject({ type: "InvalidParams", message: "no", detail: { field: "x", extra: { n: 1 } } });
  expect(back.cause).toBeUndefined();
});
