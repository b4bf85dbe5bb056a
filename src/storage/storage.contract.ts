// What every store must do. `a` and `b` are two connections to one store, as two replicas have them.

import { randomBytes, randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { JsonObject, JsonValue } from "../mcp/index.js";
import type { StorageOptions } from "./open.js";
import { StorageError } from "./sql.js";
import type { NewKey, Storage, StoreChange, StoredPack, StoredRepository } from "./types.js";

export interface StoreUnderTest {
  /** Another connection to the same store. */
  open(options?: StorageOptions): Promise<Storage>;
  close(): Promise<void>;
}

const BY = "test:anna";
const FIRST = { by: BY, trustsFirst: true } as const;
const offer = (name: string, hash: string, definition: string) => ({ kind: "tool", name, hash, definition }) as const;
const within = async (ms: number, check: () => boolean): Promise<void> => {
  const end = performance.now() + ms;
  while (!check()) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
/** Long enough that a session is touched before it expires, on a busy machine too. */
const LIFE_MS = 1_500;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const newName = (): string => `a${randomBytes(6).toString("hex")}`;

export function storageContract(what: string, make: () => Promise<StoreUnderTest>): void {
  describe(what, () => {
    let store: StoreUnderTest;
    let a: Storage;
    let b: Storage;
    beforeAll(async () => {
      store = await make();
      a = await store.open();
      b = await store.open();
    });
    afterAll(async () => {
      await a?.close();
      await b?.close();
      await store?.close();
    });

    const application = async (): Promise<string> => {
      const app = newName();
      await a.applications.put(app, {}, BY);
      return app;
    };
    const newKey = (app: string): NewKey => ({
      id: newName(),
      app,
      agent: "bot",
      name: "ci",
      hash: randomBytes(32).toString("hex"),
      prefix: "pk_abc",
      permissions: ["invoke(core.*)", "list"],
      limits: { perMinute: 5 },
    });
    const newChallenge = (key: string, ttlMs = 60_000) => ({
      id: newName(),
      key,
      app: "blog",
      agent: "bot",
      state: "pending",
      document: { tool: "x" } as JsonObject,
      payload: { argumentsText: "{}" } as JsonObject,
      ttlMs,
    });
    const MANY = { perApp: 1_000, perAgent: 1_000 };

    const opened = async (challenge: ReturnType<typeof newChallenge>): Promise<string> => {
      const found = await a.challenges.open(challenge, MANY);
      return "full" in found ? found.full : found.challenge.id;
    };

    describe("applications", () => {
      it("applications are there for every replica, with a revision that counts", async () => {
        const app = newName();
        expect(await b.applications.get(app)).toBeUndefined();
        const made = await a.applications.put(app, { config: { colour: "red", deep: [1, null, "é\u0000"] } }, BY);
        expect(made).toMatchObject({ id: app, revision: 1 });
        expect(await b.applications.get(app)).toEqual(made);
        const changed = await b.applications.put(app, { config: {} }, BY, 1);
        expect(changed).toMatchObject({ revision: 2, document: { config: {} }, createdAt: made?.createdAt });
        expect((await a.applications.get(app))?.revision).toBe(2);
      });

      it("applications are created once and replaced only by who has seen the last revision [H5]", async () => {
        const app = newName();
        const created = await Promise.all(
          Array.from({ length: 10 }, (_, i) => (i % 2 ? a : b).applications.put(app, { description: `${i}` }, BY, 0)),
        );
        expect(created.filter(Boolean)).toHaveLength(1);
        const replaced = await Promise.all(
          Array.from({ length: 10 }, (_, i) => (i % 2 ? a : b).applications.put(app, { description: `${i}` }, BY, 1)),
        );
        expect(replaced.filter(Boolean)).toHaveLength(1);
        expect((await a.applications.get(app))?.revision).toBe(2);
      });

      it("applications come in pages, each once", async () => {
        const apps = [await application(), await application(), await application()].sort();
        const seen: string[] = [];
        for (let after: string | undefined, pages = 0; pages < 1_000; pages++) {
          const page = await b.applications.list({ limit: 2, ...(after === undefined ? {} : { after }) });
          expect(page.items.length).toBeLessThanOrEqual(2);
          seen.push(...page.items.map(({ id }) => id));
          after = page.next;
          if (after === undefined) break;
        }
        expect(seen).toEqual([...new Set(seen)].sort());
        expect(seen).toEqual(expect.arrayContaining(apps));
        await expect(a.applications.list({ limit: 1_001 })).rejects.toThrow("a page has 1 to 1000 entries");
      });

      it("applications that are not valid are refused, with the field", async () => {
        const put = a.applications.put(newName(), { servers: { s3: {} } }, BY);
        await expect(put).rejects.toThrow("servers.s3: must have either `command` or `url`");
        await expect(a.applications.put("no spaces", {}, BY)).rejects.toBeInstanceOf(StorageError);
      });

      it("applications go with everything that is theirs, and nothing of others goes", async () => {
        const app = await application();
        const other = await application();
        const belongings = async (id: string) => ({
          keys: (await b.keys.list({ app: id })).items.length,
          secrets: (await b.secrets.list(id)).items.length,
          values: (await b.values.list(id)).items.length,
          pins: (await b.pins.list(id, "s")).items.length,
          token: (await b.tokens.get({ app: id, server: "s", user: "" })) === undefined ? 0 : 1,
          files: (await b.repositories.state(id)).repository === undefined ? 0 : 1,
        });
        for (const id of [app, other]) {
          await a.keys.add(newKey(id), BY);
          await a.secrets.put(id, "token", Buffer.from("x"), BY);
          await a.values.set(id, "k", 1);
          await a.pins.record(id, "s", [{ kind: "tool", name: "t", hash: "h", definition: "{}" }], FIRST);
          await a.tokens.put({ app: id, server: "s", user: "" }, Buffer.from("x"));
          await a.repositories.push(id, undefined, "head", Buffer.from("pack"), "me");
        }
        expect(await a.applications.remove(app, BY)).toBe(true);
        expect(await a.applications.remove(app, BY)).toBe(false);
        expect(await belongings(app)).toEqual({ keys: 0, secrets: 0, values: 0, pins: 0, token: 0, files: 0 });
        expect(await belongings(other)).toEqual({ keys: 1, secrets: 1, values: 1, pins: 1, token: 1, files: 1 });
      });
    });

    describe("keys", () => {
      it("keys are found by id and by hash, and are what was stored", async () => {
        const app = await application();
        const expiresAt = Date.now() + 60_000;
        const key = await a.keys.add({ ...newKey(app), expiresAt }, BY);
        expect(await b.keys.get(key.id)).toEqual(key);
        expect(await b.keys.byHash(key.hash)).toEqual(key);
        expect(key).toMatchObject({ permissions: ["invoke(core.*)", "list"], limits: { perMinute: 5 }, expiresAt });
        expect(key.revokedAt).toBeUndefined();
      });

      it("keys are revoked once", async () => {
        const key = await a.keys.add(newKey(await application()), BY);
        const answers = await Promise.all([a.keys.revoke(key.id, BY), b.keys.revoke(key.id, BY)]);
        expect(answers.sort()).toEqual([false, true]);
        expect((await b.keys.get(key.id))?.revokedAt).toBeGreaterThan(0);
        expect(await a.keys.change(key.id, { permissions: [], limits: {} }, BY)).toBeUndefined();
      });

      it("keys are listed by application, those in force alone when asked", async () => {
        const app = await application();
        const [one, two, three] = [newKey(app), newKey(app), { ...newKey(app), expiresAt: Date.now() - 1_000 }];
        for (const key of [one, two, three]) await a.keys.add(key, BY);
        await a.keys.revoke(two.id, BY);
        const ids = async (activeOnly: boolean) =>
          (await b.keys.list({ app, activeOnly })).items.map(({ id }) => id).sort();
        expect(await ids(false)).toEqual([one.id, two.id, three.id].sort());
        expect(await ids(true)).toEqual([one.id]);
      });

      it("keys of no application, with a hash that is taken, or with no hash are refused", async () => {
        const key = newKey(await application());
        await a.keys.add(key, BY);
        await expect(a.keys.add({ ...newKey(key.app), hash: key.hash }, BY)).rejects.toMatchObject({
          code: "STORAGE_INVALID",
        });
        await expect(a.keys.add(newKey(newName()), BY)).rejects.toThrow("there is no application");
        await expect(a.keys.add({ ...newKey(key.app), hash: "secret" }, BY)).rejects.toThrow("not a SHA-256");
      });

      it("keys keep the latest use, whichever replica tells it last", async () => {
        const key = await a.keys.add(newKey(await application()), BY);
        await a.keys.used(new Map([[key.id, 2_000]]));
        await b.keys.used(new Map([[key.id, 1_000]]));
        expect((await a.keys.get(key.id))?.lastUsedAt).toBe(2_000);
      });

      it("keys get other permissions without becoming other keys", async () => {
        const key = await a.keys.add(newKey(await application()), BY);
        const changed = await b.keys.change(key.id, { permissions: ["list"], limits: { perHour: 1 } }, BY);
        expect(changed).toEqual({ ...key, permissions: ["list"], limits: { perHour: 1 } });
      });
    });

    it("sealed bytes come back as they were, and lists do not hold them", async () => {
      const app = await application();
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
      await a.secrets.put(app, "token", Buffer.from("old"), BY);
      await a.secrets.put(app, "token", bytes, BY);
      const found = await b.secrets.get(app, "token");
      expect(Buffer.from(found?.sealed as Uint8Array).equals(bytes)).toBe(true);
      expect((await b.secrets.list(app)).items).toEqual([{ app, name: "token", updatedAt: expect.any(Number) }]);
      expect(await b.secrets.get(await application(), "token")).toBeUndefined();
      expect(await a.secrets.remove(app, "token", BY)).toBe(true);
      expect(await b.secrets.get(app, "token")).toBeUndefined();
      await expect(a.secrets.put(newName(), "token", bytes, BY)).rejects.toThrow("there is no application");
    });

    describe("access without a credential", () => {
      it("access without a credential is off by default on a shared store, and no store grants it again after the first key [G6]", async () => {
        const own = await make();
        const [one, two] = [await own.open(), await own.open()];
        try {
          const isEmbedded = one.kind === "sqlite";
          expect(await one.access.get()).toEqual({ localAccess: isEmbedded, hasCredentials: false });
          expect(await one.access.setLocalAccess(true, BY)).toEqual({ localAccess: true, hasCredentials: false });
          expect((await two.access.get()).localAccess).toBe(true);
          await one.applications.put("blog", {}, BY);
          await expect(one.keys.add(newKey("absent"), BY)).rejects.toThrow();
          expect((await two.access.get()).hasCredentials).toBe(false);
          await one.keys.add(newKey("blog"), BY);
          expect((await two.access.get()).hasCredentials).toBe(true);
          await one.applications.remove("blog", BY);
          await two.access.setLocalAccess(false, BY);
          expect(await two.access.setLocalAccess(true, BY)).toEqual({ localAccess: false, hasCredentials: true });
        } finally {
          await one.close();
          await two.close();
          await own.close();
        }
      });

      it("access without a credential is announced to every process when it is switched or an issuer is configured, and only then", async () => {
        const own = await make();
        const [one, two] = [await own.open(), await own.open()];
        try {
          const heard: string[] = [];
          const stop = await two.feed.watch({
            change: ({ topic, name }) => heard.push(`${topic} ${name}`),
            resync: () => {},
          });
          await one.access.setLocalAccess(true, BY);
          await one.access.setLocalAccess(false, BY);
          await one.access.setLocalAccess(false, BY);
          await one.access.credentialConfigured("issuer", BY);
          await one.access.credentialConfigured("issuer", BY);
          const switchedOn = one.kind === "sqlite" ? [] : ["access local on"];
          await expect
            .poll(() => heard, { timeout: 10_000 })
            .toEqual([...switchedOn, "access local off", "access issuer"]);
          stop();
        } finally {
          await one.close();
          await two.close();
          await own.close();
        }
      });

      it("ends when an issuer is configured", async () => {
        const own = await make();
        const one = await own.open();
        try {
          await one.access.credentialConfigured("issuer", BY);
          expect((await one.access.get()).hasCredentials).toBe(true);
        } finally {
          await one.close();
          await own.close();
        }
      });
    });

    describe("pins", () => {
      it("pins keep the first definition that any replica saw", async () => {
        const id = { app: newName(), server: "s3", kind: "tool", name: "put object" } as const;
        await Promise.all([
          a.pins.record(id.app, "s3", [offer(id.name, "h1", "one")], FIRST),
          b.pins.record(id.app, "s3", [offer(id.name, "h2", "two")], FIRST),
        ]);
        const pin = await a.pins.get(id);
        expect(await b.pins.get(id)).toEqual(pin);
        expect(pin).toMatchObject({ status: "changed" });
        expect([pin?.hash, pin?.accepted?.hash].sort()).toEqual(["h1", "h2"]);
        expect((await a.pins.list(id.app, "s3")).items).toEqual([pin]);
      });

      it("pins keep the accepted definition beside the new one until exactly that one is accepted", async () => {
        const id = { app: newName(), server: "s3", kind: "tool", name: "get" } as const;
        const says = (hash: string, definition: string) =>
          b.pins.record(id.app, "s3", [offer("get", hash, definition)], FIRST).then(() => a.pins.get(id));
        expect(await says("h1", "one")).toMatchObject({ status: "accepted", hash: "h1", by: BY });
        expect(await says("h2", "two")).toMatchObject({
          status: "changed",
          hash: "h2",
          accepted: { hash: "h1", definition: "one" },
        });
        expect(await says("h3", "three")).toMatchObject({ hash: "h3", accepted: { hash: "h1" } });
        expect(await a.pins.accept(id, "h2", BY)).toBeUndefined();
        expect(await a.pins.accept(id, "h3", "test:olga")).toMatchObject({ status: "accepted", by: "test:olga" });
        expect(await b.pins.get(id)).toMatchObject({ status: "accepted", hash: "h3" });
        await says("h4", "four");
        expect(await says("h3", "three")).toMatchObject({ status: "accepted", hash: "h3" });
        expect(await a.pins.remove(id, BY)).toBe(true);
      });

      it("pins are written in one transaction for a listing, with one change in the feed", async () => {
        const app = newName();
        const offered = Array.from({ length: 120 }, (_, i) => offer(`t${i}`, "h", "{}"));
        const before = await a.feed.latest();
        const bad = offer("with\nline", "h", "{}");
        expect(await a.pins.record(app, "s3", [...offered, bad], { ...FIRST, trustsFirst: false })).toEqual([
          { kind: "tool", name: bad.name, reason: expect.stringContaining("control character") },
        ]);
        const news = (await a.feed.since(before)) ?? [];
        expect(news.filter((change) => change.app === app)).toMatchObject([{ topic: "pin", name: "s3" }]);
        const states = await b.pins.states(app, "s3");
        expect(states).toHaveLength(120);
        expect(states[0]).toEqual({
          kind: "tool",
          name: "t0",
          hash: "h",
          status: "changed",
          wasAccepted: false,
          size: 2,
        });
        await a.pins.acceptAll(app, "s3", [offer("t0", "h", ""), offer("t1", "another", "")], BY);
        const accepted = (await b.pins.states(app, "s3")).filter(({ status }) => status === "accepted");
        expect(accepted.map(({ name }) => name)).toEqual(["t0"]);
        await a.pins.record(app, "s3", [], { ...FIRST, remove: [{ kind: "tool", name: "t5" }] });
        expect(await b.pins.states(app, "s3")).toHaveLength(119);
        expect(await a.pins.clear(app, "s3", BY)).toBe(119);
        expect(await b.pins.states(app, "s3")).toEqual([]);
      });
    });

    it("a token is refreshed by one of several replicas", async () => {
      const id = { app: newName(), server: "s3", user: "anna" };
      const made = await Promise.all([a.tokens.put(id, Buffer.from("1"), 0), b.tokens.put(id, Buffer.from("2"), 0)]);
      expect(made.filter(Boolean)).toHaveLength(1);
      const refreshed = await Promise.all([
        a.tokens.put(id, Buffer.from("3"), 1),
        b.tokens.put(id, Buffer.from("4"), 1),
      ]);
      expect(refreshed.filter(Boolean)).toHaveLength(1);
      expect((await a.tokens.get(id))?.version).toBe(2);
      expect(await a.tokens.get({ ...id, user: "olga" })).toBeUndefined();
      expect(await a.tokens.remove(id)).toBe(true);
    });

    describe("challenges", () => {
      it("challenges are counted: those that wait, the age of the oldest, and those that expired unanswered", async () => {
        const before = await a.challenges.figures();
        const waiting = await a.challenges.open(newChallenge(newName()), MANY);
        await a.challenges.open({ ...newChallenge(newName()), ttlMs: 1 }, MANY);
        await pause(20);
        const after = await b.challenges.figures();
        expect([after.pending - before.pending, after.expired - before.expired]).toEqual([1, 1]);
        expect(after.oldestMs).toBeGreaterThanOrEqual(20);
        if (!("challenge" in waiting)) throw new Error("not opened");
        await b.challenges.move(waiting.challenge.id, "pending", "denied");
        expect((await a.challenges.figures()).pending).toBe(before.pending);
      });

      it("challenges of identical calls are one, wherever they arrive", async () => {
        const key = newName();
        const found = await Promise.all(
          Array.from({ length: 12 }, (_, i) => (i % 2 ? a : b).challenges.open(newChallenge(key), MANY)),
        );
        expect(found.filter((each) => "isNew" in each && each.isNew)).toHaveLength(1);
        expect(new Set(found.map((each) => "challenge" in each && each.challenge.id)).size).toBe(1);
      });

      it("challenges are redeemed exactly once across replicas", async () => {
        const key = newName();
        const id = await opened(newChallenge(key));
        expect(await b.challenges.move(id, "approved", "redeemed")).toBeUndefined();
        const approved = await b.challenges.move(id, "pending", "approved", { decidedBy: "olga" });
        expect(approved?.document).toEqual({ tool: "x", decidedBy: "olga" });
        const redeemed = await Promise.all(
          Array.from({ length: 40 }, (_, i) => (i % 2 ? a : b).challenges.move(id, "approved", "redeemed")),
        );
        expect(redeemed.filter(Boolean)).toHaveLength(1);
        expect(await a.challenges.get(id)).toMatchObject({ state: "redeemed" });
        expect(await a.challenges.open(newChallenge(key), MANY)).toMatchObject({ isNew: true });
      });

      it("challenges are answered by one person: of yes and no at once one counts", async () => {
        const id = await opened(newChallenge(newName()));
        const answers = await Promise.all([
          a.challenges.move(id, "pending", "approved", { decidedBy: "anna" }),
          b.challenges.move(id, "pending", "denied", { decidedBy: "olga" }),
        ]);
        expect(answers.filter(Boolean)).toHaveLength(1);
      });

      it("challenges expire: then nothing moves them, and an identical call opens a new one", async () => {
        const key = newName();
        const id = await opened(newChallenge(key, 40));
        await a.challenges.move(id, "pending", "approved");
        await pause(60);
        expect(await b.challenges.move(id, "approved", "redeemed")).toBeUndefined();
        expect(await b.challenges.get(id)).toMatchObject({ state: "expired" });
        expect((await b.challenges.list(1_000)).map((each) => each.id)).not.toContain(id);
        expect(await b.challenges.open(newChallenge(key), MANY)).toMatchObject({ isNew: true });
      });

      it("challenges that are open are only so many per application and per agent, across replicas", async () => {
        const app = newName();
        const of = (agent: string) => ({ ...newChallenge(newName()), app, agent });
        const bounds = { perApp: 5, perAgent: 3 };
        const first = await Promise.all(
          Array.from({ length: 10 }, (_, i) => (i % 2 ? a : b).challenges.open(of("one"), bounds)),
        );
        const made = first.flatMap((each) => ("challenge" in each ? [each.challenge.id] : []));
        expect(made).toHaveLength(3);
        expect(first.filter((each) => "full" in each && each.full === "agent")).toHaveLength(7);
        const second = await Promise.all(
          Array.from({ length: 6 }, (_, i) => (i % 2 ? a : b).challenges.open(of(`other${i}`), bounds)),
        );
        expect(second.filter((each) => "challenge" in each)).toHaveLength(2);
        expect(second.filter((each) => "full" in each && each.full === "app")).toHaveLength(4);
        // A denial frees its place, an approval keeps it until it is redeemed.
        await a.challenges.move(made[0] as string, "pending", "denied");
        expect(await b.challenges.open(of("one"), bounds)).toMatchObject({ isNew: true });
        await a.challenges.move(made[1] as string, "pending", "approved");
        expect(await b.challenges.open(of("one"), bounds)).toEqual({ full: "agent" });
        await b.challenges.move(made[1] as string, "approved", "redeemed");
        expect(await a.challenges.open(of("one"), bounds)).toMatchObject({ isNew: true });
        expect(await a.challenges.open({ ...of("one"), app: newName() }, bounds)).toMatchObject({ isNew: true });
      });

      it("challenges are given back by a move to approved, unless an identical call is live by then", async () => {
        const key = newName();
        const id = await opened(newChallenge(key));
        await a.challenges.move(id, "pending", "approved");
        await b.challenges.move(id, "approved", "redeemed");
        const restored = await Promise.all(
          Array.from({ length: 10 }, (_, i) => (i % 2 ? a : b).challenges.move(id, "redeemed", "approved")),
        );
        expect(restored.filter(Boolean)).toHaveLength(1);
        expect(await b.challenges.open(newChallenge(key), MANY)).toMatchObject({
          isNew: false,
          challenge: { id, state: "approved" },
        });
        await b.challenges.move(id, "approved", "redeemed");
        expect(await a.challenges.open(newChallenge(key), MANY)).toMatchObject({ isNew: true });
        expect(await b.challenges.move(id, "redeemed", "approved")).toBeUndefined();
      });

      it("challenges are listed without what the approver reads in full, applications in turn", async () => {
        const [one, two] = [newName(), newName()];
        const of = (app: string) => ({
          ...newChallenge(newName()),
          app,
          payload: { argumentsText: "x".repeat(1_000) },
        });
        for (let i = 0; i < 4; i++) await a.challenges.open(of(one), MANY);
        const late = of(two);
        await a.challenges.open(late, MANY);
        const all = (await b.challenges.list(1_000)).filter(({ app }) => app === one || app === two);
        expect(all.slice(0, 2).map(({ app }) => app)).toEqual([one, two]);
        expect(all.every((each) => !("payload" in each))).toBe(true);
        expect(await b.challenges.list(1_000, { app: two })).toMatchObject([{ id: late.id }]);
        expect(await b.challenges.list(1_000, { app: two, state: "approved" })).toEqual([]);
        expect((await b.challenges.get(late.id))?.payload).toEqual(late.payload);
        expect(await b.challenges.states([late.id, "none"])).toEqual(new Map([[late.id, "pending"]]));
      });

      it("challenges tell who waits on another replica", async () => {
        const id = await opened(newChallenge(newName()));
        const heard: string[] = [];
        const stop = b.challenges.onChange((each) => heard.push(each));
        await pause(100);
        await a.challenges.move(id, "pending", "denied");
        await within(30_000, () => heard.includes(id));
        stop();
      });
    });

    describe("sessions", () => {
      const session = (ttlMs = 60_000) => ({
        id: randomUUID(),
        app: "blog",
        principal: "p",
        revision: "2025-06-18",
        state: { capabilities: { roots: {} } },
        owner: "one",
        ttlMs,
      });

      it("sessions are handed over to exactly one replica", async () => {
        const { id, version } = await a.sessions.add(session());
        const taken = await Promise.all([
          a.sessions.update(id, version, { owner: "two", ttlMs: 60_000 }),
          b.sessions.update(id, version, { owner: "three", ttlMs: 60_000, state: { x: 1 } }),
        ]);
        const [winner, ...others] = taken.filter(Boolean);
        expect(others).toEqual([]);
        expect(await b.sessions.get(id)).toEqual(winner);
        expect(await a.sessions.remove(id)).toBe(true);
        expect(await b.sessions.get(id)).toBeUndefined();
      });

      it("sessions expire unless they are touched", async () => {
        const kept = await a.sessions.add(session(LIFE_MS));
        await b.sessions.touch([kept.id], 60_000);
        const lost = await a.sessions.add(session(LIFE_MS));
        await expect.poll(() => a.sessions.get(lost.id), { timeout: 30_000 }).toBeUndefined();
        expect(await a.sessions.get(kept.id)).toBeDefined();
        expect(await a.sessions.update(lost.id, 1, { ttlMs: 1 })).toBeUndefined();
      });
    });

    describe("runtime values", () => {
      it("runtime values are any JSON, and are the application's own", async () => {
        const app = newName();
        await fc.assert(
          fc.asyncProperty(fc.jsonValue(), async (value) => {
            const written = JSON.parse(JSON.stringify(value)) as JsonValue;
            await a.values.set(app, "v", written);
            expect((await b.values.get(app, "v"))?.value).toEqual(written);
          }),
          { numRuns: 25 },
        );
        expect(await b.values.get(newName(), "v")).toBeUndefined();
      });

      it("never lose an update between compare and set", async () => {
        const app = newName();
        await a.values.set(app, "n", 0, { version: 0 });
        const add = async (store: Storage): Promise<void> => {
          for (let tries = 0; tries < 1_000; tries++) {
            const now = await store.values.get(app, "n");
            const next = (now?.value as number) + 1;
            if (await store.values.set(app, "n", next, { version: now?.version as number })) return;
          }
          throw new Error("never my turn");
        };
        await Promise.all(Array.from({ length: 20 }, (_, i) => add(i % 2 ? a : b)));
        expect(await a.values.get(app, "n")).toMatchObject({ value: 20, version: 21 });
        expect(await a.values.set(app, "n", 1, { version: 0 })).toBeUndefined();
        expect(await a.values.remove(app, "n", 3)).toBe(false);
        expect(await a.values.remove(app, "n", 21)).toBe(true);
        expect(await a.values.remove(app, "n")).toBe(false);
      });

      it("runtime values expire: then they are not there, for a compare-and-set either", async () => {
        const app = newName();
        await a.values.set(app, "short", 1, { ttlMs: 40 });
        await pause(60);
        expect(await b.values.get(app, "short")).toBeUndefined();
        expect((await b.values.list(app)).items).toEqual([]);
        expect(await b.values.remove(app, "short")).toBe(false);
        expect(await b.values.set(app, "short", 2, { version: 0 })).toMatchObject({ value: 2, version: 1 });
        expect((await b.values.get(app, "short"))?.expiresAt).toBeUndefined();
      });

      it("runtime values are listed by prefix in byte order, whatever the characters", async () => {
        const app = newName();
        for (const key of ["a/É", "a/z", "a/Z", "a", "b/1", "a/%_", "a/🎈"]) await a.values.set(app, key, key);
        const keys = async (prefix: string) => (await b.values.list(app, prefix)).items.map(({ key }) => key);
        expect(await keys("a/")).toEqual(["a/%_", "a/Z", "a/z", "a/É", "a/🎈"]);
        expect(await keys("")).toHaveLength(7);
      });

      it("runtime values are only so many, only so large, and have a name that can be shown", async () => {
        const few = await store.open({ maxValues: 2 });
        try {
          const app = newName();
          await few.values.set(app, "1", 1);
          await few.values.set(app, "2", 1, { ttlMs: 1 });
          await expect(few.values.set(app, "3", 1)).rejects.toMatchObject({ code: "STORAGE_FULL" });
          expect(await few.values.set(app, "1", 2)).toMatchObject({ version: 2 });
          await expect(a.values.set("x", "big", "x".repeat(1_100_000))).rejects.toThrow("at most 1048576");
          await expect(a.values.set("x", "k\n", 1)).rejects.toThrow("control character");
          await expect(a.values.set("x", "k\ud800", 1)).rejects.toThrow("control character");
          await expect(a.values.set("x", "", 1)).rejects.toThrow("1 to 512");
        } finally {
          await few.close();
        }
      });
    });

    describe("leases", () => {
      it("leases hand out no more than the burst, however many ask", async () => {
        const key = newName();
        const rate = { tokens: 1, periodMs: 3_600_000, burst: 25 };
        const leases = await Promise.all(
          Array.from({ length: 20 }, (_, i) => (i % 2 ? a : b).leases.lease(key, 2, rate)),
        );
        expect(leases.reduce((sum, { granted }) => sum + granted, 0)).toBe(25);
        const { granted, retryAfterMs } = await a.leases.lease(key, 1, rate);
        expect(granted).toBe(0);
        expect(retryAfterMs).toBeGreaterThan(3_500_000);
        expect(retryAfterMs).toBeLessThanOrEqual(3_600_000);
      });

      it("leases refill evenly, and say truly when the next token is there", async () => {
        const rate = { tokens: 10, periodMs: 1_000, burst: 2 };
        let key = "";
        let refused = { granted: 1, retryAfterMs: 0 };
        // On a busy machine the next token may be there before it is asked for.
        for (let tries = 0; refused.granted > 0 && tries < 50; tries++) {
          key = newName();
          const began = performance.now();
          expect(await a.leases.lease(key, 5, rate)).toEqual({ granted: 2, retryAfterMs: 0 });
          refused = await b.leases.lease(key, 5, rate);
          expect(refused.granted).toBeLessThanOrEqual((performance.now() - began + 1) / 100);
        }
        const { granted, retryAfterMs } = refused;
        expect(granted).toBe(0);
        expect(retryAfterMs).toBeGreaterThan(0);
        expect(retryAfterMs).toBeLessThanOrEqual(100);
        await pause(retryAfterMs + 5);
        expect((await b.leases.lease(key, 5, rate)).granted).toBeGreaterThanOrEqual(1);
      });

      it("grant all that is needed at least, or nothing and the time until there is so much", async () => {
        const key = newName();
        const rate = { tokens: 10, periodMs: 3_600_000, burst: 10 };
        expect(await a.leases.lease(key, 7, rate)).toEqual({ granted: 7, retryAfterMs: 0 });
        const { granted, retryAfterMs } = await b.leases.lease(key, 5, rate, 5);
        expect(granted).toBe(0);
        expect(retryAfterMs).toBeGreaterThan(600_000);
        expect(retryAfterMs).toBeLessThanOrEqual(720_000);
        expect(await b.leases.lease(key, 5, rate, 3)).toEqual({ granted: 3, retryAfterMs: 0 });
      });

      it("leases wait for tokens that another replica has charged, beyond the burst too", async () => {
        const key = newName();
        const rate = { tokens: 10, periodMs: 3_600_000, burst: 10 };
        await Promise.all([a.leases.charge(key, 4, rate), b.leases.charge(key, 4, rate)]);
        expect((await a.leases.lease(key, 10, rate)).granted).toBe(2);
        await b.leases.charge(key, 30, rate);
        const { granted, retryAfterMs } = await a.leases.lease(key, 1, rate);
        expect(granted).toBe(0);
        expect(retryAfterMs).toBeGreaterThan(3 * 3_600_000);
      });

      it("leases refuse what makes no sense", async () => {
        await expect(a.leases.lease("k", 0, { tokens: 1, periodMs: 1, burst: 1 })).rejects.toThrow(
          "at least one token",
        );
        await expect(a.leases.lease("k", 1, { tokens: 0, periodMs: 1, burst: 1 })).rejects.toThrow("above zero");
      });
    });

    describe("what counts once", () => {
      it("what counts once is first for one caller only, wherever it comes from", async () => {
        const ids = Array.from({ length: 50 }, newName);
        const asked = [...ids, ...ids, ...ids].map((id, i) => (i % 2 ? a : b).once.first(id, 60_000));
        const answers = await Promise.all(asked);
        for (const i of ids.keys()) {
          expect([answers[i], answers[i + 50], answers[i + 100]].filter(Boolean)).toHaveLength(1);
        }
        expect(await a.once.first(ids[0] as string, 60_000)).toBe(false);
      });

      it("counts again when it was forgotten", async () => {
        const id = newName();
        expect(await a.once.first(id, 60_000)).toBe(true);
        await b.once.forget(id);
        expect([await a.once.first(id, 60_000), await b.once.first(id, 60_000)]).toEqual([true, false]);
      });

      it("counts again when its time has passed", async () => {
        const id = newName();
        expect(await a.once.first(id, 1_000)).toBe(true);
        expect(await b.once.first(id, 1_000)).toBe(false);
        await pause(1_050);
        expect(await b.once.first(id, 60_000)).toBe(true);
        expect(await a.once.first(id, 60_000)).toBe(false);
      });

      it("what counts once may be a text of any length and kind", async () => {
        const id = `\u0000${newName().repeat(1_000)}`;
        expect(await a.once.first(id, 60_000)).toBe(true);
        expect(await b.once.first(id, 60_000)).toBe(false);
      });
    });

    it("delivers a replica message within a second and removes it when it has expired", async () => {
      const heard: StoreChange[] = [];
      const stop = await b.feed.watch({ change: (change) => heard.push(change), resync: () => {} });
      await a.replicaMessages.post(b.origin, "hello é", 60_000);
      await a.replicaMessages.post(b.origin, "soon gone", 1);
      await within(30_000, () => heard.filter(({ topic, app }) => topic === "letter" && app === b.origin).length === 2);
      stop();
      await pause(10);
      const texts = await Promise.all(heard.map(({ name }) => b.replicaMessages.read(name)));
      expect(texts).toEqual(["hello é", undefined]);
      await expect(a.replicaMessages.post(b.origin, "x".repeat(17 * 1024 * 1024), 1)).rejects.toMatchObject({
        code: "STORAGE_INVALID",
      });
    });

    it("keeps the last checkpoint of every ledger, never an older one, until the ledger is given up", async () => {
      const origin = newName();
      const ledger = { origin, place: "host:/ledger", note: "a note\nof two lines\n", size: 7 };
      await a.ledgers.put(ledger);
      await b.ledgers.put({ ...ledger, note: "late", size: 6 });
      expect(await b.ledgers.get(origin, ledger.place)).toMatchObject(ledger);
      expect(await b.ledgers.get(origin, "another:/ledger")).toBeUndefined();
      await b.ledgers.put({ ...ledger, note: "newer", size: 8 });
      expect((await a.ledgers.list()).filter((each) => each.origin === origin)).toMatchObject([
        { note: "newer", size: 8 },
      ]);
      expect(await a.ledgers.remove(origin, "cli:anna")).toBe(true);
      expect(await a.ledgers.remove(origin, "cli:anna")).toBe(false);
      expect(await b.ledgers.get(origin, ledger.place)).toBeUndefined();
    });

    it("replicas are those heard of lately", async () => {
      const id = newName();
      await a.replicas.beat({ id, ledgerOrigin: "portcullis.local/1", detail: { host: "x" } });
      const found = (await b.replicas.list(60_000)).find((each) => each.id === id);
      expect(found).toMatchObject({ ledgerOrigin: "portcullis.local/1", detail: { host: "x" } });
      await pause(30);
      expect((await b.replicas.list(10)).map((each) => each.id)).not.toContain(id);
      await b.replicas.beat({ id, ledgerOrigin: "portcullis.local/1", detail: {} });
      const again = (await a.replicas.list(60_000)).find((each) => each.id === id);
      expect(again?.startedAt).toBe(found?.startedAt);
      await a.replicas.remove(id);
      expect((await b.replicas.list(60_000)).map((each) => each.id)).not.toContain(id);
    });

    describe("repositories", () => {
      const bytesOf = async (at: Storage, app: string, pack: StoredPack): Promise<Buffer> => {
        const parts: Uint8Array[] = [];
        for (let part = 0; ; part++) {
          const data = await at.repositories.part(app, pack, part);
          if (data === undefined) return Buffer.concat(parts);
          parts.push(data);
        }
      };
      const pushed = async (app: string, count: number): Promise<StoredRepository> => {
        let last: StoredRepository | undefined;
        for (let i = 1; i <= count; i++)
          last = await a.repositories.push(app, last, `h${i}`, Buffer.from(`pack ${i}`), "me");
        return last as StoredRepository;
      };

      it("repositories have the head and the packs that lead there, for every replica", async () => {
        const app = await application();
        const { store, ...none } = await b.repositories.state(app);
        expect(store).toMatch(/^[0-9a-f]{32}$/);
        expect(none).toEqual({});
        const last = await pushed(app, 3);
        expect(last).toMatchObject({ head: "h3", seq: 3, bytes: 18 });
        expect(await b.repositories.state(app)).toEqual({ store, repository: last });
        const packs = await b.repositories.packs(app, last.id, 1);
        expect(packs).toMatchObject([
          { seq: 2, parent: "h1", head: "h2", bytes: 6 },
          { seq: 3, parent: "h2", head: "h3", bytes: 6 },
        ]);
        expect((await bytesOf(b, app, packs[1] as StoredPack)).toString()).toBe("pack 3");
        expect(await b.repositories.packs(app, "another", 0)).toEqual([]);
      });

      it("move for one of those who have seen the same head, whatever the others bring", async () => {
        const app = await application();
        const race = (from: StoredRepository | undefined) =>
          Promise.all(
            Array.from({ length: 8 }, (_, i) =>
              (i % 2 ? a : b).repositories.push(app, from, `h${i}`, Buffer.from(`${i}`), "me"),
            ),
          );
        const first = (await race(undefined)).filter((done) => done !== undefined);
        expect(first).toHaveLength(1);
        const second = (await race(first[0])).filter((done) => done !== undefined);
        expect(second).toHaveLength(1);
        const packs = await b.repositories.packs(app, second[0]?.id as string, 0);
        expect(packs.map(({ head }) => head)).toEqual([first[0]?.head, second[0]?.head]);
        expect((await bytesOf(a, app, packs[1] as StoredPack)).toString()).toBe(second[0]?.head.slice(1));
        // The number alone is not enough: an application that was recreated has another repository.
        const stale = { id: "another", seq: 2, head: "h" };
        expect(await a.repositories.push(app, stale, "h", Buffer.from("x"), "me")).toBeUndefined();
      });

      it("repositories keep every byte of a pack of several parts", async () => {
        const app = await application();
        const large = randomBytes(9 * 1024 * 1024);
        const done = await a.repositories.push(app, undefined, "h", large, "me");
        const [pack] = await b.repositories.packs(app, done?.id as string, 0);
        expect(pack?.bytes).toBe(large.length);
        expect((await bytesOf(b, app, pack as StoredPack)).equals(large)).toBe(true);
      });

      it("repositories replace several packs by one, once, and report the old ones as missing to readers", async () => {
        const app = await application();
        const last = await pushed(app, 5);
        const packs = await a.repositories.packs(app, last.id, 0);
        const some = packs.slice(1, 4);
        const merging = [a, b].map((at) => at.repositories.merge(app, last.id, some, Buffer.from("merged")));
        expect((await Promise.all(merging)).sort()).toEqual([false, true]);
        const after = await b.repositories.packs(app, last.id, 0);
        expect(after.map(({ seq, parent, head }) => [seq, parent, head])).toEqual([
          [1, undefined, "h1"],
          [4, "h1", "h4"],
          [5, "h4", "h5"],
        ]);
        expect((await bytesOf(b, app, after[1] as StoredPack)).toString()).toBe("merged");
        expect(await b.repositories.part(app, some[2] as StoredPack, 0)).toBeUndefined();
        expect((await b.repositories.state(app)).repository).toEqual({ ...last, bytes: 18 });
        expect(await a.repositories.merge(app, "another", after, Buffer.from("x"))).toBe(false);
      });

      it("repositories are claimed by one at a time, until it has pushed or its time is over", async () => {
        const app = await application();
        const first = await pushed(app, 1);
        const claimedBy = async () => (await b.repositories.state(app)).repository?.claimedBy;
        const claims = [
          a.repositories.claim(app, first.id, "x", 60_000),
          b.repositories.claim(app, first.id, "y", 60_000),
        ];
        const [x, y] = await Promise.all(claims);
        expect([x, y].sort()).toEqual([false, true]);
        const [winner, other] = x ? ["x", "y"] : ["y", "x"];
        expect(await claimedBy()).toBe(winner);
        const second = await a.repositories.push(app, first, "h2", Buffer.from("2"), other as string);
        expect(await claimedBy()).toBe(winner);
        await a.repositories.push(app, second, "h3", Buffer.from("3"), winner as string);
        expect(await claimedBy()).toBeUndefined();
        expect(await a.repositories.claim(app, first.id, "x", 60_000)).toBe(true);
        expect(await a.repositories.claim(app, first.id, "x", 0)).toBe(true);
        expect(await claimedBy()).toBeUndefined();
        expect(await b.repositories.claim(app, first.id, "y", 1)).toBe(true);
        expect(await b.repositories.claim(app, "another", "y", 1)).toBe(false);
      });

      it("repositories are of applications that are there", async () => {
        await expect(a.repositories.push(newName(), undefined, "h", Buffer.from("x"), "me")).rejects.toMatchObject({
          code: "STORAGE_INVALID",
        });
      });
    });

    describe("halts", () => {
      const halt = (name: string, reason = "") => ({ name, app: "", reason });

      it("a halt of one connection is announced to the other, with who made it, and again when it is resumed", async () => {
        const seen: StoreChange[] = [];
        const stop = await b.feed.watch({ change: (change) => void seen.push(change), resync: () => {} });
        const name = `tool=${newName()}`;
        await a.halts.put(halt(name, "leak"), BY);
        await a.halts.put(halt(name, "worse"), "test:bob");
        expect((await b.halts.list()).filter((each) => each.name === name)).toMatchObject([
          { name, by: "test:bob", reason: "worse" },
        ]);
        expect([await b.halts.remove(name, BY), await a.halts.remove(name, BY)]).toEqual([true, false]);
        await within(5_000, () => seen.filter((each) => each.topic === "halt" && each.name === name).length === 3);
        const mine = seen.filter((each) => each.name === name).map(({ action, by }) => `${action} ${by}`);
        expect(mine).toEqual([`put ${BY}`, "put test:bob", `remove ${BY}`]);
        stop();
      });

      it("a halt survives a copy of the store that is loaded over it", async () => {
        const other = await make();
        const fresh = await other.open();
        const lines: string[] = [];
        await fresh.halts.put(halt("tool=of-the-copy"), BY);
        await fresh.dumps.write(async (line) => void lines.push(line));
        await fresh.halts.remove("tool=of-the-copy", BY);
        await fresh.halts.put(halt("tool=since-then"), BY);
        const copy = async function* () {
          yield* lines;
        };
        await fresh.dumps.load(copy, { name: "b", by: BY });
        expect((await fresh.halts.list()).map(({ name }) => name)).toEqual(["tool=of-the-copy", "tool=since-then"]);
        await fresh.close();
        await other.close();
      });
    });

    describe("the feed", () => {
      it("tells within a second what others did, who did it, in order, each once [H5]", async () => {
        const app = await application();
        const heard: StoreChange[] = [];
        const stop = await b.feed.watch({ change: (change) => heard.push(change), resync: () => {} });
        const before = await a.feed.latest();
        const key = await a.keys.add(newKey(app), "cli:anna");
        await a.keys.revoke(key.id, "cli:olga");
        await within(30_000, () => heard.some(({ action, name }) => action === "revoke" && name === key.id));
        await a.secrets.put(app, "token", Buffer.from("x"), "cli:anna");
        await a.applications.remove(app, "cli:anna");
        await within(30_000, () => heard.at(-1)?.topic === "application");
        stop();
        const mine = heard.filter((change) => change.app === app && change.seq > before);
        expect(mine.map(({ topic, action, name, by }) => [topic, action, name, by])).toEqual([
          ["key", "put", key.id, "cli:anna"],
          ["key", "revoke", key.id, "cli:olga"],
          ["secret", "put", "token", "cli:anna"],
          ["application", "remove", app, "cli:anna"],
        ]);
        expect(mine.every(({ origin }) => origin === a.origin)).toBe(true);
        expect(heard.map(({ seq }) => seq)).toEqual(heard.map((_, i) => (heard[0]?.seq as number) + i));
      });

      it("the feed has no gaps and no double numbers when everybody writes at once", async () => {
        const heard: number[] = [];
        const stop = await a.feed.watch({ change: ({ seq }) => heard.push(seq), resync: () => {} });
        const before = await a.feed.latest();
        await Promise.all(Array.from({ length: 40 }, (_, i) => (i % 2 ? a : b).applications.put(newName(), {}, BY)));
        await within(30_000, () => heard.includes(before + 40));
        stop();
        const numbers = heard.filter((seq) => seq > before);
        expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, i) => before + 1 + i));
      });

      it("the feed has nothing of what did not happen", async () => {
        const key = newKey(await application());
        await a.keys.add(key, BY);
        const before = await a.feed.latest();
        await expect(a.keys.add(key, BY)).rejects.toThrow();
        await a.applications.put(key.app, {}, BY, 77);
        await a.keys.revoke(newName(), BY);
        const after = await a.feed.since(before);
        expect(after?.filter(({ app }) => app === key.app)).toEqual([]);
      });

      it("says when it no longer knows", async () => {
        expect(await a.feed.since(1_000_000_000)).toBeUndefined();
        expect(await a.feed.since(-5)).toBeUndefined();
        expect(await a.feed.since(await a.feed.latest())).toEqual([]);
      });
    });
  });
}
