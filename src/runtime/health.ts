// What `/readyz` reports of a running gateway: store, feed, policy and shutdown. The admin module adds the ledger.

import type { ComponentChecks, ComponentState } from "../admin/index.js";
import { Halts, type PolicyWatcher } from "../policy/index.js";
import type { Storage } from "../storage/index.js";

const PROBE_MS = 1_000;
/** A store that failed is asked again this soon: balancers send no calls until it has answered. */
const PROBE_AGAIN_MS = 250;
/** A store that has not answered for so long is reported as unavailable. */
const STORE_DEADLINE_MS = 2_000;
/** Changes are read every half second; a revocation may be missed when they have not been for so long. */
const MAX_FEED_LAG_MS = 5_000;
/** Policy files are compared every five seconds. */
const MAX_POLICY_AGE_MS = 30_000;

/** Pings the store, one ping at a time, and remembers the result. */
class StoreProbe {
  readonly #storage: Pick<Storage, "ping">;
  #timer: NodeJS.Timeout;
  #isClosed = false;
  #askedAt: number | undefined;
  #problem: string | undefined;

  constructor(storage: Pick<Storage, "ping">) {
    this.#storage = storage;
    this.#timer = this.#askLater();
  }

  get state(): ComponentState {
    const waitedMs = this.#askedAt === undefined ? 0 : performance.now() - this.#askedAt;
    if (waitedMs > STORE_DEADLINE_MS) {
      return { problem: `the store has not answered for ${Math.round(waitedMs)} ms` };
    }
    return { problem: this.#problem };
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #askLater(): NodeJS.Timeout {
    return setTimeout(() => this.#ask(), this.#problem === undefined ? PROBE_MS : PROBE_AGAIN_MS).unref();
  }

  #ask(): void {
    this.#askedAt = performance.now();
    void this.#storage
      .ping()
      .then(
        () => undefined,
        (error: Error) => `the store cannot be read: ${error.message}`,
      )
      .then((problem) => {
        this.#problem = problem;
        this.#askedAt = undefined;
        if (!this.#isClosed) this.#timer = this.#askLater();
      });
  }
}

/** The health of one process, from its start to its shutdown. */
export class Health {
  readonly #opened: (() => unknown)[] = [];
  readonly #checks: Record<string, () => ComponentState> = {
    shutdown: () => ({ problem: this.#isStopping ? "this process is shutting down" : undefined }),
  };
  #isStopping = false;
  #isStarted = false;

  readonly isStarted = (): boolean => this.#isStarted;

  get components(): ComponentChecks {
    return this.#checks;
  }

  watchStore(storage: Pick<Storage, "ping" | "feed">): void {
    const probe = new StoreProbe(storage);
    this.#opened.push(() => probe.close());
    this.#checks.store = () => probe.state;
    this.#checks.feed = () => {
      const { lagMs } = storage.feed;
      if (lagMs <= MAX_FEED_LAG_MS) return {};
      return { problem: `changes in the store have not been read for ${Math.round(lagMs)} ms` };
    };
  }

  /** A policy that is refused is a warning: the one before it stays in force. */
  watchPolicy(watcher: Pick<PolicyWatcher, "ageMs" | "refusal">): void {
    this.#checks.policy = () => {
      const { ageMs, refusal } = watcher;
      if (ageMs > MAX_POLICY_AGE_MS) {
        return { problem: `the policy files have not been read for ${Math.round(ageMs)} ms` };
      }
      return { warning: refusal === undefined ? undefined : `the policy files are not in force: ${refusal}` };
    };
  }

  /** A failed archive is a warning: the ledger keeps everything until a later turn succeeds. */
  watchArchive(retention: { readonly problem: string | undefined }): void {
    this.#checks.archive = () => {
      const { problem } = retention;
      return { warning: problem === undefined ? undefined : `the ledger is not archived or pruned: ${problem}` };
    };
  }

  /** A halt is a warning: this process is well, and denies what is halted. */
  watchHalts(halts: Pick<Halts, "all">): void {
    this.#checks.halts = () => {
      const inForce = halts.all.map(({ target, by, at }) => {
        return `${Halts.nameOf(target)} halted by ${by} since ${new Date(at).toISOString()}`;
      });
      return { warning: inForce.length === 0 ? undefined : inForce.join("; ") };
    };
  }

  /** Changes that wait for the ledger; see `pendingReasons`. */
  watchRecords(pending: () => readonly string[]): void {
    this.#checks.records = () => {
      const reasons = pending();
      return { problem: reasons.length === 0 ? undefined : reasons.join("; ") };
    };
  }

  started(): void {
    this.#isStarted = true;
  }

  /** `/readyz` reports 503 from now on, and balancers send new calls to other replicas. */
  stopping(): void {
    this.#isStopping = true;
  }

  close(): void {
    for (const end of this.#opened.splice(0)) end();
  }
}
