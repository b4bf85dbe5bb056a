// All keys in force, in memory by hash: a lookup costs the same with ten keys and with ten thousand.
// The feed keeps it up to date; a revocation takes effect as soon as it is received.

import { isStoreOutage, steadyTimeOf, storeUnavailable } from "../../mcp/index.js";
import type { Principal } from "../../policy/index.js";
import type { ApiKey, Storage, StoreChange } from "../../storage/index.js";
import { checkKeyAgent, hashToken, looksLikeToken } from "./create.js";
import { type KeyRights, readPermissions } from "./permissions.js";

export interface ApiKeyCacheOptions {
  readonly storage: Pick<Storage, "keys" | "feed" | "now">;
  /** More keys than this are not held. */
  readonly maxKeys?: number;
  /** How often last uses are written down. */
  readonly flushMs?: number;
  /** Fail closed when the store has been unreachable this long: a revocation may have been missed. */
  readonly maxSilenceMs?: number;
  /** The monotonic clock of this process: the wall clock may jump, and decides nothing here. */
  readonly monotonicNow?: () => number;
  readonly onProblem?: (problem: string, error: unknown) => void;
  /** Called for a key that was found to be revoked or gone when all keys were read again. */
  readonly onRevoked?: (app: string, id: string) => void;
}

/** A key that is in force. */
export interface Credential {
  readonly key: ApiKey;
  readonly rights: KeyRights;
  /** The principal of calls with this key; undefined for an approver's key, which cannot call. */
  readonly principal: Principal | undefined;
}

interface Held {
  readonly credential: Credential;
  usedAt: number;
}

const DEFAULTS = { maxKeys: 200_000, flushMs: 30_000, maxSilenceMs: 60_000 };
const PAGE = 1_000;
const LISTEN_EVERY = 6;
/** Keys that another replica just created: the store is queried for them, but at a limited rate. */
const LOOKUPS_A_SECOND = 50;

export class ApiKeyCache {
  readonly #options: ApiKeyCacheOptions;
  readonly #maxKeys: number;
  readonly #maxSilenceMs: number;
  readonly #monotonicNow: () => number;
  /** What the store's clock is ahead of the monotonic one: keys expire by the clock of the store. */
  #storeOffsetMs = 0;
  #byHash = new Map<string, Held>();
  readonly #hashOf = new Map<string, string>();
  /** Revoked since the last reading of all keys began: a page read before must not bring them back. */
  #revokedMeanwhile = new Set<string>();
  #flushedAt = 0;
  #heardAt: number;
  #lookups = { second: 0, count: 0 };
  /** Changes are taken one after the other, in the order in which they were heard. */
  #turn: Promise<void> = Promise.resolve();
  #stop: (() => void) | undefined;
  readonly #timers: NodeJS.Timeout[] = [];

  private constructor(options: ApiKeyCacheOptions) {
    this.#options = options;
    this.#maxKeys = options.maxKeys ?? DEFAULTS.maxKeys;
    this.#maxSilenceMs = options.maxSilenceMs ?? DEFAULTS.maxSilenceMs;
    this.#monotonicNow = options.monotonicNow ?? (() => performance.now());
    this.#heardAt = this.#monotonicNow();
  }

  /** Resolves when every key in force is known. */
  static async open(options: ApiKeyCacheOptions): Promise<ApiKeyCache> {
    const ring = new ApiKeyCache(options);
    ring.#stop = await options.storage.feed.watch({
      change: (change) => ring.#changed(change),
      resync: () => ring.#inTurn(() => ring.#load()),
    });
    const loading = ring.#listen().then(() => ring.#load());
    // What is heard meanwhile waits for it.
    ring.#turn = loading.catch(() => {});
    try {
      await loading;
    } catch (error) {
      ring.#stop();
      throw error;
    }
    ring.#every(options.flushMs ?? DEFAULTS.flushMs, () => ring.flush());
    ring.#every(Math.max(20, ring.#maxSilenceMs / LISTEN_EVERY), () => ring.#listen());
    return ring;
  }

  get size(): number {
    return this.#byHash.size;
  }

  /** False when the store has been silent for too long. */
  get isFresh(): boolean {
    return this.#monotonicNow() - this.#heardAt <= this.#maxSilenceMs;
  }

  /** The key in force with this text; undefined for any other, without saying which of the reasons it was. */
  find(token: string): Credential | undefined | Promise<Credential | undefined> {
    const hash = hashToken(token);
    const held = this.#byHash.get(hash);
    if (held) return this.#inForce(held);
    return looksLikeToken(token) && this.#mayLookUp() ? this.#lookUp(hash) : undefined;
  }

  /** Writes down the last uses that were gathered. */
  async flush(): Promise<void> {
    const since = this.#flushedAt;
    this.#flushedAt = this.#storeNow();
    const entries: [string, number][] = [];
    for (const { usedAt, credential } of this.#byHash.values()) {
      if (usedAt >= since && usedAt > 0) entries.push([credential.key.id, usedAt]);
    }
    for (let i = 0; i < entries.length; i += PAGE) {
      await this.#options.storage.keys.used(new Map(entries.slice(i, i + PAGE)));
    }
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#stop?.();
    await this.#turn;
    await this.flush().catch((error) => this.#problem("last uses could not be written", error));
  }

  #inForce(held: Held): Credential | undefined {
    const { expiresAt } = held.credential.key;
    const now = this.#storeNow();
    if (expiresAt !== undefined && expiresAt <= now) return undefined;
    held.usedAt = now;
    return held.credential;
  }

  #storeNow(): number {
    return Math.round(this.#monotonicNow() + this.#storeOffsetMs);
  }

  #mayLookUp(): boolean {
    const second = Math.floor(this.#monotonicNow() / 1_000);
    if (this.#lookups.second !== second) this.#lookups = { second, count: 0 };
    return this.#lookups.count++ < LOOKUPS_A_SECOND;
  }

  async #lookUp(hash: string): Promise<Credential | undefined> {
    const key = await this.#options.storage.keys.byHash(hash).catch((error: unknown) => {
      throw storeUnavailable(error);
    });
    if (!key || key.revokedAt !== undefined) return undefined;
    // Its own turn comes with the feed; this call alone does not wait for it.
    const credential = this.#read(key);
    return credential && this.#inForce({ credential, usedAt: 0 });
  }

  #changed(change: StoreChange): void {
    this.#heardAt = this.#monotonicNow();
    if (change.topic === "application" && change.action === "remove") {
      this.#dropAllOf(change.app);
      this.#inTurn(async () => this.#dropAllOf(change.app));
    }
    if (change.topic !== "key") return;
    // At once, whatever is still being read: a revoked key does not wait for its turn.
    if (change.action === "revoke") {
      this.#revokedMeanwhile.add(change.name);
      this.#drop(change.name);
    }
    this.#inTurn(() => this.#refresh(change.name));
  }

  async #refresh(id: string): Promise<void> {
    const key = await this.#options.storage.keys.get(id);
    this.#drop(id);
    if (key && key.revokedAt === undefined && !this.#revokedMeanwhile.has(id)) this.#hold(key);
  }

  async #load(): Promise<void> {
    this.#revokedMeanwhile = new Set();
    const keys: ApiKey[] = [];
    let after: string | undefined;
    do {
      const page = await this.#options.storage.keys.list(
        { activeOnly: true },
        { limit: PAGE, ...(after === undefined ? {} : { after }) },
      );
      keys.push(...page.items);
      after = page.next;
      if (keys.length > this.#maxKeys) throw new Error(`more than ${this.#maxKeys} keys are in force; revoke some`);
    } while (after !== undefined);
    const before = [...this.#byHash.values()].map(({ credential }) => credential.key);
    this.#byHash = new Map();
    this.#hashOf.clear();
    for (const key of keys) if (!this.#revokedMeanwhile.has(key.id)) this.#hold(key);
    this.#heardAt = this.#monotonicNow();
    for (const { app, id } of before) if (!this.#hashOf.has(id)) this.#options.onRevoked?.(app, id);
  }

  #hold(key: ApiKey): void {
    const credential = this.#read(key);
    if (!credential) return;
    if (this.#byHash.size >= this.#maxKeys) {
      this.#problem(`more than ${this.#maxKeys} keys are in force; the newest are not known`, undefined);
      return;
    }
    this.#byHash.set(key.hash, { credential, usedAt: 0 });
    this.#hashOf.set(key.id, key.hash);
  }

  #dropAllOf(app: string): void {
    for (const { credential } of this.#byHash.values()) {
      if (credential.key.app === app) this.#drop(credential.key.id);
    }
  }

  #drop(id: string): void {
    const hash = this.#hashOf.get(id);
    if (hash === undefined) return;
    this.#byHash.delete(hash);
    this.#hashOf.delete(id);
  }

  #read(key: ApiKey): Credential | undefined {
    try {
      checkKeyAgent(key.agent);
      const rights = readPermissions(key.permissions);
      return { key, rights, principal: principalOf(key, rights, this.#storeNow()) };
    } catch (error) {
      // Written by a newer program, perhaps: a key that is not understood opens nothing.
      this.#problem(`key ${key.id} is not understood`, error);
      return undefined;
    }
  }

  #inTurn(work: () => Promise<void>): void {
    this.#turn = this.#turn.then(work).catch(async (error) => {
      this.#problem("a change of keys could not be read; all of them are read anew", error);
      await this.#load().catch((again) => {
        // The feed may have been read meanwhile: without this, what was not read would not be read again.
        if (isStoreOutage(again)) this.#options.storage.feed.resync();
      });
    });
  }

  async #listen(): Promise<void> {
    const asked = this.#monotonicNow();
    const storeNow = await this.#options.storage.now();
    this.#storeOffsetMs = storeNow - (asked + this.#monotonicNow()) / 2;
    this.#heardAt = this.#monotonicNow();
  }

  #every(ms: number, work: () => Promise<void>): void {
    const timer = setInterval(() => {
      work().catch((error) => this.#problem("the store of keys does not answer", error));
    }, ms);
    timer.unref();
    this.#timers.push(timer);
  }

  #problem(problem: string, error: unknown): void {
    this.#options.onProblem?.(problem, error);
  }
}

function principalOf(key: ApiKey, rights: KeyRights, storeNow: number): Principal | undefined {
  if (rights.approve.length + rights.console.length > 0) return undefined;
  return {
    app: key.app,
    agent: key.agent,
    tools: rights.invoke,
    resources: rights.resources,
    prompts: rights.prompts,
    shown: rights.read,
    credential: key.id,
    ...(key.expiresAt === undefined ? {} : { expiresAt: steadyTimeOf(key.expiresAt, storeNow) }),
    ...(Object.keys(key.limits).length > 0 ? { limits: key.limits } : {}),
    scope: key.permissions,
    via: "key",
  };
}
