// Storage of approval requests: in memory for one process; `storage/` has the same contract for several.

import { type ByteBudget, Charge, type JsonObject, steadyNow } from "../mcp/index.js";

export interface KeptChallenge {
  readonly id: string;
  /** Identical calls have the same one, and share the challenge. */
  readonly key: string;
  readonly app: string;
  readonly agent: string;
  readonly state: string;
  /** Small: lists read it for every request. */
  readonly document: JsonObject;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** What the approver reads in full; only `get` loads it. */
interface WithPayload {
  readonly payload: JsonObject;
}

type NewChallenge = Omit<KeptChallenge, "createdAt" | "expiresAt"> & WithPayload & { readonly ttlMs: number };

/** How many approval requests may be open (pending or approved) at once. */
export interface OpenBounds {
  readonly perApp: number;
  readonly perAgent: number;
}

export type Opened =
  | { readonly challenge: KeptChallenge; readonly isNew: boolean }
  | { readonly full: "app" | "agent" };

export interface ChallengeFilter {
  readonly app?: string | undefined;
  readonly state?: string | undefined;
}

export interface ChallengeStore {
  /** The live challenge with this key (neither redeemed nor expired), or this one; `full` when a bound is reached. */
  open(challenge: NewChallenge, bounds: OpenBounds): Promise<Opened>;
  /** Compare-and-set of the state: exactly one caller gets the challenge as it is then, all others nothing. */
  move(id: string, from: string, to: string, merge?: JsonObject): Promise<KeptChallenge | undefined>;
  get(id: string): Promise<(KeptChallenge & WithPayload) | undefined>;
  /** States by id, and nothing else; ids that are not there are left out. */
  states(ids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Those that have not expired, pending ones first, the oldest of each application first, at most `max`. */
  list(max: number, filter?: ChallengeFilter): Promise<KeptChallenge[]>;
  /** Calls back when this challenge, or ("") some challenge, has changed. */
  onChange(listener: (id: string) => void): () => void;
}

type Kept = KeptChallenge & WithPayload;

/** Whose bytes an approval request of this caller are; undefined where nothing is charged. */
export type BudgetOf = (caller: { readonly app: string; readonly agent: string }) => ByteBudget | undefined;

/** Open ones, those that were denied (an identical retry reads the answer), and ended ones for status queries. */
const MAX_KEPT = 10_000;
/** Characters of payload in all. Open ones are charged to their callers besides. */
const MAX_KEPT_CHARS = 16 * 1024 * 1024;
/** What an approval request costs besides its payload. */
const DOCUMENT_BYTES = 4_096;

export class MemoryChallenges implements ChallengeStore {
  readonly #byId = new Map<string, Kept>();
  readonly #liveByKey = new Map<string, string>();
  readonly #listeners = new Set<(id: string) => void>();
  readonly #now: () => number;
  /** Of those that are open, by id. */
  readonly #charges = new Map<string, Charge>();
  #budgetOf: BudgetOf = () => undefined;
  #chars = 0;

  constructor(now: () => number = steadyNow) {
    this.#now = now;
  }

  /** Charges what is opened from now on. */
  chargeTo(budgetOf: BudgetOf): void {
    this.#budgetOf = budgetOf;
  }

  async open({ ttlMs, ...challenge }: NewChallenge, bounds: OpenBounds): Promise<Opened> {
    const live = this.#byId.get(this.#liveByKey.get(challenge.key) ?? "");
    if (live && !this.#hasExpired(live)) return { challenge: live, isNew: false };
    const full = this.#fullFor(challenge, bounds);
    if (full) return { full };
    if (!this.#makeRoom(charsOf(challenge))) return { full: "app" };
    const charge = new Charge(this.#budgetOf(challenge));
    if (!charge.set(DOCUMENT_BYTES + 2 * charsOf(challenge))) return { full: "agent" };
    this.#charges.set(challenge.id, charge);
    const now = this.#now();
    this.#chars += charsOf(challenge);
    const kept = { ...challenge, createdAt: now, expiresAt: now + ttlMs };
    this.#byId.set(kept.id, kept);
    this.#liveByKey.set(kept.key, kept.id);
    this.#notify(kept.id);
    return { challenge: kept, isNew: true };
  }

  async move(id: string, from: string, to: string, merge: JsonObject = {}): Promise<KeptChallenge | undefined> {
    const before = this.#byId.get(id);
    if (!before || before.state !== from || this.#hasExpired(before)) return undefined;
    const live = this.#liveByKey.get(before.key);
    // An identical call was opened meanwhile: it is that one which counts.
    if (to !== "redeemed" && live !== undefined && live !== id && this.#isLive(live)) return undefined;
    const after = { ...before, state: to, document: { ...before.document, ...merge } };
    this.#byId.set(id, after);
    if (!isOpen(after)) this.#release(id);
    if (to === "redeemed") this.#liveByKey.delete(after.key);
    else this.#liveByKey.set(after.key, id);
    this.#notify(id);
    return after;
  }

  async get(id: string): Promise<Kept | undefined> {
    const found = this.#byId.get(id);
    return found && { ...found, state: this.#stateOf(found) };
  }

  async states(ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const found = ids.map((id) => this.#byId.get(id)).filter((each) => each !== undefined);
    return new Map(found.map((each) => [each.id, this.#stateOf(each)]));
  }

  async list(max: number, { app, state }: ChallengeFilter = {}): Promise<KeptChallenge[]> {
    const all = [...this.#byId.values()].filter(
      (each) =>
        !this.#hasExpired(each) &&
        (app === undefined || each.app === app) &&
        (state === undefined || each.state === state),
    );
    const waiting = all.filter((each) => each.state === "pending");
    return [...inTurn(waiting), ...inTurn(all.filter((each) => each.state !== "pending"))].slice(0, max);
  }

  onChange(listener: (id: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #fullFor({ app, agent }: { app: string; agent: string }, bounds: OpenBounds): "app" | "agent" | undefined {
    let ofApp = 0;
    let ofAgent = 0;
    for (const each of this.#byId.values()) {
      if (this.#hasExpired(each)) this.#release(each.id);
      if (each.app !== app || !isOpen(each) || this.#hasExpired(each)) continue;
      ofApp++;
      if (each.agent === agent) ofAgent++;
    }
    return ofAgent >= bounds.perAgent ? "agent" : ofApp >= bounds.perApp ? "app" : undefined;
  }

  #stateOf(kept: Kept): string {
    return isOpen(kept) && this.#hasExpired(kept) ? "expired" : kept.state;
  }

  #isLive(id: string): boolean {
    const found = this.#byId.get(id);
    return found !== undefined && !this.#hasExpired(found);
  }

  #hasExpired({ expiresAt }: KeptChallenge): boolean {
    return this.#now() >= expiresAt;
  }

  /** Ended ones make room for new ones, the oldest first; false when all that are kept are open. */
  #makeRoom(chars: number): boolean {
    const fits = (): boolean => this.#byId.size < MAX_KEPT && this.#chars + chars <= MAX_KEPT_CHARS;
    for (const each of this.#byId.values()) {
      if (fits()) return true;
      if (isOpen(each) && !this.#hasExpired(each)) continue;
      this.#byId.delete(each.id);
      this.#release(each.id);
      this.#chars -= charsOf(each);
      if (this.#liveByKey.get(each.key) === each.id) this.#liveByKey.delete(each.key);
    }
    return fits();
  }

  #release(id: string): void {
    this.#charges.get(id)?.set(0);
    this.#charges.delete(id);
  }

  #notify(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }
}

function charsOf({ payload }: WithPayload): number {
  return Object.values(payload).reduce<number>((sum, text) => sum + String(text).length, 0);
}

function isOpen({ state }: { readonly state: string }): boolean {
  return state === "pending" || state === "approved";
}

/** One of each application in turn, so that one with many does not push the others out of a list. */
function inTurn(all: readonly Kept[]): Kept[] {
  const counts = new Map<string, number>();
  const ranked = all.map((each) => {
    const rank = counts.get(each.app) ?? 0;
    counts.set(each.app, rank + 1);
    return { each, rank };
  });
  return ranked.sort((a, b) => a.rank - b.rank).map(({ each }) => each);
}
