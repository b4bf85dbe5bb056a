// A policy is in force alone only once its change is on record. Until then the stricter of the old and the new one applies,
// and recording it is tried again for as long as it takes.

import { createHash } from "node:crypto";
import { joinObligations } from "./cedar/annotations.js";
import { noPolicy } from "./cedar/load.js";
import type { Outlook, OutlookRequest, PolicyDecision, PolicyRequest, PolicySet } from "./cedar/types.js";

export interface PendingPolicy {
  /** Hash of the policy that is waiting to be recorded. */
  readonly to: string;
  /** Milliseconds since 1970. */
  readonly since: number;
  /** Why the last attempt failed; absent while the first one has no end. */
  readonly problem?: string;
}

interface PolicyChange {
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
  /** How long `put` waits for the record before the change is pending. */
  waitMs?: number;
}

const FIRST_PAUSE_MS = 100;
/** An attempt is one write; a longer pause would add to the time that a recovery takes. */
const LONGEST_PAUSE_MS = 500;
/** A disk that does not answer must not delay a policy change. */
const WAIT_MS = 2_000;

type PutPolicy = { readonly outcome: "in force" } | { readonly outcome: "pending"; readonly error: Error };

export class RecordedPolicy {
  readonly #options: RecordedPolicyOptions;
  /** The last policy that is on record. */
  #recorded: PolicySet = noPolicy;
  #wanted: PolicySet = noPolicy;
  #since = 0;
  #wantedAt = 0;
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

  /** The stricter of two sets is in force. */
  get isInterim(): boolean {
    return this.#wanted.hash !== this.#recorded.hash;
  }

  /** The change that could not be recorded at once. */
  get pending(): PendingPolicy | undefined {
    if (!this.isInterim) return undefined;
    const { waitMs = WAIT_MS } = this.#options;
    if (this.#problem === undefined && performance.now() - this.#wantedAt < waitMs) return undefined;
    const problem = this.#problem === undefined ? {} : { problem: this.#problem.message };
    return { to: this.#wanted.hash, since: this.#since, ...problem };
  }

  async put(next: PolicySet): Promise<PutPolicy> {
    if (!this.isInterim) {
      this.#since = Date.now();
      this.#wantedAt = performance.now();
    }
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

const STRICTNESS = { permit: 0, challenge: 1, deny: 2 } as const;
const OUTLOOKS: readonly Outlook[] = ["never", "challenge", "possible"];

/**
 * `stricterOf` answers every request with the stricter of two answers: deny before challenge before permit, and the
 * obligations and the checks of both. Its hash names both sets, so that a record tells it from either of them.
 */
export function stricterOf(before: PolicySet, after: PolicySet): PolicySet {
  const decide = (request: PolicyRequest): PolicyDecision => decideBoth(before, after, request);
  return {
    hash: createHash("sha256").update(`stricter of\n${before.hash}\n${after.hash}`).digest("hex"),
    rules: after.rules,
    warnings: after.warnings,
    usesWasmFallbackFor: [...new Set([...before.usesWasmFallbackFor, ...after.usesWasmFallbackFor])],
    conditions: [...before.conditions, ...after.conditions],
    checks: [...(before.checks ?? []), ...(after.checks ?? [])],
    decide,
    explain: (request) => ({
      decision: decide(request),
      rules: [...before.explain(request).rules, ...after.explain(behind(before, request)).rules],
    }),
    outlook: (request: OutlookRequest) => {
      const least = Math.min(...[before, after].map((policy) => OUTLOOKS.indexOf(policy.outlook(request))));
      return OUTLOOKS[least] as Outlook;
    },
  };
}

/** The conditions of the second set are numbered behind those of the first. */
function behind({ conditions }: PolicySet, request: PolicyRequest): PolicyRequest {
  const { history } = request;
  if (history === undefined || conditions.length === 0) return request;
  return { ...request, history: (condition) => history(conditions.length + condition) };
}

function decideBoth(before: PolicySet, after: PolicySet, request: PolicyRequest): PolicyDecision {
  const { approvedRules = [], ...unapproved } = request;
  const answers = [before.decide(unapproved), after.decide(behind(before, unapproved))] as const;
  const asked = answers.filter(({ effect }) => effect === "challenge");
  const ids = new Set(asked.flatMap(({ rules }) => rules.map(({ id }) => id)));
  // An approval counts for exactly the rules it showed: those of both sets together.
  const isApproved =
    ids.size > 0 && ids.size === new Set(approvedRules).size && approvedRules.every((id) => ids.has(id));
  if (!isApproved) return meet(...answers);
  const again = ([before, after] as const).map((policy, i) => {
    const answer = answers[i] as PolicyDecision;
    if (answer.effect !== "challenge") return answer;
    const asked = policy === after ? behind(before, unapproved) : unapproved;
    return policy.decide({ ...asked, approvedRules: answer.rules.map(({ id }) => id) });
  });
  return meet(again[0] as PolicyDecision, again[1] as PolicyDecision);
}

function meet(a: PolicyDecision, b: PolicyDecision): PolicyDecision {
  if (a.effect !== b.effect) return STRICTNESS[a.effect] > STRICTNESS[b.effect] ? a : b;
  if (a.effect === "deny") return b;
  if (a.effect === "permit") return { ...b, obligations: joinObligations([a.obligations, b.obligations]) };
  const known = new Set(b.rules.map(({ id }) => id));
  const approvers = commonApprovers(a.approvers, b.approvers);
  if (!approvers) return { ...b, effect: "deny", reason: NO_COMMON_APPROVER };
  return { ...b, rules: [...b.rules, ...a.rules.filter(({ id }) => !known.has(id))], approvers };
}

const NO_COMMON_APPROVER =
  "the policy is changing, and the approvers before and after the change have no group in common; try again";

/** An empty list is every approver; undefined where the lists have no group in common. */
function commonApprovers(a: readonly string[], b: readonly string[]): string[] | undefined {
  if (a.length === 0 || b.length === 0) return [...a, ...b];
  const common = b.filter((group) => a.includes(group));
  return common.length === 0 ? undefined : common;
}
