// One interface for everything that outlives a process or is shared by several. Nothing here is on the path of a call
// that is permitted: what a call needs is kept in memory and refreshed by the feed.
//
// Obligations of every backend:
// - a write happened whole or not at all; when a method throws `StorageError`, its write did not happen, unless the
//   code is `STORAGE_UNCERTAIN`;
// - every list is paged; every statement and every wait is bounded;
// - times are milliseconds since 1970 by the clock of the store, so that replicas agree on what has expired.

import type { JsonObject, JsonValue } from "../protocol/index.js";
import type { ApplicationDocument } from "./application.js";

/** Who made a change, for the record: `cli:anna`, `admin:operator`, `app:blog`. */
export type Actor = string;

export interface Storage {
  readonly kind: "sqlite" | "postgres";
  /** Names this process in the feed: a listener can tell its own changes from those of others. */
  readonly origin: string;
  readonly applications: Applications;
  readonly keys: Keys;
  readonly secrets: Secrets;
  readonly pins: Pins;
  readonly tokens: DownstreamTokens;
  readonly challenges: Challenges;
  readonly sessions: Sessions;
  readonly values: Values;
  readonly repositories: Repositories;
  readonly leases: Leases;
  readonly replicas: Replicas;
  readonly once: Once;
  readonly letters: Letters;
  readonly feed: Feed;
  /** Rejects when the store cannot be read. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

export interface PageRequest {
  /** Start after this name. */
  readonly after?: string;
  /** At most 1,000; 100 unless told. */
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

export interface Applications {
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
 * What a key may do: `invoke(pattern)`, `read(pattern)`, `list`, `admin.read`, `admin.write`. An approver's key has
 * `approve(group)` only; the identity room sees to it that the two are never together.
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
  readonly lastUsedAt?: number;
}

export type NewKey = Omit<ApiKey, "createdAt" | "revokedAt" | "lastUsedAt">;

export interface Keys {
  add(key: NewKey, by: Actor): Promise<ApiKey>;
  get(id: string): Promise<ApiKey | undefined>;
  byHash(hash: string): Promise<ApiKey | undefined>;
  /** In the order of their ids, of one application or of all; revoked ones too unless `activeOnly`. */
  list(filter?: { app?: string; activeOnly?: boolean }, page?: PageRequest): Promise<Page<ApiKey>>;
  /** Other permissions or limits for a key that is there and not revoked. */
  change(id: string, change: Pick<ApiKey, "permissions" | "limits">, by: Actor): Promise<ApiKey | undefined>;
  /** False when there is no such key or it was revoked before. */
  revoke(id: string, by: Actor): Promise<boolean>;
  /** Last uses, gathered by the caller: at most 1,000 at a time. No part of the feed. */
  used(lastUsed: ReadonlyMap<string, number>): Promise<void>;
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

export interface PinId {
  readonly app: string;
  readonly server: string;
  readonly kind: PinKind;
  readonly name: string;
}

export interface Pin extends PinId {
  readonly hash: string;
  /** The definition in canonical form, to show the difference. */
  readonly definition: string;
  /** `changed`: what the server says now, kept beside what was accepted until somebody decides. */
  readonly status: "accepted" | "changed";
  /** What was accepted, while the status is `changed`. */
  readonly accepted?: { readonly hash: string; readonly definition: string };
  readonly by: Actor;
  readonly at: number;
}

export interface Pins {
  get(id: PinId): Promise<Pin | undefined>;
  list(app: string, server: string, page?: PageRequest): Promise<Page<Pin>>;
  /** Pins what is not pinned yet; answers with what is pinned, be it this or another. */
  first(id: PinId, hash: string, definition: string, by: Actor): Promise<Pin>;
  /** Notes that the server now says something else. Back to what was accepted makes it `accepted` again. */
  changed(id: PinId, hash: string, definition: string): Promise<Pin | undefined>;
  /** Accepts the change with this hash; undefined when the server has said something else again. */
  accept(id: PinId, hash: string, by: Actor): Promise<Pin | undefined>;
  remove(id: PinId, by: Actor): Promise<boolean>;
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
}

// ---- challenges -----------------------------------------------------------------------------------------------------

export interface StoredChallenge {
  readonly id: string;
  /** Identical calls have the same one, and share the challenge. */
  readonly key: string;
  readonly app: string;
  readonly state: string;
  readonly document: JsonObject;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** Satisfied by the gate's in-memory store too; see `gate/approvals.ts`. */
export interface Challenges {
  /**
   * The live challenge with this key (neither redeemed nor expired), or this one, now stored. Undefined when
   * `maxOpen` are live already.
   */
  open(
    challenge: Omit<StoredChallenge, "createdAt" | "expiresAt"> & { readonly ttlMs: number },
    maxOpen: number,
  ): Promise<{ challenge: StoredChallenge; isNew: boolean } | undefined>;
  /**
   * Compare-and-set of the state: to exactly one caller it answers with the challenge after the move, to all others
   * with undefined. An expired challenge does not move. `merge` is laid over the document.
   */
  move(id: string, from: string, to: string, merge?: JsonObject): Promise<StoredChallenge | undefined>;
  /** An expired one has the state `expired`, until it is swept away. */
  get(id: string): Promise<StoredChallenge | undefined>;
  /** Those that have not expired, the ones that wait first, at most `max`. */
  list(max: number): Promise<StoredChallenge[]>;
  /** Calls back when a challenge was opened or has moved, here or elsewhere. */
  onChange(listener: (id: string) => void): () => void;
}

// ---- sessions of the older revisions --------------------------------------------------------------------------------

export interface StoredSession {
  readonly id: string;
  readonly app: string;
  /** Hash over the principal: a session is of use only to whoever opened it. */
  readonly principal: string;
  readonly revision: string;
  readonly state: JsonObject;
  /** The replica that holds its streams. */
  readonly owner: string;
  readonly version: number;
  readonly expiresAt: number;
}

export interface Sessions {
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
  /** Another one after the application was removed and made anew. */
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

export interface Repositories {
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

export interface Rate {
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
  /** Atomic. A lost answer loses tokens and never makes any. */
  lease(key: string, want: number, rate: Rate): Promise<Lease>;
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
  /** Those heard of within `withinMs`, at most 1,000. */
  list(withinMs: number): Promise<Replica[]>;
  remove(id: string): Promise<void>;
}

// ---- between replicas ----------------------------------------------------------------------------------------------

export interface Once {
  /** True to exactly one caller, of all replicas, until `ttlMs` have passed. */
  first(id: string, ttlMs: number): Promise<boolean>;
}

export interface Letters {
  /** The addressee hears of it by the feed: topic `letter`, its address as `app`, the letter's id as `name`. */
  post(to: string, text: string, ttlMs: number): Promise<void>;
  /** Undefined when it has expired. */
  read(id: string): Promise<string | undefined>;
}

// ---- changes --------------------------------------------------------------------------------------------------------

export type Topic = "application" | "key" | "secret" | "pin" | "token" | "challenge" | "session" | "letter";

export interface Change {
  /** Without gaps in the order of commits. */
  readonly seq: number;
  readonly topic: Topic;
  readonly action: "put" | "remove" | "revoke" | "accept" | "changed" | "move";
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
  change(change: Change): void;
  /** Changes may have been missed: read anew whatever is kept in memory. */
  resync(): void;
}

export interface Feed {
  /** Resolves when it listens: everything committed from now on is heard, within a second. */
  watch(listener: FeedListener): Promise<() => void>;
  /** What happened after `seq`, oldest first, at most 1,000; undefined when that is no longer known. */
  since(seq: number): Promise<readonly Change[] | undefined>;
  /** The number of the last change; 0 when there was none. */
  latest(): Promise<number>;
}
