// Feed of changes, numbered in the order of commits, so that a replica that knows the last number it has
// seen can always read the rest. Notifications only trigger a read.

import { settleRollback } from "./dump.js";
import { checkName, type Engine, type Row, type Sql, StorageError, sleep } from "./sql.js";
import type { Feed, FeedListener, StoreChange } from "./types.js";

/** So many changes are read at once. */
export const CHANGES_AT_ONCE = 1_000;
/**
 * After a lost connection nothing that counts once is used up for this long: the server may be another copy, and a replica
 * that knows better finds it out at its next poll.
 */
const COMPARING_MS = 1_500;
const COMPARE_TRIES = 3;
const COMPARE_PAUSE_MS = 200;
/** Changes get their number after their time: one that is numbered later may be so much older. */
const NUMBERED_WITHIN_MS = 60_000;

class NotCompared extends StorageError {
  constructor() {
    super("STORAGE_UNAVAILABLE", "the store may be an older copy of itself; its history is compared first");
  }
}

/** What this process has written or read and a store that was put back would not have. */
export interface Evidence {
  isKept(sql: Sql): Promise<boolean>;
  /** Writes what must not be forgotten, before anything is read from a store that was put back. */
  writeAgain(): Promise<void>;
  /** Called before the first change is read. */
  begin?(sql: Sql): Promise<void>;
  onChange?(change: StoreChange): void;
}

export class StoredFeed implements Feed {
  readonly #engine: Engine;
  readonly #listeners = new Set<FeedListener>();
  readonly #evidence = new Set<Evidence>();
  #running: Promise<Watch> | undefined;
  #watch: Watch | undefined;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async watch(listener: FeedListener): Promise<() => void> {
    this.#listeners.add(listener);
    try {
      this.#running ??= this.#start();
      await this.#running;
    } catch (error) {
      this.#listeners.delete(listener);
      this.#running = undefined;
      throw error;
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) void this.close();
    };
  }

  async since(seq: number, last?: StoreChange): Promise<readonly StoreChange[] | undefined> {
    return (await this.newsSince(seq, last)).changes;
  }

  /** `changes` as `since` returns them, and which store they are from. */
  newsSince(seq: number, last: StoreChange | undefined): Promise<News> {
    return this.#engine.read(async (sql) => {
      // The number first: whatever is committed between the two statements is then among the rows.
      const [latest] = await sql.all(this.#engine.latestChange);
      const incarnation = incarnationOf(latest);
      const rows = await sql.all("SELECT * FROM changes WHERE seq >= $1 ORDER BY seq LIMIT $2", [
        seq,
        CHANGES_AT_ONCE + 1,
      ]);
      const known = rows[0]?.seq === seq ? read(rows.shift() as Row) : undefined;
      // A store that was restored or lost commits may have counted past `seq` again, with other changes.
      if (last && known && !isSame(last, known)) return { incarnation, changes: undefined };
      const next = rows[0]?.seq as number | undefined;
      if (next === undefined) return { incarnation, changes: (latest as Row).seq === seq ? [] : undefined };
      const changes = next === seq + 1 ? rows.slice(0, CHANGES_AT_ONCE).map(read) : undefined;
      return { incarnation, changes };
    });
  }

  /**
   * Throws unless the store is the one that was read and still has the last change. INVARIANT: part of every transaction
   * that uses up something that counts once, because an older copy of the store would hand it out again.
   */
  async checkHistory(sql: Sql): Promise<void> {
    if (this.#comparingMs > 0) throw new NotCompared();
    if (!this.#watch) return;
    const { last, incarnation } = this.#watch;
    // A restore that drops these tables waits until the transaction has ended.
    const [row] = await sql.all(
      `SELECT current.incarnation AS incarnation, changes.* FROM (SELECT ${this.#engine.incarnation} AS incarnation) AS current
       LEFT JOIN changes ON changes.seq = $1`,
      [last?.seq ?? -1],
    );
    if (row?.incarnation === incarnation && (!last || isSame(last, read(row)))) return;
    throw new NotCompared();
  }

  /** Runs a write that checks the history, again when replicas have had the time to compare the store with what they know. */
  async compared<T>(write: () => Promise<T>): Promise<T> {
    for (let left = COMPARE_TRIES; ; left--) {
      try {
        return await write();
      } catch (error) {
        if (!(error instanceof NotCompared) || left === 0) throw error;
        await sleep(Math.max(COMPARE_PAUSE_MS, this.#comparingMs));
      }
    }
  }

  get #comparingMs(): number {
    return this.#engine.reconnectedAt + COMPARING_MS - performance.now();
  }

  addEvidence(evidence: Evidence): void {
    this.#evidence.add(evidence);
  }

  beginEvidence(): Promise<void> {
    return this.#engine.read(async (sql) => {
      for (const each of this.#evidence) await each.begin?.(sql);
    });
  }

  /** Whether the store was put back to before what this process knows; it may also just have gone on without it. */
  async settleIfOlder(last: StoreChange | undefined): Promise<void> {
    const isOlder = await this.#engine.read(async (sql) => {
      for (const each of this.#evidence) if (!(await each.isKept(sql))) return true;
      if (!last) return false;
      const [same] = await sql.all("SELECT * FROM changes WHERE seq = $1", [last.seq]);
      if (same) return !isSame(last, read(same));
      const [latest] = await sql.all(this.#engine.latestChange);
      if (((latest as Row).seq as number) < last.seq) return true;
      // It has counted past that number again.
      const older = "SELECT 1 AS one FROM changes WHERE seq > $1 AND at < CAST($2 AS BIGINT) LIMIT 1";
      return (await sql.all(older, [last.seq, last.at - NUMBERED_WITHIN_MS])).length > 0;
    });
    if (!isOlder) return;
    for (const each of this.#evidence) await each.writeAgain();
    const proof = last ? `change ${last.seq} or a later one` : "the first change";
    await settleRollback(this.#engine, last?.at ?? 0, `${proof} is not in the store any more`);
  }

  async latest(): Promise<number> {
    return (await this.position()).seq;
  }

  position(): Promise<{ readonly seq: number; readonly incarnation: string }> {
    return this.#engine.read(async (sql) => {
      const [latest] = await sql.all(this.#engine.latestChange);
      return { seq: ((latest as Row).seq as number) ?? 0, incarnation: incarnationOf(latest) };
    });
  }

  get lagMs(): number {
    return this.#watch?.lagMs ?? 0;
  }

  resync(): void {
    this.#watch?.resync();
  }

  kept(from: number): Promise<readonly StoreChange[]> {
    return this.#engine.read(async (sql) => {
      // Numbers what is committed and has no number yet.
      await sql.all(this.#engine.latestChange);
      const rows = await sql.all("SELECT * FROM changes WHERE seq >= $1 ORDER BY seq LIMIT $2", [
        from,
        CHANGES_AT_ONCE,
      ]);
      return rows.map(read);
    });
  }

  recordedBy(ledger: string): Promise<number> {
    return this.#engine.read(async (sql) => {
      const [own] = await sql.all("SELECT seq FROM recorded WHERE ledger = $1", [ledger]);
      const [row] = own ? [own] : await sql.all("SELECT MAX(seq) AS seq FROM recorded");
      return ((row as Row).seq as number | null) ?? 0;
    });
  }

  async announce(change: Pick<StoreChange, "topic" | "action" | "name" | "by">): Promise<void> {
    checkName("the name", change.name, 512);
    await this.#engine.write(async (_sql, note) => note({ ...change, app: "" }));
  }

  async setRecorded(ledger: string, seq: number): Promise<void> {
    checkName("the ledger's origin", ledger, 512);
    await this.#engine.write((sql) =>
      sql.all(
        `INSERT INTO recorded (ledger, seq, at) VALUES ($1, $2, @now)
         ON CONFLICT (ledger) DO UPDATE SET seq = excluded.seq, at = excluded.at`,
        [ledger, seq],
      ),
    );
  }

  async close(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    this.#watch = undefined;
    await running?.then(
      (watch) => watch.stop(),
      () => {},
    );
  }

  async #start(): Promise<Watch> {
    const watch = new Watch(this.#engine, this, {
      change: (change) => {
        for (const each of this.#evidence) each.onChange?.(change);
        this.#notify((listener) => listener.change(change));
      },
      resync: () => this.#notify((listener) => listener.resync()),
    });
    await watch.start();
    this.#watch = watch;
    return watch;
  }

  #notify(call: (listener: FeedListener) => void): void {
    for (const listener of this.#listeners) {
      try {
        call(listener);
      } catch {
        // A listener that throws must not keep the others from being called.
      }
    }
  }
}

/** One loop for all listeners of this process. */
class Watch {
  readonly #engine: Engine;
  readonly #feed: StoredFeed;
  readonly #out: FeedListener;
  #seen = 0;
  #incarnation = "";
  /** The change with that number, where it is known. */
  #last: StoreChange | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #again = false;
  #resync = false;
  #stopped = false;
  #stopListening: (() => Promise<void>) | undefined;
  #readAt = performance.now();
  #lookedAt = Number.NEGATIVE_INFINITY;
  #soon: NodeJS.Timeout | undefined;
  #comparedAt = Number.NEGATIVE_INFINITY;

  constructor(engine: Engine, feed: StoredFeed, out: FeedListener) {
    this.#engine = engine;
    this.#feed = feed;
    this.#out = out;
  }

  get lagMs(): number {
    return performance.now() - this.#readAt;
  }

  get last(): StoreChange | undefined {
    return this.#last;
  }

  get incarnation(): string {
    return this.#incarnation;
  }

  async start(): Promise<void> {
    await this.#begin();
    await this.#feed.beginEvidence();
    this.#readAt = performance.now();
    this.#stopListening = await this.#engine.listen(
      () => this.#poll(),
      () => {
        this.#resync = true;
        this.#poll();
      },
    );
    this.#timer = setInterval(() => this.#poll(), this.#engine.pollMs);
    this.#timer.unref();
  }

  /** At the next poll, so that listeners that fail again and again do not cause more reads than that. */
  resync(): void {
    this.#resync = true;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    clearTimeout(this.#soon);
    await this.#stopListening?.();
    await this.#polling;
  }

  async #begin(): Promise<void> {
    const { seq: seen, incarnation } = await this.#feed.position();
    this.#last = (await this.#feed.since(seen - 1))?.find(({ seq }) => seq === seen);
    this.#seen = seen;
    this.#incarnation = incarnation;
  }

  #poll(): void {
    if (this.#stopped) return;
    if (this.#polling) {
      this.#again = true;
      return;
    }
    const restMs = this.#lookedAt + this.#engine.gatherMs - performance.now();
    if (restMs > 0) {
      this.#soon ??= setTimeout(() => {
        this.#soon = undefined;
        this.#poll();
      }, restMs);
      this.#soon.unref();
      return;
    }
    this.#lookedAt = performance.now();
    this.#polling = this.#look().finally(() => {
      this.#polling = undefined;
      if (!this.#again) return;
      this.#again = false;
      this.#poll();
    });
  }

  async #look(): Promise<void> {
    try {
      const { reconnectedAt } = this.#engine;
      if (reconnectedAt !== this.#comparedAt) {
        await this.#feed.settleIfOlder(this.#last);
        this.#comparedAt = reconnectedAt;
      }
      for (;;) {
        const { changes, incarnation } = await this.#feed.newsSince(this.#seen, this.#last);
        if (this.#stopped) return;
        const isCopy = incarnation !== this.#incarnation;
        if (isCopy) await this.#feed.settleIfOlder(this.#last);
        for (const change of changes ?? []) {
          this.#seen = change.seq;
          this.#last = change;
          this.#out.change(change);
        }
        if (changes?.length === CHANGES_AT_ONCE) continue;
        if (changes === undefined || isCopy) {
          // Further behind than is kept, or the store is a copy of itself, perhaps an older one.
          if (!isCopy) await this.#feed.settleIfOlder(this.#last);
          await this.#begin();
          this.#resync = true;
        }
        this.#readAt = performance.now();
        if (this.#resync) {
          this.#resync = false;
          this.#out.resync();
        }
        return;
      }
    } catch {
      // The store is unavailable. The next read finds what was missed, and everything is read again then.
      this.#resync = true;
    }
  }
}

interface News {
  readonly incarnation: string;
  readonly changes: readonly StoreChange[] | undefined;
}

/** Throws while the store is being put back: what it holds then is not all of it. */
export function incarnationOf(latest: Row | undefined): string {
  if (typeof latest?.incarnation === "string") return latest.incarnation;
  throw new StorageError("STORAGE_UNAVAILABLE", "the store is incomplete: a restore of its tables has not finished");
}

function isSame(a: StoreChange, b: StoreChange): boolean {
  return a.at === b.at && a.origin === b.origin && a.topic === b.topic && a.action === b.action && a.name === b.name;
}

function read(row: Row): StoreChange {
  return {
    seq: row.seq as number,
    topic: row.topic as StoreChange["topic"],
    action: row.action as StoreChange["action"],
    app: row.app as string,
    name: row.name as string,
    by: row.by_whom as string,
    at: row.at as number,
    origin: row.origin as string,
  };
}
