// Changes of applications, keys, secrets and pins, recorded in this gateway's ledger, whichever process made them. The
// store keeps both the changes and how far this ledger is, so an outage of the ledger or a gateway that was not running
// loses none; what the store no longer keeps is recorded as missing.

import type { Ledger, LedgerRecord } from "../ledger/index.js";
import {
  type Actor,
  CHANGES_AT_ONCE,
  isCredentialChange,
  type Storage,
  type StoreChange,
  type Topic,
} from "../storage/index.js";
import type { Telemetry } from "../telemetry/index.js";

interface ChangeRecorderOptions {
  readonly storage: Pick<Storage, "feed">;
  readonly ledger: Pick<Ledger, "append">;
  /** The ledger's origin: how far it is, is kept under this name. */
  readonly origin: string;
  readonly telemetry: Pick<Telemetry, "log">;
  readonly firstPauseMs?: number;
  /** Between two rounds: with many replicas, each change would otherwise be a write of every one of them. */
  readonly gatherMs?: number;
}

export interface ChangeRecorder {
  /** Why changes wait to be recorded; undefined when none do. */
  readonly problem: string | undefined;
  close(): Promise<void>;
}

/** Part of calls, which are on record themselves, or of connections. */
const NOT_ON_RECORD: ReadonlySet<Topic> = new Set(["challenge", "session", "token", "letter"]);
/** What decides who may do what: the changes of interest after a store was put back. */
const RECORDED: ReadonlySet<string> = new Set<Topic>(["application", "access", "key", "secret", "pin", "halt"]);
/** Far less than the store keeps: those not on record must not look like missing ones after a restart. */
const NOTE_EVERY = 1_000;
const GATHER_MS = 1_000;
const FIRST_PAUSE_MS = 100;
/** Adds to the time that a recovery takes. */
const LONGEST_PAUSE_MS = 500;

export async function recordChanges(options: ChangeRecorderOptions): Promise<ChangeRecorder> {
  const recorder = new Recorder(options);
  const unwatch = await options.storage.feed.watch({
    change: ({ topic, seq }) => {
      if (!NOT_ON_RECORD.has(topic) || seq % NOTE_EVERY === 0) recorder.wake();
    },
    resync: () => recorder.wake(),
  });
  // Those that were made while no gateway was running.
  recorder.wake();
  return {
    get problem() {
      return recorder.problem;
    },
    async close() {
      unwatch();
      await recorder.close();
    },
  };
}

class Recorder {
  readonly #options: ChangeRecorderOptions;
  #problem: string | undefined;
  #pauseMs: number;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  #endedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(options: ChangeRecorderOptions) {
    this.#options = options;
    this.#pauseMs = options.firstPauseMs ?? FIRST_PAUSE_MS;
  }

  get problem(): string | undefined {
    return this.#problem;
  }

  wake(): void {
    if (this.#closed || this.#timer !== undefined) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#again = false;
    const restMs = this.#endedAt + (this.#options.gatherMs ?? GATHER_MS) - performance.now();
    if (restMs > 0) return this.#later(restMs);
    this.#running = this.#recordAll().then(
      () => this.#recovered(),
      (error: Error) => this.#failed(error),
    );
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#running;
    if (this.#timer === undefined && !this.#again) return;
    clearTimeout(this.#timer);
    // What waits for its turn is recorded now; where that fails, it is recorded after the next start.
    if (this.#problem === undefined) await this.#recordAll().catch(() => {});
  }

  #recovered(): void {
    this.#running = undefined;
    if (this.#problem !== undefined) this.#options.telemetry.log.notice("changes recorded again");
    this.#problem = undefined;
    this.#pauseMs = this.#options.firstPauseMs ?? FIRST_PAUSE_MS;
    this.#endedAt = performance.now();
    if (this.#again) this.wake();
  }

  #later(ms: number): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.wake();
    }, ms);
    this.#timer.unref();
  }

  #failed({ message }: Error): void {
    this.#running = undefined;
    if (this.#problem !== message && !this.#closed) {
      this.#options.telemetry.log.error("changes not recorded, trying again", { problem: message });
    }
    this.#problem = message;
    if (this.#closed) return;
    this.#later(this.#pauseMs);
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  async #recordAll(): Promise<void> {
    const { storage, ledger, origin } = this.#options;
    for (let isFull = true; isFull; ) {
      // Read each time: a store that was restored counts from where it was.
      const next = (await storage.feed.recordedBy(origin)) + 1;
      const changes = await storage.feed.kept(next);
      const [first, last] = [changes[0], changes.at(-1)];
      if (first === undefined || last === undefined) return;
      if (first.seq > next) {
        const detail = { from: next, to: first.seq - 1, reason: "the store no longer keeps them" };
        await ledger.append({ kind: "admin", actor: "gateway", action: "changes.missing", detail });
      }
      const recorded = changes.filter(({ topic }) => !NOT_ON_RECORD.has(topic));
      await Promise.all(recorded.map((change) => ledger.append(recordOf(change))));
      // A crash before this line records them a second time, which `detail.seq` shows; it never loses one.
      await storage.feed.setRecorded(origin, last.seq);
      isFull = changes.length >= CHANGES_AT_ONCE;
    }
  }
}

function recordOf({ topic, action, app, name, by, seq, at }: StoreChange): Parameters<Ledger["append"]>[0] {
  const detail = { app, name, seq, at: new Date(at).toISOString() };
  return { kind: "admin", actor: by, action: `${topic}.${action}`, detail };
}

/** The change that a record of `recordChanges` is about; undefined for any other record. */
export function storeChangeOf(record: LedgerRecord) {
  const [topic = "", action = ""] = record.kind === "admin" ? record.action.split(".") : [];
  // A halt by file has a record of the same name, and no place among the changes of the store.
  if (record.kind !== "admin" || !RECORDED.has(topic) || typeof record.detail?.seq !== "number") return undefined;
  const { app = "", name = "", at = record.ts } = record.detail as Record<string, string>;
  return { topic: topic as Topic, action: action as StoreChange["action"], app, name, at, by: record.actor };
}

/** What a store that was put back must not forget, of the changes that it lacks: revocations, the first credential, halts. */
export class LastingChanges {
  readonly revoked = new Set<string>();
  /** The application of each halt in force, by its name. */
  readonly #halts = new Map<string, string>();
  #isConfigured = false;

  /** False for a change that the store may lack. */
  note(change: Pick<StoreChange, "topic" | "action" | "app" | "name">): boolean {
    const { topic, action, app, name } = change;
    this.#isConfigured ||= isCredentialChange(change);
    if (topic === "halt" && action === "put") this.#halts.set(name, app);
    if (topic === "halt" && action === "remove") this.#halts.delete(name);
    if (topic === "key" && action === "revoke") this.revoked.add(name);
    return topic === "halt" || (topic === "key" && action === "revoke");
  }

  /** Writes the first credential and halts; returns what the store did not have. */
  async write({ access, halts }: Pick<Storage, "access" | "halts">, by: Actor): Promise<string[]> {
    const written: string[] = [];
    if (this.#isConfigured && !(await access.get()).hasCredentials) {
      written.push("the first credential");
      await access.credentialConfigured("credential", by);
    }
    if (this.#halts.size === 0) return written;
    const known = new Set((await halts.list()).map(({ name }) => name));
    for (const [name, app] of this.#halts) {
      if (known.has(name)) continue;
      written.push(`the halt of ${name}`);
      await halts.put({ name, app, reason: "halted before the store was put back" }, by);
    }
    return written;
  }
}

export const POLICY_PENDING = "policy change not recorded: the stricter of old and new applies until it is";

/** What waits for the ledger, for the readiness check; it names no application. */
export function pendingReasons(common: number, ofApplications: number, changes: string | undefined): string[] {
  const policies = common + ofApplications;
  return [
    ...(policies === 0 ? [] : [`${policies} policy changes not recorded: the stricter of old and new applies`]),
    ...(changes === undefined ? [] : ["changes of applications, keys or secrets not recorded"]),
  ];
}
