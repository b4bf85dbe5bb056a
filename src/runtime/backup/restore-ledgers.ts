// What `portcullis restore` does with ledgers: one that continues the backup stays, one that is lost continues from it.

import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { dirname, isAbsolute, join } from "node:path";
import { computeTiles, LedgerLocked, openLedger, read, verify } from "../../ledger/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { RegisteredLedger, Storage } from "../../storage/index.js";
import { placeOf } from "../ledger.js";
import { LastingChanges, storeChangeOf } from "../record-changes.js";
import { operator } from "../store/open.js";
import { ledgersBelow, REPLACED } from "./ledgers.js";
import { type BackedUpLedger, type BackupManifest, isSound } from "./manifest.js";

const MAX_REPORTED = 1_000;
const RESTORED = "ledger.restored";

export interface RestoredLedger {
  readonly origin: string;
  readonly path: string;
  /** `kept`: what is there continues the backup and is newer. */
  readonly state: "kept" | "restored";
  readonly size: number;
  /** Where the ledger is that was replaced. */
  readonly aside?: string;
}

export interface LedgerPlan {
  readonly ledger: BackedUpLedger;
  readonly dir: string;
  /** There is a ledger that continues the one in the backup: it stays. A ledger is never put back. */
  readonly isKept: boolean;
  /** It was restored from this backup by a command that did not come to its end. */
  readonly isResumed: boolean;
  readonly exists: boolean;
  /** Records that the store expects. */
  readonly registered: number | undefined;
}

export async function planLedger(
  ledger: BackedUpLedger,
  backup: string,
  dataDir: string,
  known: readonly RegisteredLedger[],
): Promise<LedgerPlan> {
  const dir = isAbsolute(ledger.path) ? ledger.path : join(dataDir, ledger.path);
  const registered = known.find(({ origin, place }) => origin === ledger.origin && place === placeOf(dir))?.size;
  const plan = { ledger, dir, registered, isKept: false, isResumed: false };
  const exists = existsSync(dir) && readdirSync(dir).some((name) => /^seq-\d{16}\.ndjson/.test(name));
  if (!exists) return { ...plan, exists };
  const found = await verify(dir, { checkpoints: [ledger.checkpoint] }).catch(() => undefined);
  const continues = found !== undefined && isSound(found) && found.origin === ledger.origin && found.to >= ledger.size;
  // With less than the store expects, these are the files of a restore that was killed before it recorded itself.
  const isKept = continues && !(found.to === ledger.size && (registered ?? 0) > found.to);
  if (!isKept) await checkUnlocked(dir, ledger.origin);
  return { ...plan, exists, isKept, isResumed: isKept && (await wasRestored(dir, ledger.size, backup)) };
}

async function wasRestored(dir: string, from: number, backup: string): Promise<boolean> {
  for await (const { record } of read(dir, { from })) {
    if (record.kind !== "admin" || record.action !== RESTORED) continue;
    if ((record.detail as { backup?: unknown } | undefined)?.backup === backup) return true;
  }
  return false;
}

async function checkUnlocked(dir: string, origin: string): Promise<void> {
  try {
    const ledger = await openLedger({ dir, origin, lockTimeoutMs: 100 });
    await ledger.close();
  } catch (error) {
    if (!(error instanceof LedgerLocked)) return;
    throw new CliError(
      `ledger ${dir} does not continue the backup and is being written by another process`,
      EXIT.error,
      "stop the gateway first",
    );
  }
}

interface LaterChanges {
  readonly lasting: LastingChanges;
  /** The others, which the store loses. */
  readonly changes: readonly string[];
}

/** What ledgers that are newer than the backup know. */
export async function laterChanges(plans: readonly LedgerPlan[]): Promise<LaterChanges> {
  const lasting = new LastingChanges();
  const changes = new Set<string>();
  for (const { ledger, dir, isKept } of plans) {
    if (!isKept) continue;
    for await (const { record } of read(dir, { from: ledger.size })) {
      const change = storeChangeOf(record);
      if (change === undefined || lasting.note(change) || changes.size >= MAX_REPORTED) continue;
      const { topic, action, app, name, at, by } = change;
      const of = [app, name].filter((part) => part !== "").join("/");
      changes.add(`${at} ${topic}.${action} ${of} by ${by}`);
    }
  }
  return { lasting, changes: [...changes].sort() };
}

/**
 * INVARIANT: a kill leaves files that the next attempt replaces, or a whole ledger with its signing key and tiles, which it
 * keeps. So the records come last.
 */
export async function restoreLedger(
  { ledger, dir, exists, isKept, isResumed, registered }: LedgerPlan,
  from: string,
  keys: Readonly<Record<string, string>> | undefined,
  manifest: BackupManifest,
): Promise<RestoredLedger> {
  const { origin, size, root } = ledger;
  if (isKept) return { origin, path: dir, state: isResumed ? "restored" : "kept", size };
  const kept = exists ? readSigningKeys(dir) : undefined;
  const aside = exists ? `${dir}${REPLACED}${stampNow()}` : undefined;
  if (aside !== undefined) moveLedger(dir, aside);
  const signing = keys?.["signing.key"] === undefined ? kept : keys;
  for (const [name, text] of Object.entries(signing ?? {})) writePrivate(join(dir, name), text);
  // The copy of a pruned ledger has its tiles: they cannot be computed from what remains.
  if (!existsSync(join(from, "pruned"))) await computeTiles(from, size, root);
  await cp(join(from, "tiles"), join(dir, "tiles"), { recursive: true });
  await cp(from, dir, { recursive: true });
  restrict(dir);
  const restored = { origin, path: dir, state: "restored", size, ...(aside === undefined ? {} : { aside }) } as const;
  if (!existsSync(join(dir, "signing.key"))) return restored;
  const open = await openLedger({ dir, origin });
  const detail = { backup: manifest.id, created_at: manifest.created_at, size, root, registered: registered ?? null };
  await open.append({ kind: "admin", actor: operator(), action: RESTORED, detail }).finally(() => open.close());
  return restored;
}

/** Ledgers of workers lie inside another one, and stay. */
function moveLedger(dir: string, aside: string): void {
  mkdirSync(aside, { mode: 0o700 });
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const isOther = entry.isDirectory() && ledgersBelow(join(dir, entry.name)).length > 0;
    if (!isOther) renameSync(join(dir, entry.name), join(aside, entry.name));
  }
}

function readSigningKeys(dir: string): Record<string, string> {
  const names = ["signing.key", "signing.key.rotate"].filter((name) => existsSync(join(dir, name)));
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(dir, name), "utf8")]));
}

/** From now on the registry expects the ledgers as they are, where they are. */
export async function registerLedgers(storage: Storage, plans: readonly LedgerPlan[]): Promise<void> {
  for (const { ledger, dir, isKept, isResumed } of plans) {
    const place = placeOf(dir);
    const note = readFileSync(join(dir, "checkpoint"), "utf8");
    if (ledger.place !== place) await storage.ledgers.remove(ledger.origin, operator(), ledger.place);
    if (!isKept || isResumed) {
      await storage.ledgers.remove(ledger.origin, operator(), place);
      await storage.feed.setRecorded(ledger.origin, ledger.recorded);
    }
    await storage.ledgers.put({ origin: ledger.origin, place, note, size: Number(note.split("\n", 2)[1]) });
  }
}

export function writePrivate(path: string, content: string | Uint8Array): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileSync(path, content, { mode: 0o600, flush: true });
}

/** As the gateway creates them: for their owner alone. */
function restrict(dir: string): void {
  chmodSync(dir, 0o700);
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    if (entry.isDirectory()) restrict(join(dir, entry.name));
    else chmodSync(join(dir, entry.name), 0o600);
  }
}

export function stampNow(): string {
  return new Date().toISOString().replaceAll(/[-:.]/g, "");
}
