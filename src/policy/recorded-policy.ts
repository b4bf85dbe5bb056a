// A policy that is in force alone only once its change is on record. Until then the stricter of the old and the new
// one applies, and recording it is tried again for as long as it takes.

import { noPolicy, type PolicySet } from "./cedar/index.js";
import { stricterOf } from "./cedar/stricter.js";

export interface PendingPolicy {
  /** Hash of the policy that is waiting to be recorded. */
  readonly to: string;
  /** Milliseconds since 1970. */
  readonly since: number;
  /** Why the last attempt failed; absent while the first one is under way. */
  readonly problem?: string;
}

export interface PolicyChange {
  readonly from: string;
  readonly to: PolicySet;
  /** Hash that decisions name until the change is recorded; see `stricterOf`. */
  readonly interim: string;
}

export interface RecordedPolicyOptions {
  /** Takes effect at once. Called with the stricter of two sets first, and with the new one when it is recorded. */
  apply: (policy: PolicySet) => void;
  /** Resolves when the change is durable. */
  record: (change: PolicyChange) => void | Promise<void>;
  /** The first attempt of a change has failed. */
  onPending?: (pending: PendingPolicy) => void;
  /** Pauses between attempts double from the first to the longest. */
  firstPauseMs?: number;
  longestPauseMs?: number;
  /** How long `put` waits for the record before it leaves the change pending. */
  waitMs?: number;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;
/** A disk that does not answer must not hold up whoever changes the policy. */
const WAIT_MS = 2_000;

export type PutPolicy = { readonly outcome: "in force" } | { readonly outcome: "pending"; readonly error: Error };

export class RecordedPolicy {
  readonly #options: RecordedPolicyOptions;
  /** The last policy that is on record. */
  #recorded: PolicySet = noPolicy;
  #wanted: PolicySet = noPolicy;
  #since = 0;
  #problem: Error | undefined;
  #recording: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: RecordedPolicyOptions) {
    this.#options = options;
  }

  /** Hash of the last policy that is on record. */
  get recorded(): string {
    return this.#recorded.hash;
  }

  get pending(): PendingPolicy | undefined {
    if (this.#wanted.hash === this.#recorded.hash) return undefined;
    const problem = this.#problem === undefined ? {} : { problem: this.#problem.message };
    return { to: this.#wanted.hash, since: this.#since, ...problem };
  }

  async put(next: PolicySet): Promise<PutPolicy> {
    if (this.pending === undefined) this.#since = Date.now();
    this.#wanted = next;
    if (next.hash === this.#recorded.hash) {
      // The same rules may be on other lines now.
      this.#recorded = next;
      this.#problem = undefined;
      this.#options.apply(next);
      return { outcome: "in force" };
    }
    // INVARIANT: what the new policy refuses is refused from now on, whether or not it can be recorded.
    this.#options.apply(stricterOf(this.#recorded, next));
    this.#endPause();
    this.#recording ??= this.#recordAll().finally(() => {
      this.#recording = undefined;
    });
    return this.#outcomeOf(next);
  }

  close(): void {
    this.#closed = true;
    this.#endPause();
  }

  /** Waits until `next` is in force, or an attempt after now failed, or it took too long. */
  async #outcomeOf(next: PolicySet): Promise<PutPolicy> {
    const { waitMs = WAIT_MS } = this.#options;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<Error>((resolve) => {
      timer = setTimeout(() => resolve(new Error(`the ledger has not answered for ${waitMs} ms`)), waitMs);
      timer.unref();
    });
    const attempted = new Promise<Error | undefined>((resolve) => this.#attempts.push({ to: next.hash, resolve }));
    const error = await Promise.race([attempted, late]);
    clearTimeout(timer);
    return error === undefined ? { outcome: "in force" } : { outcome: "pending", error };
  }

  readonly #attempts: { readonly to: string; readonly resolve: (error: Error | undefined) => void }[] = [];

  #attempted(error: Error | undefined): void {
    for (const { resolve } of this.#attempts.splice(0)) resolve(error);
  }

  async #recordAll(): Promise<void> {
    const { firstPauseMs = FIRST_PAUSE_MS, longestPauseMs = LONGEST_PAUSE_MS } = this.#options;
    let pauseMs = firstPauseMs;
    while (!this.#closed && this.#wanted.hash !== this.#recorded.hash) {
      const to = this.#wanted;
      try {
        const { hash: interim } = stricterOf(this.#recorded, to);
        await this.#options.record({ from: this.#recorded.hash, to, interim });
      } catch (error) {
        const isFirst = this.#problem === undefined;
        this.#problem = error as Error;
        const { pending } = this;
        if (isFirst && pending) this.#options.onPending?.(pending);
        this.#attempted(this.#problem);
        await this.#pause(pauseMs);
        pauseMs = Math.min(longestPauseMs, pauseMs * 2);
        continue;
      }
      this.#recorded = to;
      pauseMs = firstPauseMs;
      if (this.#wanted.hash === to.hash) this.#problem = undefined;
      if (this.#closed) break;
      // Another one may have come meanwhile; it is compared with the one that is on record now.
      this.#options.apply(this.#wanted.hash === to.hash ? this.#wanted : stricterOf(to, this.#wanted));
    }
    this.#attempted(this.#closed ? new Error("closed before the change was recorded") : undefined);
  }

  #pause(ms: number): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#timer = setTimeout(() => this.#endPause(), ms);
      this.#timer.unref();
    });
  }

  #endPause(): void {
    clearTimeout(this.#timer);
    this.#wake?.();
    this.#wake = undefined;
  }
}
