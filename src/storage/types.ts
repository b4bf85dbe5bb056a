// One interface for everything that outlives a process or is shared by several. Nothing here is on the path of a call
// that is permitted: what a call needs is kept in memory and refreshed by the feed.
//
// Obligations of every backend:
// - a write happened whole or not at all; when a method throws `StorageError`, its write did not happen, unless the
//   code is `STORAGE_UNCERTAIN`;
// - every list is paged; every statement and every wait is bounded;
// - times are milliseconds since 1970 by the clock of the store, so that replicas agree on what has expired.

import type { JsonObject, JsonValue } from "../mcp/index.js";
import type { ApplicationDocument } from "./application.js";

/** Who made a change, for the record: `cli:anna`, `admin:operator`, `app:blog`. */
export type Actor = string;

export interface Storage {
  readonly kind: "sqlite" | "postgres";
  /** Names this process in the feed: a listener distinguishes its own changes by it. */
  readonly origin: string;
  readonly applications: ApplicationTable;
  readonly keys: Keys;
  readonly access: Access;
  readonly secrets: Secrets;
  readonly pins: Pins;
  readonly tokens: DownstreamTokens;
  readonly challenges: Challenges;
  readonly sessions: SessionTable;
  readonly values: Values;
  readonly repositories: RepositoryTable;
  readonly leases: Leases;
  readonly replicas: Replicas;
  readonly ledgers: Ledgers;
  readonly halts: HaltTable;
  readonly once: NonceTable;
  readonly replicaMessages: ReplicaMessages;
  readonly dumps: Dumps;
  readonly feed: Feed;
  /**
   * For a process with proof that the store was restored to an older copy: ends open approvals and request states, which
   * could count a second time. False when it was done later than `after`, by the clock of the store.
   */
  settleRollback(after: number, proof: string): Promise<boolean>;
  /** Rejects when the store cannot be read. */
  ping(): Promise<void>;
  /** Milliseconds since 1970 by the clock of the store. */
  now(): Promise<number>;
  close(): Promise<void>;
}

export interface PageRequest {
  /** Start after this name. */
  readonly after?: string;
  /** At most 1,000; 100 unless given. */
  readonly limit?: number;
}

export interface Page<T> {
  readonly items: readonly T[];
  /** Give it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

// ---- applications ---------------------------------------------------------------------------------------------------

export interface Application {
  readonly id: string;
  readonly document: ApplicationDocument;
  /** Counts up with every change. */
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export interface ApplicationTable {
  get(id: string): Promise<Application | undefined>;
  list(page?: PageRequest): Promise<Page<Application>>;
  /**
   * Creates (`revision` 0) or replaces the document if its revision is still the one given; undefined when it is not.
   * Without `revision` it is put whatever is there. A document that is not valid throws `ApplicationInvalid`.
   */
  put(id: string, document: ApplicationDocument, by: Actor, revision?: number): Promise<Application | undefined>;
  /** With everything that belongs to it: keys, secrets, pins, tokens, values, definition files, sessions, challenges. */
  remove(id: string, by: Actor): Promise<boolean>;
}

// ---- keys -----------------------------------------------------------------------------------------------------------

/**
 * What a key may do: `invoke(pattern)`, `read(pattern)`, `read(resource:pattern)`,
 * `read(prompt:pattern)`, `list`, `admin.read`, `admin.write`. An approver's key has
 * `approve(group)` only; `auth` never issues both together.
 */
export type Permission = string;

export interface KeyLimits {
  readonly perMinute?: number;
  readonly perHour?: number;
}

export interface ApiKey {
  readonly id: string;
  readonly app: string;
  readonly agent: string;
  readonly name: string;
  /** Lower-case hex of SHA-256 over the whole key; the key itself is nowhere. */
  readonly hash: string;
  /** How its owner recognises it. */
  readonly prefix: string;
  readonly permissions: readonly Permission[];
  readonly limits: KeyLimits;
  readonly createdAt: number;
  readonly expiresAt?: number;
  readonly revokedAt?: number;
  /** As of half a minute: see `Keys.used`. */
  readonly lastUsedAt?: number;
}

export type NewKey = Omit<ApiKey, "createdAt" | "revokedAt" | "lastUsedAt">;

export interface Keys {
  add(key: NewKey, by: Actor): Promise<ApiKey>;
  get(id: string): Promise<ApiKey | undefined>;
  byHash(hash: string): Promise<ApiKey | undefined>;
  /** In the order of their ids, of one application or of all; revoked ones too unless `activeOnly`. */
  list(filter?: { app?: string; activeOnly?: boolean }, page?: PageRequest): Promise<Page<ApiKey>>;
  /** Other permissions, limits or, where it is given, another expiry for a key that is there and not revoked. */
  change(
    id: string,
    change: Pick<ApiKey, "permissions" | "limits" | "expiresAt">,
    by: Actor,
  ): Promise<ApiKey | undefined>;
  /** False when there is no such key or it was revoked before. */
  revoke(id: string, by: Actor): Promise<boolean>;
  /** Last uses, gathered by the caller: at most 1,000 at a time. Uses within half a minute count as one. No part of the feed. */
  used(lastUsed: ReadonlyMap<string, number>): Promise<void>;
}

// ---- access without a credential --------------------------------------------------------------------------------------

export interface AccessState {
  /** The operator, or the creation of an embedded store, switched local access on. */
  readonly localAccess: boolean;
  /** A key or an issuer was configured at some time. Never becomes false again. */
  readonly hasCredentials: boolean;
}

/** INVARIANT: `hasCredentials` is set in the transaction that adds the first key, and nothing resets it. */
export interface Access {
  get(): Promise<AccessState>;
  /** Returns the new state; switching on has no effect once `hasCredentials` is set. */
  setLocalAccess(isOn: boolean, by: Actor): Promise<AccessState>;
  /** Records that a credential other than a new key was configured: `issuer`, or `credential` when a ledger shows it. */
  credentialConfigured(name: "issuer" | "credential", by: Actor): Promise<void>;
}

// ---- secrets --------------------------------------------------------------------------------------------------------

export interface SealedSecret {
  readonly app: string;
  readonly name: string;
  /** Made by `Sealer.seal`; the store never sees the plain value. */
  readonly sealed: Uint8Array;
  readonly updatedAt: number;
}

export interface Secrets {
  put(app: string, name: string, sealed: Uint8Array, by: Actor): Promise<void>;
  get(app: string, name: string): Promise<SealedSecret | undefined>;
  list(app: string, page?: PageRequest): Promise<Page<Omit<SealedSecret, "sealed">>>;
  remove(app: string, name: string, by: Actor): Promise<boolean>;
}

// ---- pins -----------------------------------------------------------------------------------------------------------

export type PinKind = "tool" | "prompt" | "resource" | "template" | "instructions";

export interface StoredPinId {
  readonly app: string;
  readonly server: string;
  readonly kind: PinKind;
  readonly name: string;
}

export interface Pin extends StoredPinId {
  readonly hash: string;
  /** The definition in canonical form, to show the difference. */
  readonly definition: string;
  /** `changed`: what the server lists now, kept beside what was accepted until an operator decides. */
  readonly status: "accepted" | "changed";
  /** What was accepted, while the status is `changed`. */
  readonly accepted?: { readonly hash: string; readonly definition: string };
  readonly by: Actor;
  readonly at: number;
}

/** A pin without its texts, to compare many at once. */
export interface PinState {
  readonly kind: PinKind;
  readonly name: string;
  readonly hash: string;
  readonly status: "accepted" | "changed";
  /** False for a definition that was never accepted in any form. */
  readonly wasAccepted: boolean;
  /** Characters of the texts that are kept. */
  readonly size: number;
}

export interface OfferedPin {
  readonly kind: PinKind;
  readonly name: string;
  readonly hash: string;
  readonly definition: string;
}

/** A definition that cannot be stored, with the reason. */
export interface RefusedPin {
  readonly kind: PinKind;
  readonly name: string;
  readonly reason: string;
}

export interface RecordPins {
  readonly by: Actor;
  /** What is seen for the first time counts as accepted. */
  readonly trustsFirst: boolean;
  /** Pins to remove in the same transaction. */
  readonly remove?: readonly { readonly kind: PinKind; readonly name: string }[];
}

export interface Pins {
  get(id: StoredPinId): Promise<Pin | undefined>;
  list(app: string, server: string, page?: PageRequest): Promise<Page<Pin>>;
  /** All pins of a server, without their texts. */
  states(app: string, server: string): Promise<PinState[]>;
  /**
   * One listing of a server, in one transaction: pins what is not pinned yet and notes what is other than the pin.
   * Back to what was accepted makes it `accepted` again. Answers with what cannot be stored.
   */
  record(app: string, server: string, offered: readonly OfferedPin[], options: RecordPins): Promise<RefusedPin[]>;
  /** Accepts the change with this hash; undefined when the server lists another definition by now. */
  accept(id: StoredPinId, hash: string, by: Actor): Promise<Pin | undefined>;
  /** Accepts many in one transaction; what has another hash by now is left as it is. */
  acceptAll(
    app: string,
    server: string,
    pins: readonly { readonly kind: PinKind; readonly name: string; readonly hash: string; readonly by?: Actor }[],
    by: Actor,
  ): Promise<void>;
  remove(id: StoredPinId, by: Actor): Promise<boolean>;
  /** Removes all pins of a server; answers with how many there were. */
  clear(app: string, server: string, by: Actor): Promise<number>;
}

// ---- tokens for downstream servers ----------------------------------------------------------------------------------

export interface TokenId {
  readonly app: string;
  readonly server: string;
  /** "" for the application's own. */
  readonly user: string;
}

export interface DownstreamToken extends TokenId {
  readonly sealed: Uint8Array;
  /** For the compare-and-set of a refresh: of several replicas one refreshes. */
  readonly version: number;
  readonly updatedAt: number;
}

export interface DownstreamTokens {
  get(id: TokenId): Promise<DownstreamToken | undefined>;
  /** Puts it when the version is still the one given (0: there is none yet); undefined when it is not. */
  put(id: TokenId, sealed: Uint8Array, version?: number): Promise<DownstreamToken | undefined>;
  remove(id: TokenId): Promise<boolean>;
  /** Of all applications. */
  list(page?: PageRequest): Promise<Page<DownstreamToken>>;
}

// ---- challenges -----------------------------------------------------------------------------------------------------

export interface StoredChallenge {
  readonly id: string;
  /** Identical calls have the same one, and share the challenge. */
  readonly key: string;
  readonly app: string;
  readonly agent: string;
  readonly state: string;
  /** Small: lists read it for every challenge. */
  readonly document: JsonObject;
  readonly createdAt: number;
  readonly expiresAt: number;
}

export interface NewStoredChallenge extends Omit<StoredChallenge, "createdAt" | "expiresAt"> {
  /** What the approver reads in full; `get` alone loads it. */
  readonly payload: JsonObject;
  readonly ttlMs: number;
}

/** Satisfied by the gate's in-memory store too; see `policy/challenges.ts`. */
export interface Challenges {
  /**
   * The live challenge with this key (neither redeemed nor expired), or this one, now stored. `full` when as many are
   * open (pending or approved) as the application or the agent may have; those of the same key are joined all the same.
   */
  open(
    challenge: NewStoredChallenge,
    bounds: { readonly perApp: number; readonly perAgent: number },
  ): Promise<{ challenge: StoredChallenge; isNew: boolean } | { full: "app" | "agent" }>;
  /**
   * Compare-and-set of the state: to exactly one caller it answers with the challenge after the move, to all others
   * with undefined. An expired challenge does not move, nor does one come back to life while another with its key
   * is live. `merge` is laid over the document.
   */
  move(id: string, from: string, to: string, merge?: JsonObject): Promise<StoredChallenge | undefined>;
  /** An expired one has the state `expired`, until it is swept away. */
  get(id: string): Promise<(StoredChallenge & { readonly payload: JsonObject }) | undefined>;
  /** States by id and nothing else, for waiting callers; unknown ids are left out. */
  states(ids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /**
   * Those that have not expired, pending ones first, at most `max`. Applications take turns, so that one with many
   * does not push out the others.
   */
  list(
    max: number,
    filter?: { readonly app?: string | undefined; readonly state?: string | undefined },
  ): Promise<StoredChallenge[]>;
  /** How many wait for an answer, for how long the oldest has, and how many expired unanswered in the last hour. */
  figures(): Promise<{ readonly pending: number; readonly oldestMs: number; readonly expired: number }>;
  /** Calls back when an approval request was opened or changed, in this process or another. */
  onChange(listener: (id: string) => void): () => void;
}

// ---- sessions of the older revisions --------------------------------------------------------------------------------

export interface StoredSession {
  readonly id: string;
  readonly app: string;
  /** Hash over the principal: a session is usable only by the caller that opened it. */
  readonly principal: string;
  readonly revision: string;
  readonly state: JsonObject;
  /** The replica that holds its streams. */
  readonly owner: string;
  readonly version: number;
  readonly expiresAt: number;
}

export interface SessionTable {
  add(session: Omit<StoredSession, "version" | "expiresAt"> & { readonly ttlMs: number }): Promise<StoredSession>;
  get(id: string): Promise<StoredSession | undefined>;
  /** Compare-and-set on `version`: takes it over, changes its state, and prolongs it. */
  update(
    id: string,
    version: number,
    change: { readonly owner?: string; readonly state?: JsonObject; readonly ttlMs: number },
  ): Promise<StoredSession | undefined>;
  /** Prolongs those that are still there; at most 1,000 at a time. */
  touch(ids: readonly string[], ttlMs: number): Promise<void>;
  remove(id: string): Promise<boolean>;
}

// ---- runtime values -------------------------------------------------------------------------------------------------

export interface StoredValue {
  readonly key: string;
  readonly value: JsonValue;
  readonly version: number;
  readonly expiresAt?: number;
}

export interface Values {
  get(app: string, key: string): Promise<StoredValue | undefined>;
  /**
   * Undefined when `version` is given and is no longer the stored one (0: there is none). Throws `STORAGE_FULL` when
   * the application has as many values as it may have.
   */
  set(
    app: string,
    key: string,
    value: JsonValue,
    options?: { readonly ttlMs?: number; readonly version?: number },
  ): Promise<StoredValue | undefined>;
  remove(app: string, key: string, version?: number): Promise<boolean>;
  list(app: string, prefix?: string, page?: PageRequest): Promise<Page<StoredValue>>;
}

// ---- definition files -----------------------------------------------------------------------------------------------

/** Where an application's history stands. The commits are in the packs; what a pack holds is git's business. */
export interface StoredRepository {
  /** Changes when the application is removed and recreated. */
  readonly id: string;
  /** The newest commit. */
  readonly head: string;
  /** Counts up with every push. */
  readonly seq: number;
  /** Of all packs together. */
  readonly bytes: number;
  /** Who asked to go first, because others were always faster. */
  readonly claimedBy?: string;
}

/** What leads from `parent` (from nothing, in the first pack) to `head`. */
export interface StoredPack {
  readonly name: string;
  readonly seq: number;
  readonly parent?: string;
  readonly head: string;
  readonly bytes: number;
}

/** A buffer is one; so is a file that is read piece by piece, perhaps more than once. */
export interface PackBytes {
  readonly byteLength: number;
  subarray(begin: number, end: number): Uint8Array;
}

export interface RepositoryTable {
  /** One statement, cheap enough for every read. `store` names this store among all there are. */
  state(app: string): Promise<{ readonly store: string; readonly repository?: StoredRepository }>;
  /**
   * Compare-and-set: moves the head and keeps the pack that leads there if the repository is still as `from` says
   * (undefined: there is none yet); undefined when it is not. An application that is not there has no repository.
   * A claim of `by` ends with it.
   */
  push(
    app: string,
    from: Pick<StoredRepository, "id" | "seq" | "head"> | undefined,
    head: string,
    pack: PackBytes,
    by: string,
  ): Promise<StoredRepository | undefined>;
  /** Asks the others to let `by` go first, for so long at most, unless one of them has asked. They need not heed it. */
  claim(app: string, id: string, by: string, ms: number): Promise<boolean>;
  /** The packs after `seq`, oldest first, at most 1,000; none when the repository is no longer the one with this id. */
  packs(app: string, id: string, after: number): Promise<StoredPack[]>;
  /** The bytes of a pack from `part` on, counted from 0: undefined at the end, or when the pack was merged meanwhile. */
  part(app: string, pack: StoredPack, part: number): Promise<Uint8Array | undefined>;
  /** Puts one pack in the place of these, which follow each other. False when they are no longer there. */
  merge(app: string, id: string, packs: readonly StoredPack[], merged: PackBytes): Promise<boolean>;
}

// ---- limits shared by replicas --------------------------------------------------------------------------------------

export interface RateLimitTable {
  /** So many tokens… */
  readonly tokens: number;
  /** …in so many milliseconds, refilled evenly. */
  readonly periodMs: number;
  /** At most so many at once. */
  readonly burst: number;
}

export interface Lease {
  /** Tokens that are now the caller's: between 0 and what it wanted. */
  readonly granted: number;
  /** When the next token is there; 0 when something was granted. */
  readonly retryAfterMs: number;
}

export interface Leases {
  /**
   * Atomic. A lost answer loses tokens and never makes any. Grants `want` or what there is, and nothing when that is less
   * than `atLeast` (1 unless given).
   */
  lease(key: string, want: number, rate: RateLimitTable, atLeast?: number): Promise<Lease>;
  /** Takes tokens that were used already, whether there are so many or not: later leases wait for them. */
  charge(key: string, tokens: number, rate: RateLimitTable): Promise<void>;
}

// ---- replicas -------------------------------------------------------------------------------------------------------

export interface Replica {
  readonly id: string;
  readonly ledgerOrigin: string;
  readonly detail: JsonObject;
  readonly startedAt: number;
  readonly seenAt: number;
}

export interface Replicas {
  /** Registers and re-registers: the heartbeat. */
  beat(replica: Pick<Replica, "id" | "ledgerOrigin" | "detail">): Promise<void>;
  /** Replicas seen within `withinMs`, at most 1,000. */
  list(withinMs: number): Promise<Replica[]>;
  remove(id: string): Promise<void>;
}

// ---- ledgers --------------------------------------------------------------------------------------------------------

/** A ledger that gateways on this store have written, with the last checkpoint that reached the store. */
export interface RegisteredLedger {
  readonly origin: string;
  /** Host and directory. */
  readonly place: string;
  readonly note: string;
  /** Records that the checkpoint covers. */
  readonly size: number;
  readonly updatedAt: number;
}

/** INVARIANT: the checkpoint of a ledger never goes back. */
export interface Ledgers {
  put(ledger: Omit<RegisteredLedger, "updatedAt">): Promise<void>;
  get(origin: string, place: string): Promise<RegisteredLedger | undefined>;
  /** At most 10,000. */
  list(): Promise<RegisteredLedger[]>;
  /** Ends the registration, at one place or at all: a ledger that was given up is not expected any more. */
  remove(origin: string, by: Actor, place?: string): Promise<boolean>;
}

// ---- between replicas ----------------------------------------------------------------------------------------------

export interface NonceTable {
  /** True to exactly one caller, of all replicas, until `ttlMs` have passed. */
  first(id: string, ttlMs: number): Promise<boolean>;
  /** The next `first` of this id is true again. */
  forget(id: string): Promise<void>;
}

export interface ReplicaMessages {
  /** The recipient is notified by the feed: topic `letter`, its address as `app`, the message id as `name`. */
  post(to: string, text: string, ttlMs: number): Promise<void>;
  /** Undefined when it has expired. */
  read(id: string): Promise<string | undefined>;
}

// ---- copies of the whole store -----------------------------------------------------------------------------------------

export interface DumpHeader {
  /** How many migrations the store had. */
  readonly level: number;
  readonly kind: "sqlite" | "postgres";
  /** Names the store since it was created or last restored. */
  readonly epoch: string;
  /** The last change that the copy holds. */
  readonly seq: number;
  /** When, by the clock of the store. */
  readonly at: number;
  readonly rows?: number;
}

export interface StoreLoadOptions {
  /** Names the copy, for the record. */
  readonly name: string;
  readonly by: Actor;
  /** Keys that are known to have been revoked after the copy was made. */
  readonly revoke?: readonly string[];
}

/** How the store differs from what it was before; names, at most 1,000 of each. */
export interface LoadReport {
  readonly applicationsGone: readonly string[];
  readonly applicationsBack: readonly string[];
  readonly applicationsChanged: readonly string[];
  /** Were in force and are not known any more. */
  readonly keysGone: readonly string[];
  /** Are in force and were not known: each may have been removed, or be older than the store that was replaced. */
  readonly keysBack: readonly string[];
  /** In force in the copy, revoked since, and revoked now. */
  readonly keysStayRevoked: readonly string[];
  /** Approval requests that were open in the copy: each is expired, so that none is redeemed twice. */
  readonly expiredApprovals: number;
}

export interface Dumps {
  /** Hands out the store as it is at one moment, line by line; writers do not wait. */
  write(line: (text: string) => Promise<void>): Promise<DumpHeader>;
  /** How many migrations the store has. */
  readonly level: number;
  /** Takes the newest migration back, for the version before; returns the new level. The store has to be closed then. */
  downgrade(): Promise<number>;
  /** Whether the store was never used. */
  isEmpty(): Promise<boolean>;
  /**
   * Puts a copy in the place of everything, in one transaction. Revoked keys stay revoked, spent nonces spent, used tokens
   * of limits used, and access without a credential off; open approvals expire. `lines` may be called more than once.
   */
  load(lines: () => AsyncIterable<string>, options: StoreLoadOptions): Promise<LoadReport>;
}

// ---- emergency stop ---------------------------------------------------------------------------------------------------

export interface StoredHalt {
  /** What is halted, in the canonical text of `policy`; one halt for each. */
  readonly name: string;
  /** "" where the halt names no application. */
  readonly app: string;
  readonly reason: string;
  readonly by: Actor;
  readonly at: number;
}

/** INVARIANT: nothing but `remove` ends a halt; a copy of the store that is loaded ends none. */
export interface HaltTable {
  put(halt: Pick<StoredHalt, "name" | "app" | "reason">, by: Actor): Promise<StoredHalt>;
  /** All of them: there are at most 1,000. */
  list(): Promise<StoredHalt[]>;
  remove(name: string, by: Actor): Promise<boolean>;
}

// ---- changes --------------------------------------------------------------------------------------------------------

export type Topic =
  | "application"
  | "access"
  | "key"
  | "secret"
  | "pin"
  | "token"
  | "challenge"
  | "session"
  | "letter"
  | "ledger"
  | "halt"
  | "store";

export interface StoreChange {
  /** Without gaps in the order of commits. */
  readonly seq: number;
  readonly topic: Topic;
  readonly action: "put" | "remove" | "revoke" | "accept" | "changed" | "move" | "restored" | "rotate" | "reset";
  readonly app: string;
  /** Id or name of what has changed, inside its application. */
  readonly name: string;
  readonly by: Actor;
  readonly at: number;
  /** The process that made it: `Storage.origin`. */
  readonly origin: string;
}

export interface FeedListener {
  /** In order, each once; one's own too. */
  change(change: StoreChange): void;
  /** Changes may have been missed: read anew whatever is kept in memory. */
  resync(): void;
}

export interface Feed {
  /** Resolves when it listens: everything committed from now on is reported within a second. */
  watch(listener: FeedListener): Promise<() => void>;
  /**
   * What happened after `seq`, oldest first, at most 1,000; undefined when that is no longer known, or when the change
   * numbered `seq` is not `last` any more, because the store was restored or lost commits.
   */
  since(seq: number, last?: StoreChange): Promise<readonly StoreChange[] | undefined>;
  /** The number of the last change; 0 when there was none. */
  latest(): Promise<number>;
  /** Milliseconds since the watch last read all changes, by the monotonic clock; 0 while nothing is watched. */
  readonly lagMs: number;
  /** For a listener that could not read a reported change: `resync` is called again after the next read of the feed. */
  resync(): void;
  /** The changes from this number on that are still kept, oldest first, at most 1,000: earlier ones may be gone. */
  kept(from: number): Promise<readonly StoreChange[]>;
  /** The last change that this ledger has recorded; for a ledger without one, that of the ledger furthest ahead. */
  recordedBy(ledger: string): Promise<number>;
  /** Announces what concerns the whole store, or asks the writer of a ledger for something; it is recorded. */
  announce(change: Pick<StoreChange, "topic" | "action" | "name" | "by">): Promise<void>;
  /** Not part of the feed. */
  setRecorded(ledger: string, seq: number): Promise<void>;
}
