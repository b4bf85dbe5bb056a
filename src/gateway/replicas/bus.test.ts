import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Fault, type JsonObject } from "../../mcp/index.js";
import { encryptState } from "../../pipeline/encrypted-state.js";
import { openStorage, type Storage } from "../../storage/index.js";
import { faultFromJson, faultToJson, ReplicaBus } from "./bus.js";
import type { ReplicaStream, StreamListener } from "./stream.js";

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

/** Remembers the messages and the end of a stream. */
function recording(): StreamListener & { readonly bodies: JsonObject[]; end: Fault | undefined | "open" } {
  const listener = {
    bodies: [] as JsonObject[],
    end: "open" as Fault | undefined | "open",
    onMessage: (body: JsonObject) => void listener.bodies.push(body),
    onEnd: (fault: Fault | undefined) => {
      listener.end = fault;
    },
  };
  return listener;
}

describe("a message", () => {
  it("reaches one replica, or all but the sender", async () => {
    const received: string[] = [];
    a.onMessage("x", ({ n }) => received.push(`a${n}`));
    b.onMessage("x", ({ n }) => received.push(`b${n}`));
    expect(await a.send(b.address, "x", { n: 1 }, ME)).toBe(true);
    await a.broadcast("x", { n: 2 }, ME);
    await until(() => received.length >= 2);
    await sleep(300);
    expect(received).toEqual(["b1", "b2"]);
  });

  it("a message is not written for a replica that does not exist", async () => {
    expect(await a.send("absent", "x", {}, ME)).toBe(false);
    expect(await a.send("*", "x", {}, ME)).toBe(false);
  });

  it("a message is accepted only from replicas with the key, and only by the one that it was written for", async () => {
    const received: JsonObject[] = [];
    b.onMessage("x", (body) => received.push(body));
    const [store] = stores as [Storage];
    const PURPOSE = "letter";
    const message = (from: string) => JSON.stringify({ tell: "x", body: { from }, from: a.address });
    await store.replicaMessages.post(b.address, message("plain"), 60_000);
    await store.replicaMessages.post(
      b.address,
      encryptState(Buffer.alloc(32, 2), `${PURPOSE} ${b.address}`, message("key")),
      60_000,
    );
    await store.replicaMessages.post(b.address, encryptState(KEY, `${PURPOSE} *`, message("address")), 60_000);
    await store.replicaMessages.post(b.address, encryptState(KEY, `${PURPOSE} ${b.address}`, message("a")), 60_000);
    await until(() => received.length > 0);
    expect(received).toEqual([{ from: "a" }]);
  });
});

describe("a stream", () => {
  it("delivers messages in order in both directions, and its end after all of them", async () => {
    b.onStream("sum", (body, stream) => {
      for (let i = 0; i < 200; i++) stream.send({ i });
      return {
        onMessage: ({ n }) => {
          stream.send({ sum: Number(n) + Number(body.start) });
          if (n === 2) stream.end();
        },
        onEnd: () => {},
      };
    });
    const told = recording();
    const stream = a.open(b.address, "sum", { start: 40 }, told, ME);
    stream.send({ n: 1 });
    stream.send({ n: 2 });
    stream.send({ n: 3 });
    await until(() => told.end !== "open");
    expect(told.bodies).toEqual([...Array.from({ length: 200 }, (_, i) => ({ i })), { sum: 41 }, { sum: 42 }]);
    expect(told.end).toBeUndefined();
  });

  it("stays open without messages, and ends when the other replica is gone", async () => {
    b.onStream("wait", () => ({ onMessage: () => {}, onEnd: () => {} }));
    const told = recording();
    a.open(b.address, "wait", {}, told, ME);
    await sleep(2_500);
    expect(told.end).toBe("open");
    b.close();
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "Unavailable" });
  });

  it("ends at the other replica when the caller ends it or is gone", async () => {
    const ends: unknown[] = [];
    let opened = 0;
    b.onStream("wait", () => {
      opened++;
      return { onMessage: () => {}, onEnd: (fault) => ends.push(fault?.type) };
    });
    const stream = a.open(b.address, "wait", {}, recording(), ME);
    await until(() => opened === 1);
    stream.end();
    await until(() => ends.length === 1);
    a.open(b.address, "wait", {}, recording(), ME);
    await until(() => opened === 2);
    a.close();
    await until(() => ends.length === 2);
    expect(ends).toEqual([undefined, "Unavailable"]);
  });

  it.each([
    ["absent", "x"],
    ["there", "nothing that anybody answers to"],
    ["there", "fails"],
  ])("a stream to %s about %s ends soon, with a reason", async (whom, kind) => {
    b.onStream("fails", () => {
      throw new Error("a defect");
    });
    const told = recording();
    a.open(whom === "there" ? b.address : whom, kind, {}, told, ME);
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "Unavailable" });
  });

  it("ends instead of growing when its send buffer overflows", async () => {
    const lines: ReplicaStream[] = [];
    b.onStream("much", (_, stream) => {
      lines.push(stream);
      return { onMessage: () => {}, onEnd: () => {} };
    });
    const told = recording();
    const stream = a.open(b.address, "much", {}, told, ME);
    for (let i = 0; i < 2_000; i++) stream.send({ i });
    await until(() => told.end !== "open");
    expect(told.end).toMatchObject({ type: "TooMany" });
    expect(stream.isOver).toBe(true);
  });
});

it("keeps one caller from using all streams, so that others have theirs", async () => {
  b.onStream("wait", () => ({ onMessage: () => {}, onEnd: () => {} }));
  const mine = Array.from({ length: 16 }, () => a.open(b.address, "wait", {}, recording(), ME));
  expect(() => a.open(b.address, "wait", {}, recording(), ME)).toThrow("too many streams");
  const other = a.open(b.address, "wait", {}, recording(), { app: "blog", agent: "me" });
  expect(other.isOver).toBe(false);
  mine[0]?.end();
  await until(() => mine[0]?.isOver === true);
  await sleep(300);
  a.open(b.address, "wait", {}, recording(), ME);
});

it("carries a fault between replicas without its cause", () => {
  const fault = new Fault("InvalidParams", "no", { field: "x", extra: { n: 1 }, cause: new Error("inner") });
  const back = faultFromJson(faultToJson(fault));
  expect(back).toMatchObject({ type: "InvalidParams", message: "no", detail: { field: "x", extra: { n: 1 } } });
  expect(back.cause).toBeUndefined();
});
