// A challenge is a call that waits for a person. It matches the caller, the binding, the tool and the arguments, so
// that an identical retry joins it; it expires; it is redeemed once; a deny by a person is an answer the model reads.

import { randomBytes } from "node:crypto";
import type { JsonObject } from "../protocol/index.js";
import { canonicalize } from "./canonical.js";
import { type ChallengeStore, type KeptChallenge, MemoryChallenges } from "./challenges.js";
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
  readonly state: ChallengeState;
  readonly decidedBy?: string;
  /** Why a person said no. */
  readonly denyReason?: string;
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
  /** Answers for this application alone; the challenges of others do not exist for it. */
  readonly app?: string;
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

export interface ApprovalOptions {
  ttlMs?: number;
  maxOpen?: number;
}

const DEFAULT_TTL_MS = 15 * 60_000;
const DEFAULT_MAX_OPEN = 1_000;
/** Who waits looks again this often, should word of a change get lost. */
const LOOK_MS = 1_000;

/** Challenges in a store, be it the memory of this process or one that replicas share. */
export class StoredApprovals implements Approvals {
  readonly #store: ChallengeStore;
  readonly #ttlMs: number;
  readonly #maxOpen: number;
  readonly #listeners = new Set<(challenge: Challenge) => void>();

  constructor(store: ChallengeStore, options: ApprovalOptions = {}) {
    this.#store = store;
    this.#ttlMs = options.ttlMs ?? DEFAULT_TTL_MS;
    this.#maxOpen = options.maxOpen ?? DEFAULT_MAX_OPEN;
  }

  async open(request: ChallengeRequest): Promise<{ challenge: Challenge; isNew: boolean }> {
    const { principal, target, intent } = request;
    const document: ChallengeDocument = {
      agent: principal.agent,
      method: request.method,
      tool: target.name,
      binding: target.binding,
      intentId: intent.id,
      argumentsId: intent.argumentsId,
      argumentsText: intent.argumentsText,
      rules: request.rules,
      approvers: request.approvers,
      reason: request.reason,
      policyHash: request.policyHash,
    };
    const id = `ch_${randomBytes(12).toString("base64url")}`;
    const opened = await this.#store.open(
      {
        id,
        key: challengeKey(request),
        app: principal.app,
        state: "pending",
        document: document as unknown as JsonObject,
        ttlMs: this.#ttlMs,
      },
      this.#maxOpen,
    );
    if (!opened) {
      throw new ApprovalRefused(`${this.#maxOpen} challenges are already open; answer some or wait for them to expire`);
    }
    const challenge = read(opened.challenge);
    if (opened.isNew) for (const listener of this.#listeners) listener(challenge);
    return { challenge, isNew: opened.isNew };
  }

  async redeem(id: string): Promise<boolean> {
    return (await this.#store.move(id, "approved", "redeemed")) !== undefined;
  }

  async get(id: string): Promise<Challenge | undefined> {
    const found = await this.#store.get(id);
    return found && read(found);
  }

  async list(): Promise<Challenge[]> {
    return (await this.#store.list(this.#maxOpen)).map(read);
  }

  approve(id: string, by: Approver): Promise<Challenge> {
    return this.#answer(id, by, "approved", { decidedBy: by.name });
  }

  deny(id: string, by: Approver, reason: string): Promise<Challenge> {
    return this.#answer(id, by, "denied", { decidedBy: by.name, denyReason: reason });
  }

  async settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<Challenge | undefined> {
    const deadline = performance.now() + timeoutMs;
    let wake = (): void => {};
    // Listening before looking: what changes in between is heard.
    const stop = this.#store.onChange((changed) => {
      if (changed === id || changed === "") wake();
    });
    const abort = (): void => wake();
    signal?.addEventListener("abort", abort);
    try {
      for (;;) {
        let woken = false;
        const news = new Promise<void>((resolve) => {
          wake = () => {
            woken = true;
            resolve();
          };
        });
        const challenge = await this.get(id);
        const left = deadline - performance.now();
        if (!challenge || challenge.state !== "pending" || signal?.aborted || left <= 0) return challenge;
        if (woken) continue;
        const timer = setTimeout(wake, Math.min(left, LOOK_MS));
        await news;
        clearTimeout(timer);
      }
    } finally {
      stop();
      signal?.removeEventListener("abort", abort);
    }
  }

  onOpen(listener: (challenge: Challenge) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #answer(id: string, by: Approver, state: "approved" | "denied", merge: JsonObject): Promise<Challenge> {
    checkAnswer(id, await this.get(id), by);
    const moved = await this.#store.move(id, "pending", state, merge);
    if (moved) return read(moved);
    // Somebody else was quicker; the same check says in which way.
    checkAnswer(id, await this.get(id), by);
    throw new ApprovalRefused(`challenge ${id} was answered at the same moment; look at it again`);
  }
}

/** For one process. */
export class MemoryApprovals extends StoredApprovals {
  constructor(options: ApprovalOptions & { now?: () => number } = {}) {
    super(new MemoryChallenges(options.now), options);
  }
}

type ChallengeDocument = Omit<Challenge, "id" | "key" | "app" | "createdAt" | "expiresAt" | "state">;

function read({ document, id, key, app, createdAt, expiresAt, state }: KeptChallenge): Challenge {
  const known = document as unknown as ChallengeDocument;
  return { ...known, id, key, app, createdAt, expiresAt, state: state as ChallengeState };
}

function checkAnswer(id: string, challenge: Challenge | undefined, by: Approver): void {
  const isTheirs = by.app === undefined || by.app === challenge?.app;
  if (!challenge || !isTheirs) throw new ApprovalRefused(`there is no challenge ${id}`);
  if (challenge.state === "expired") throw new ApprovalRefused(`challenge ${id} has expired`);
  if (challenge.state !== "pending") throw new ApprovalRefused(`challenge ${id} is already ${challenge.state}`);
  if (by.caller === `${challenge.app}/${challenge.agent}`) {
    throw new ApprovalRefused("whoever asked for a call cannot approve it");
  }
  const groups = challenge.approvers;
  if (groups.length > 0 && !groups.some((group) => by.groups.includes(group))) {
    throw new ApprovalRefused(`challenge ${id} can be answered by ${groups.join(", ")}, which ${by.name} is not in`);
  }
}

/** An approval covers exactly the rules and approver groups it showed: with others it is another challenge. */
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
      request.rules.map((rule) => rule.id).sort(),
      [...request.approvers].sort(),
    ]),
  );
}
