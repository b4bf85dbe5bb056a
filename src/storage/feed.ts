// Changes, as everybody hears of them: numbered in the order of commits, so that whoever knows the last number it has
// seen can always ask for the rest. Notifications only say when to ask.

import type { Engine, Row } from "./sql.js";
import { checkName } from "./tables/bounds.js";
import type { Change, Feed, FeedListener } from "./types.js";

/** So many changes are read at once. */
export const CHANGES_AT_ONCE = 1_000;

export class StoredFeed implements Feed {
  readonly #engine: Engine;
  readonly #listeners = new Set<FeedListener>();
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

  since(seq: number, last?: Change): Promise<readonly Change[] | undefined> {
    return this.#engine.read(async (sql) => {
      // The number first: whatever is committed between the two statements is then among the rows.
      const [latest] = await sql.all(this.#engine.latestChange);
      const rows = await sql.all("SELECT * FROM changes WHERE seq >= $1 ORDER BY seq LIMIT $2", [
        seq,
        CHANGES_AT_ONCE + 1,
      ]);
      const known = rows[0]?.seq === seq ? read(rows.shift() as Row) : undefined;
      // A store that was restored or lost commits may have counted past `seq` again, with other changes.
      if (last && known && !isSame(last, known)) return undefined;
      const next = rows[0]?.seq as number | undefined;
      if (next === undefined) return (latest as Row).seq === seq ? [] : undefined;
      return next === seq + 1 ? rows.slice(0, CHANGES_AT_ONCE).map(read) : undefined;
    });
  }

  latest(): Promise<number> {
    return this.#engine.read(
      async (sql) => (((await sql.all(this.#engine.latestChange))[0] as Row).seq as number) ?? 0,
    );
  }

  get lagMs(): number {
    return this.#watch?.lagMs ?? 0;
  }

  resync(): void {
    this.#watch?.resync();
  }

  kept(from: number): Promise<readonly Change[]> {
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

  async announce(change: Pick<Change, "topic" | "action" | "name" | "by">): Promise<void> {
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
      change: (change) => this.#tell((listener) => listener.change(change)),
      resync: () => this.#tell((listener) => listener.resync()),
    });
    await watch.start();
    this.#watch = watch;
    return watch;
  }

  #tell(say: (listener: FeedListener) => void): void {
    for (const listener of this.#listeners) {
      try {
        say(listener);
      } catch {
        // One listener's defect must not keep the others from hearing.
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
  /** The change with that number, where it is known. */
  #last: Change | undefined;
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #again = false;
  #resync = false;
  #stopped = false;
  #stopListening: (() => Promise<void>) | undefined;
  #readAt = performance.now();
  #lookedAt = Number.NEGATIVE_INFINITY;
  #soon: NodeJS.Timeout | undefined;

  constructor(engine: Engine, feed: StoredFeed, out: FeedListener) {
    this.#engine = engine;
    this.#feed = feed;
    this.#out = out;
  }

  get lagMs(): number {
    return performance.now() - this.#readAt;
  }

  async start(): Promise<void> {
    await this.#begin();
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
    const seen = await this.#feed.latest();
    this.#last = (await this.#feed.since(seen - 1))?.find(({ seq }) => seq === seen);
    this.#seen = seen;
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
      for (;;) {
        const changes = await this.#feed.since(this.#seen, this.#last);
        if (this.#stopped) return;
        if (changes === undefined) {
          // Further behind than is kept, or the store is an older copy of itself.
          await this.#begin();
          this.#resync = true;
        }
        for (const change of changes ?? []) {
          this.#seen = change.seq;
          this.#last = change;
          this.#out.change(change);
        }
        if (changes && changes.length === CHANGES_AT_ONCE) continue;
        this.#readAt = performance.now();
        if (this.#resync) {
          this.#resync = false;
          this.#out.resync();
        }
        return;
      }
    } catch {
      // The store is away. The next look finds what has happened meanwhile, and everything is read anew then.
      this.#resync = true;
    }
  }
}

function isSame(a: Change, b: Change): boolean {
  return a.at === b.at && a.origin === b.origin && a.topic === b.topic && a.action === b.action && a.name === b.name;
}

function read(row: Row): Change {
  return {
    seq: row.seq as number,
    topic: row.topic as Change["topic"],
    action: row.action as Change["action"],
    app: row.app as string,
    name: row.name as string,
    by: row.by_whom as string,
    at: row.at as number,
    origin: row.origin as string,
  };
}
