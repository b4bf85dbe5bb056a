import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createKey } from "../auth/index.js";
import { openStorage, type Storage } from "../storage/index.js";
import { LocalAccess } from "./identity.js";

let dir: string;
let here: Storage;
let there: Storage;
let access: LocalAccess;
let reads = 0;
let ended = 0;
let isFresh = true;
let isAway = false;
let resync: () => void = () => {};
const peer = { transport: "http", address: "127.0.0.1" } as const;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-local-access-"));
  [here, there] = [await openStorage(`sqlite:${dir}/s.db`), await openStorage(`sqlite:${dir}/s.db`)];
  await there.applications.put("local", {}, "test");
  [reads, ended, isFresh, isAway] = [0, 0, true, false];
  access = await LocalAccess.open({
    storage: {
      access: {
        ...here.access,
        get: () => {
          reads++;
          return isAway ? Promise.reject(new Error("away")) : here.access.get();
        },
      },
      feed: {
        ...here.feed,
        watch: (listener) => {
          resync = () => listener.resync();
          return here.feed.watch(listener);
        },
      },
    },
    app: "local",
    onEnded: () => ended++,
    isFresh: () => isFresh,
  });
});
afterEach(async () => {
  access.close();
  await here.close();
  await there.close();
  rmSync(dir, { recursive: true, force: true });
});

/** The answer to one caller: an agent's application, or the type of the error. */
async function answer(): Promise<string> {
  try {
    return (await access.identify(peer)).app;
  } catch (error) {
    return (error as { type: string }).type;
  }
}

describe("LocalAccess", () => {
  it("identifies a caller without reading the store", async () => {
    const before = reads;
    for (let i = 0; i < 100; i++) expect(access.identify(peer)).toMatchObject({ app: "local", via: "local" });
    expect(reads).toBe(before);
  });

  it.each([
    ["adds a key", () => createKey(there.keys, { app: "local", name: "k", permissions: ["list"] }, "test")],
    ["configures an issuer", () => there.access.credentialConfigured("issuer", "test")],
    ["switches it off", () => there.access.setLocalAccess(false, "test")],
  ])("ends, once and for good, when another process %s [H4]", async (_what, change) => {
    expect(await answer()).toBe("local");
    await change();
    await expect.poll(answer, { timeout: 10_000 }).toBe("AuthenticationError");
    await there.access.setLocalAccess(true, "test");
    resync();
    expect([await answer(), ended]).toEqual(["AuthenticationError", 1]);
  });

  it("refuses callers while the store has been unreachable for too long [H4]", async () => {
    isFresh = false;
    expect(await answer()).toBe("Unavailable");
    isFresh = true;
    expect(await answer()).toBe("local");
  });

  it("refuses callers after missed changes until the store has been read again", async () => {
    isAway = true;
    resync();
    expect([await answer(), await answer()]).toEqual(["Unavailable", "Unavailable"]);
    isAway = false;
    expect(await answer()).toBe("local");
    await here.access.credentialConfigured("issuer", "test");
    resync();
    expect(await answer()).toBe("AuthenticationError");
  });
});
