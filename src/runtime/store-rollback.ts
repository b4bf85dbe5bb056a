// At a start: whether the store is an older copy of itself. It was never put back together with the ledgers, so they show
// it: by the last checkpoint that this store has taken, and by what was used since the one that it knows.

import { readFile, rename, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { LedgerReadError, type LedgerRecord, read } from "../ledger/index.js";
import type { RegisteredLedger, Storage } from "../storage/index.js";
import { LastingChanges, storeChangeOf } from "./record-changes.js";

const POSITION_FILE = "registered.json";
/** Longer than approvals and request states are valid. */
const RECENT_MS = 3_600_000;
/** More records than this since the last checkpoint in the store are proof enough: it takes one every few seconds. */
const MAX_TAIL = 100_000;

/** What the store has taken of a ledger, kept beside that ledger. */
interface Position {
  /** The ledger in the store: a directory may be moved, and a machine get another name. */
  readonly origin: string;
  readonly place: string;
  readonly size: number;
  /** By the clock of this machine. */
  readonly at: number;
}

export async function writePosition(dir: string, taken: Omit<Position, "at">): Promise<void> {
  const file = join(dir, POSITION_FILE);
  const position: Position = { ...taken, at: Date.now() };
  await writeFile(`${file}.new`, JSON.stringify(position), { mode: 0o600 });
  await rename(`${file}.new`, file);
}

async function readPosition(dir: string): Promise<Position | undefined> {
  try {
    const position = JSON.parse(await readFile(join(dir, POSITION_FILE), "utf8")) as Position;
    return Number.isSafeInteger(position.size) && Number.isFinite(position.at) ? position : undefined;
  } catch {
    return undefined;
  }
}

/** Proof that the store was put back, and a time at which it was not yet. */
interface Proof {
  readonly reason: string;
  readonly at: number;
}

/** Looks at the ledger in `own` and at every other ledger on this machine. True when the store was put back. */
export async function settleOlderStore(storage: Storage, own: string): Promise<boolean> {
  const here = `${hostname()}:`;
  const ledgers = await storage.ledgers.list();
  const near = ledgers.filter(({ place }) => place.startsWith(here)).map(({ place }) => place.slice(here.length));
  const proofs: Proof[] = [];
  for (const dir of new Set([resolve(own), ...near])) {
    const position = await readPosition(dir);
    // Without one, no gateway has written this ledger since it is kept.
    const size = position === undefined ? 0 : knownSize(ledgers, position);
    const proof = position && (await proofIn(storage, dir, position, size));
    if (proof) proofs.push(proof);
    if (!position) continue;
    const lasting = await changesSince(dir, size);
    for (const what of await lasting.write(storage, "gateway")) {
      proofs.push({ reason: `${dir} has ${what}, the store does not`, at: position.at });
    }
    for (const id of await keysInForceAgain(storage, lasting.revoked)) {
      proofs.push({ reason: `${dir} has the revocation of ${id}, the store does not`, at: position.at });
      await storage.keys.revoke(id, "gateway");
    }
  }
  const [newest] = proofs.sort((a, b) => b.at - a.at);
  return newest !== undefined && (await storage.settleRollback(newest.at, newest.reason));
}

async function proofIn(storage: Storage, dir: string, position: Position, size: number): Promise<Proof | undefined> {
  if (position.size > size) {
    return { reason: `the store had ${position.size} records of ${dir} and has ${size}`, at: position.at };
  }
  const tail = await tailOf(dir, size);
  if (tail.isTooLong) return { reason: `${dir} has over ${MAX_TAIL} records that the store lacks`, at: tail.at };
  const states = await storage.challenges.states([...tail.redeemed.keys()]);
  for (const [id, at] of tail.redeemed) {
    if (states.get(id) !== "redeemed") return { reason: `${dir} has the redemption of ${id}, the store does not`, at };
  }
  // Commands that only need the place of a ledger load this file too.
  const { requestStateId } = await import("../gateway/index.js");
  for (const [nonce, at] of tail.nonces) {
    if (!(await storage.once.first(requestStateId(nonce), RECENT_MS))) continue;
    return { reason: `${dir} has the use of a request state, the store does not`, at };
  }
  return undefined;
}

/** Records of a ledger that the store knows. */
function knownSize(ledgers: readonly RegisteredLedger[], { origin, place }: Position): number {
  return ledgers.find((each) => each.origin === origin && each.place === place)?.size ?? 0;
}

/** What must not be forgotten of the changes after the first `from` records. */
async function changesSince(dir: string, from: number): Promise<LastingChanges> {
  const changes = new LastingChanges();
  await readTail(dir, from, (record) => {
    const change = storeChangeOf(record);
    if (change !== undefined) changes.note(change);
    return true;
  });
  return changes;
}

/** Those that are in force in the store. */
async function keysInForceAgain(storage: Storage, revoked: Iterable<string>): Promise<string[]> {
  const found: string[] = [];
  for (const id of revoked) {
    const key = await storage.keys.get(id);
    if (key && key.revokedAt === undefined) found.push(id);
  }
  return found;
}

interface TailFacts {
  /** When it happened, by id. */
  readonly redeemed: Map<string, number>;
  readonly nonces: Map<string, number>;
  at: number;
  isTooLong: boolean;
}

/** What was used after the first `from` records, and is recent enough to matter. */
async function tailOf(dir: string, from: number): Promise<TailFacts> {
  const facts: TailFacts = { redeemed: new Map(), nonces: new Map(), at: 0, isTooLong: false };
  const since = Date.now() - RECENT_MS;
  await readTail(dir, from, (record, seq) => {
    const at = Date.parse(record.ts);
    facts.isTooLong = seq - from >= MAX_TAIL;
    if (facts.isTooLong) facts.at = at;
    else if (at > since) note(facts, record, at);
    return !facts.isTooLong;
  });
  return facts;
}

/** Calls `take` with each record from this number on, until it returns false. */
async function readTail(
  dir: string,
  from: number,
  take: (record: LedgerRecord, seq: number) => boolean,
): Promise<void> {
  try {
    for await (const { record, seq } of read(dir, { from })) if (!take(record, seq)) return;
  } catch (error) {
    // It is not on this machine any more, or another process is writing the last line.
    if (!(error instanceof LedgerReadError)) throw error;
  }
}

function note({ redeemed, nonces }: TailFacts, record: LedgerRecord, at: number): void {
  if (record.kind === "challenge" && record.event === "redeemed") redeemed.set(record.challenge, at);
  if (record.kind === "challenge" && record.event === "restored") redeemed.delete(record.challenge);
  const restored = record.kind === "outcome" ? record.detail?.request_state_restored : undefined;
  if (typeof restored === "string") nonces.delete(restored);
  if (record.kind !== "decision") return;
  const nonce = record.detail?.request_state;
  if (typeof nonce === "string") nonces.set(nonce, at);
}
