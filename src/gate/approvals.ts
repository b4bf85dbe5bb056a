// A challenge is a call that waits for a person. It matches the caller, the binding, the tool and the arguments, so
// that an identical retry joins it; it expires; it is redeemed once; a deny by a person is an answer the model reads.

import { randomBytes } from "node:crypto";
import { canonicalize } from "./canonical.js";
import { contentId } from "./content-id.js";
import type { Intent } from "./intent.js";
import type { Principal, Rule, Target } from "./types.js";

export type ChallengeState = "pending" | "approved" | "denied" | "redeemed" | "expired";

export interface Challenge {
  readonly id: string;
  readonly key: string;
  readonly app: string;
  readonly agent: string;
  readonly method: string;
  readonly tool: string;
  readonly binding: string;
  readonly intentId: string;
  readonly argumentsId: string;
  /** Full canonical arguments, for the approver's eyes. */
  readonly argumentsText: string;
  readonly rules: readonly Rule[];
  readonly approvers: readonly string[];
  readonly reason: string;
  readonly policyHash: string;
  readonly createdAt: number;
  readonly expiresAt: number;
  state: ChallengeState;
  decidedBy?: string;
  /** Why a person said no. */
  denyReason?: string;
}

export interface ChallengeRequest {
  principal: Principal;
  method: string;
  target: Target;
  intent: Intent;
  /** Answers the caller sent along are part of what is approved. */
  inputResponses?: unknown;
  rules: readonly Rule[];
  approvers: readonly string[];
  reason: string;
  policyHash: string;
}

export interface Approvals {
  /** The live challenge for this very call, or a new one. */
  open(request: ChallengeRequest): Promise<{ challenge: Challenge; isNew: boolean }>;
  /** Compare-and-set approved → redeemed: true for exactly one caller. */
  redeem(id: string): Promise<boolean>;
  get(id: string): Promise<Challenge | undefined>;
  list(): Promise<Challenge[]>;
  approve(id: string, by: Approver): Promise<Challenge>;
  deny(id: string, by: Approver, reason: string): Promise<Challenge>;
  /** Resolves when the challenge is no longer pending, or after `timeoutMs`, whichever comes first. */
  settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<Challenge | undefined>;
  onOpen(listener: (challenge: Challenge) => void): () => void;
}

/** Who answers. Approving is a credential of its own: it is never the caller that asked. */
export interface Approver {
  readonly name: string;
  readonly groups: readonly string[];
  /** `app/agent` when the approver is also known as a caller. */
  readonly caller?: string;
}

export class ApprovalRefused extends Error {
  readonly code = "APPROVAL_REFUSED";
  constructor(message: string) {
    super(message);
    this.name = "ApprovalRefused";
  }
}

export interface MemoryApprovalOptions {
  ttlMs?: number;
  maxOpen?: number;
  now?: () => number;
}

const DEFAULT_TTL_MS = 15 * 60_000;
const DEFAULT_MAX_OPEN = 1_000;

export class MemoryApprovals implements Approvals {
  readonly #byId = new Map<string, Challenge>();
  readonly #byKey = new Map<string, Challenge>();
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #listeners = new Set<(challenge: Challenge) => void>();
  readonly #ttlMs: number;
  readonly #maxOpen: number;
  readonly #now: () => number;

  constructor(options: MemoryApprovalOptions = {}) {
    this.#ttlMs = options.ttlMs ?? DEFAULT_TTL_MS;
    this.#maxOpen = options.maxOpen ?? DEFAULT_MAX_OPEN;
    this.#now = options.now ?? Date.now;
  }

  async open(request: ChallengeRequest): Promise<{ challenge: Challenge; isNew: boolean }> {
    const key = challengeKey(request);
    const live = this.#byKey.get(key);
    if (live && this.#fresh(live) && live.state !== "redeemed" && sameRules(live, request)) {
      return { challenge: live, isNew: false };
    }
    this.#expireOld();
    if (this.#byId.size >= this.#maxOpen) {
      throw new ApprovalRefused(`${this.#maxOpen} challenges are already open; answer some or wait for them to expire`);
    }
    const now = this.#now();
    const challenge: Challenge = {
      id: `ch_${randomBytes(12).toString("base64url")}`,
      key,
      app: request.principal.app,
      agent: request.principal.agent,
      method: request.method,
      tool: request.target.name,
      binding: request.target.binding,
      intentId: request.intent.id,
      argumentsId: request.intent.argumentsId,
      argumentsText: request.intent.argumentsText,
      rules: request.rules,
      approvers: request.approvers,
      reason: request.reason,
      policyHash: request.policyHash,
      createdAt: now,
      expiresAt: now + this.#ttlMs,
      state: "pending",
    };
    this.#byId.set(challenge.id, challenge);
    this.#byKey.set(key, challenge);
    for (const listener of this.#listeners) listener(challenge);
    return { challenge, isNew: true };
  }

  async redeem(id: string): Promise<boolean> {
    const challenge = this.#byId.get(id);
    if (!challenge || !this.#fresh(challenge) || challenge.state !== "approved") return false;
    challenge.state = "redeemed";
    this.#byKey.delete(challenge.key);
    return true;
  }

  async get(id: string): Promise<Challenge | undefined> {
    const challenge = this.#byId.get(id);
    if (challenge) this.#fresh(challenge);
    return challenge;
  }

  async list(): Promise<Challenge[]> {
    this.#expireOld();
    return [...this.#byId.values()];
  }

  async approve(id: string, by: Approver): Promise<Challenge> {
    const challenge = this.#answerable(id, by);
    challenge.state = "approved";
    challenge.decidedBy = by.name;
    this.#wake(id);
    return challenge;
  }

  async deny(id: string, by: Approver, reason: string): Promise<Challenge> {
    const challenge = this.#answerable(id, by);
    challenge.state = "denied";
    challenge.decidedBy = by.name;
    challenge.denyReason = reason;
    this.#wake(id);
    return challenge;
  }

  settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<Challenge | undefined> {
    const challenge = this.#byId.get(id);
    if (!challenge || challenge.state !== "pending" || signal?.aborted) return Promise.resolve(challenge);
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(id) ?? new Set();
      this.#waiting.set(id, waiting);
      const done = (): void => {
        clearTimeout(timer);
        waiting.delete(done);
        signal?.removeEventListener("abort", done);
        this.#fresh(challenge);
        resolve(challenge);
      };
      const untilExpiry = Math.max(0, challenge.expiresAt - this.#now());
      const timer = setTimeout(done, Math.min(timeoutMs, untilExpiry));
      signal?.addEventListener("abort", done);
      waiting.add(done);
    });
  }

  onOpen(listener: (challenge: Challenge) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #answerable(id: string, by: Approver): Challenge {
    const challenge = this.#byId.get(id);
    if (!challenge) throw new ApprovalRefused(`there is no challenge ${id}`);
    if (!this.#fresh(challenge)) throw new ApprovalRefused(`challenge ${id} has expired`);
    if (challenge.state !== "pending") throw new ApprovalRefused(`challenge ${id} is already ${challenge.state}`);
    if (by.caller === `${challenge.app}/${challenge.agent}`) {
      throw new ApprovalRefused("whoever asked for a call cannot approve it");
    }
    const groups = challenge.approvers;
    if (groups.length > 0 && !groups.some((group) => by.groups.includes(group))) {
      throw new ApprovalRefused(`challenge ${id} can be answered by ${groups.join(", ")}, which ${by.name} is not in`);
    }
    return challenge;
  }

  #fresh(challenge: Challenge): boolean {
    if (this.#now() < challenge.expiresAt) return true;
    if (challenge.state === "pending" || challenge.state === "approved") {
      challenge.state = "expired";
      this.#wake(challenge.id);
    }
    return false;
  }

  #wake(id: string): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    for (const done of waiting ?? []) done();
  }

  #expireOld(): void {
    for (const challenge of this.#byId.values()) {
      if (this.#fresh(challenge)) continue;
      this.#byId.delete(challenge.id);
      if (this.#byKey.get(challenge.key) === challenge) this.#byKey.delete(challenge.key);
    }
  }
}

function challengeKey(request: ChallengeRequest): string {
  const { principal, target, intent } = request;
  return contentId(
    canonicalize([
      principal.app,
      principal.agent,
      target.binding,
      target.definitionHash,
      request.method,
      target.name,
      intent.argumentsText,
      JSON.stringify(request.inputResponses ?? null),
    ]),
  );
}

/** An approval covers exactly the rules and approver groups it showed. */
function sameRules(challenge: Challenge, request: ChallengeRequest): boolean {
  const ids = (rules: readonly Rule[]): string =>
    rules
      .map((rule) => rule.id)
      .sort()
      .join("\n");
  const groups = (names: readonly string[]): string => [...names].sort().join("\n");
  return ids(challenge.rules) === ids(request.rules) && groups(challenge.approvers) === groups(request.approvers);
}
