// Changes, as everybody hears of them: numbered in the order of commits, so that whoever knows the last number it has
// seen can always ask for the rest. Notifications only say when to ask.

import type { Engine, Row } from "./sql.js";
import type { Change, Feed, FeedListener } from "./types.js";

const AT_ONCE = 1_000;

export class StoredFeed implements Feed {
  readonly #engine: Engine;
  readonly #listeners = new Set<FeedListener>();
  #running: Promise<Watch> | undefined;

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

  since(seq: number): Promise<readonly Change[] | undefined> {
    return this.#engine.read(async (sql) => {
      // The number first: whatever is committed between the two statements is then among the rows.
      const [last] = await sql.all("SELECT seq FROM feed");
      const rows = await sql.all("SELECT * FROM changes WHERE seq > $1 ORDER BY seq LIMIT $2", [seq, AT_ONCE]);
      const next = rows[0]?.seq as number | undefined;
      if (next === undefined) return (last as Row).seq === seq ? [] : undefined;
      return next === seq + 1 ? rows.map(read) : undefined;
    });
  }

  latest(): Promise<number> {
    return this.#engine.read(async (sql) => (((await sql.all("SELECT seq FROM feed"))[0] as Row).seq as number) ?? 0);
  }

  async close(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
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
  #timer: NodeJS.Timeout | undefined;
  #polling: Promise<void> | undefined;
  #again = false;
  #resync = false;
  #stopped = false;
  #stopListening: (() => Promise<void>) | undefined;

  constructor(engine: Engine, feed: StoredFeed, out: FeedListener) {
    this.#engine = engine;
    this.#feed = feed;
    this.#out = out;
  }

  async start(): Promise<void> {
    this.#seen = await this.#feed.latest();
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

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    await this.#stopListening?.();
    await this.#polling;
  }

  #poll(): void {
    if (this.#stopped) return;
    if (this.#polling) {
      this.#again = true;
      return;
    }
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
        const changes = await this.#feed.since(this.#seen);
        if (this.#stopped) return;
        if (changes === undefined) {
          // Further behind than is kept, or the store is an older copy of itself.
          this.#seen = await this.#feed.latest();
          this.#resync = true;
        }
        for (const change of changes ?? []) {
          this.#seen = change.seq;
          this.#out.change(change);
        }
        if (changes && changes.length === AT_ONCE) continue;
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
