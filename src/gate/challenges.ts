// Where challenges are kept. In memory for one process; the storage room has the same for several.

import type { JsonObject } from "../protocol/index.js";

export interface KeptChallenge {
  readonly id: string;
  /** Identical calls have the same one, and share the challenge. */
  readonly key: string;
  readonly app: string;
  readonly state: string;
  readonly document: JsonObject;
  readonly createdAt: number;
  readonly expiresAt: number;
}

export type NewChallenge = Omit<KeptChallenge, "createdAt" | "expiresAt"> & { readonly ttlMs: number };

export interface ChallengeStore {
  /** The live challenge with this key (neither redeemed nor expired), or this one; nothing when `maxOpen` are live. */
  open(challenge: NewChallenge, maxOpen: number): Promise<{ challenge: KeptChallenge; isNew: boolean } | undefined>;
  /** Compare-and-set of the state: exactly one caller gets the challenge as it is then, all others nothing. */
  move(id: string, from: string, to: string, merge?: JsonObject): Promise<KeptChallenge | undefined>;
  get(id: string): Promise<KeptChallenge | undefined>;
  /** Those that have not expired, the ones that wait first, at most `max`. */
  list(max: number): Promise<KeptChallenge[]>;
  /** Calls back when this challenge, or ("") some challenge, has changed. */
  onChange(listener: (id: string) => void): () => void;
}

export class MemoryChallenges implements ChallengeStore {
  readonly #byId = new Map<string, KeptChallenge>();
  readonly #liveByKey = new Map<string, string>();
  readonly #listeners = new Set<(id: string) => void>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  async open(
    { ttlMs, ...challenge }: NewChallenge,
    maxOpen: number,
  ): Promise<{ challenge: KeptChallenge; isNew: boolean } | undefined> {
    const live = this.#byId.get(this.#liveByKey.get(challenge.key) ?? "");
    if (live && !this.#hasExpired(live)) return { challenge: live, isNew: false };
    if (this.#byId.size >= maxOpen) this.#makeRoom();
    if (this.#byId.size >= maxOpen) return undefined;
    const now = this.#now();
    const kept = { ...challenge, createdAt: now, expiresAt: now + ttlMs };
    this.#byId.set(kept.id, kept);
    this.#liveByKey.set(kept.key, kept.id);
    this.#tell(kept.id);
    return { challenge: kept, isNew: true };
  }

  async move(id: string, from: string, to: string, merge: JsonObject = {}): Promise<KeptChallenge | undefined> {
    const before = this.#byId.get(id);
    if (!before || before.state !== from || this.#hasExpired(before)) return undefined;
    const after = { ...before, state: to, document: { ...before.document, ...merge } };
    this.#byId.set(id, after);
    if (to === "redeemed") this.#liveByKey.delete(after.key);
    this.#tell(id);
    return after;
  }

  async get(id: string): Promise<KeptChallenge | undefined> {
    const found = this.#byId.get(id);
    if (!found || !this.#hasExpired(found)) return found;
    return found.state === "pending" || found.state === "approved" ? { ...found, state: "expired" } : found;
  }

  async list(max: number): Promise<KeptChallenge[]> {
    const all = [...this.#byId.values()].filter((each) => !this.#hasExpired(each));
    const waiting = all.filter(({ state }) => state === "pending");
    return [...waiting, ...all.filter(({ state }) => state !== "pending")].slice(0, max);
  }

  onChange(listener: (id: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #hasExpired({ expiresAt }: KeptChallenge): boolean {
    return this.#now() >= expiresAt;
  }

  #makeRoom(): void {
    for (const each of this.#byId.values()) {
      if (each.state !== "redeemed" && !this.#hasExpired(each)) continue;
      this.#byId.delete(each.id);
      if (this.#liveByKey.get(each.key) === each.id) this.#liveByKey.delete(each.key);
    }
  }

  #tell(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }
}
