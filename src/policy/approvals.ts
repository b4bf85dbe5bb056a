// A challenge is a request for the approval of one call. It matches the caller, the binding, the tool and the arguments, so
// that an identical retry joins it; it expires; it is redeemed once; the reason of a denial is an answer that the model reads.

import { randomBytes } from "node:crypto";
import type { JsonObject } from "../mcp/index.js";
import {
  type BudgetOf,
  type ChallengeFilter,
  type ChallengeStore,
  type KeptChallenge,
  MemoryChallenges,
  type OpenBounds,
} from "./challenges.js";
import { canonicalize, contentId, type Intent } from "./intent.js";
import type { CallTarget, Principal, Rule } from "./types.js";

export type ChallengeState = "pending" | "approved" | "denied" | "redeemed" | "expired";

/** What lists show: everything but the full text of the arguments. */
export interface ChallengeSummary {
  readonly id: string;
  readonly key: string;
  readonly app: string;
  readonly agent: string;
  /** The agent of the credential, where a delegation made the caller another one. */
  readonly holder?: string;
  /** The user behind the agent, where the credential names one. */
  readonly user?: string;
  readonly method: string;
  readonly tool: string;
  readonly binding: string;
  readonly intentId: string;
  readonly argumentsId: string;
  /** The beginning of the canonical arguments, and how many characters they have. */
  readonly argumentsPreview: string;
  readonly argumentsChars: number;
  /** How many characters the text has that travels beside the arguments. */
  readonly forwardedChars: number;
  readonly rules: readonly Rule[];
  readonly approvers: readonly string[];
  readonly reason: string;
  readonly policyHash: string;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly state: ChallengeState;
  readonly decidedBy?: string;
  /** Why an approver denied it. */
  readonly denyReason?: string;
}

export interface Challenge extends ChallengeSummary {
  /** Full canonical arguments, for the approver's eyes. */
  readonly argumentsText: string;
  /** Canonical text of what travels beside the arguments; "{}" when nothing does. */
  readonly forwardedText: string;
}

interface ChallengeRequest {
  principal: Principal;
  method: string;
  target: CallTarget;
  intent: Intent;
  rules: readonly Rule[];
  approvers: readonly string[];
  reason: string;
  policyHash: string;
}

/** How many approval requests may be open at once, and how much an approver can be asked to read. */
export interface ApprovalLimits extends OpenBounds {
  /** Bytes of the canonical arguments together with everything else that is forwarded. */
  readonly maxBytes: number;
}

export const DEFAULT_APPROVAL_LIMITS: ApprovalLimits = { perApp: 1_000, perAgent: 100, maxBytes: 64 * 1024 };

/** Nothing was opened, because a bound is reached. */
export class ApprovalsFull extends Error {
  readonly per: "app" | "agent";
  constructor(per: "app" | "agent", max: number) {
    super(`${max} challenges per ${per} are already open; answer some or wait for them to expire`);
    this.name = "ApprovalsFull";
    this.per = per;
  }
}

export interface Approvals {
  /** The live challenge for this very call, or a new one; throws `ApprovalsFull` when a bound is reached. */
  open(request: ChallengeRequest, bounds?: OpenBounds): Promise<{ challenge: Challenge; isNew: boolean }>;
  /** Compare-and-set approved → redeemed: true for exactly one caller. */
  redeem(id: string): Promise<boolean>;
  /**
   * Undoes the caller's own redemption, because nothing was started. False when it no longer can be: the approval
   * expired meanwhile, or an identical call is pending by now.
   */
  restore(id: string): Promise<boolean>;
  get(id: string): Promise<Challenge | undefined>;
  list(filter?: ChallengeFilter): Promise<ChallengeSummary[]>;
  approve(id: string, by: Approver): Promise<Challenge>;
  deny(id: string, by: Approver, reason: string): Promise<Challenge>;
  /** The state once it is no longer pending, or after `timeoutMs`; undefined when there is no such challenge. */
  settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<ChallengeState | undefined>;
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
}

const DEFAULT_TTL_MS = 15 * 60_000;
const MAX_LISTED = 1_000;
const PREVIEW_CHARS = 200;

/** Challenges in a store, be it the memory of this process or one that replicas share. */
export class StoredApprovals implements Approvals {
  readonly #store: ChallengeStore;
  readonly #ttlMs: number;
  readonly #waits: ApprovalWaits;
  readonly #listeners = new Set<(challenge: Challenge) => void>();

  constructor(store: ChallengeStore, options: ApprovalOptions = {}) {
    this.#store = store;
    this.#ttlMs = options.ttlMs ?? DEFAULT_TTL_MS;
    this.#waits = new ApprovalWaits(store);
  }

  async open(
    request: ChallengeRequest,
    bounds: OpenBounds = DEFAULT_APPROVAL_LIMITS,
  ): Promise<{ challenge: Challenge; isNew: boolean }> {
    const { principal, target, intent } = request;
    const { agent, holder, user } = principal;
    const document: ChallengeDocument = {
      agent,
      ...(holder === undefined ? {} : { holder }),
      ...(user === undefined ? {} : { user }),
      method: request.method,
      tool: target.name,
      binding: target.binding,
      intentId: intent.id,
      argumentsId: intent.argumentsId,
      argumentsPreview: intent.argumentsText.slice(0, PREVIEW_CHARS),
      argumentsChars: intent.argumentsText.length,
      forwardedChars: intent.forwardedText.length,
      rules: request.rules,
      approvers: request.approvers,
      reason: request.reason,
      policyHash: request.policyHash,
    };
    const payload = { argumentsText: intent.argumentsText, forwardedText: intent.forwardedText };
    const opened = await this.#store.open(
      {
        id: `ch_${randomBytes(12).toString("base64url")}`,
        key: challengeKey(request),
        app: principal.app,
        agent: principal.agent,
        state: "pending",
        document: document as unknown as JsonObject,
        payload,
        ttlMs: this.#ttlMs,
      },
      bounds,
    );
    if ("full" in opened) {
      throw new ApprovalsFull(opened.full, opened.full === "app" ? bounds.perApp : bounds.perAgent);
    }
    // The key covers the whole intent, so a joined challenge has these very texts.
    const challenge = { ...read(opened.challenge), ...payload };
    if (opened.isNew) for (const listener of this.#listeners) listener(challenge);
    return { challenge, isNew: opened.isNew };
  }

  async redeem(id: string): Promise<boolean> {
    return (await this.#store.move(id, "approved", "redeemed")) !== undefined;
  }

  async restore(id: string): Promise<boolean> {
    return (await this.#store.move(id, "redeemed", "approved")) !== undefined;
  }

  async get(id: string): Promise<Challenge | undefined> {
    const found = await this.#store.get(id);
    if (!found) return undefined;
    const { argumentsText = "", forwardedText = "{}" } = found.payload;
    return { ...read(found), argumentsText: String(argumentsText), forwardedText: String(forwardedText) };
  }

  async list(filter: ChallengeFilter = {}): Promise<ChallengeSummary[]> {
    return (await this.#store.list(MAX_LISTED, filter)).map(read);
  }

  approve(id: string, by: Approver): Promise<Challenge> {
    return this.#answer(id, by, "approved", { decidedBy: by.name });
  }

  deny(id: string, by: Approver, reason: string): Promise<Challenge> {
    return this.#answer(id, by, "denied", { decidedBy: by.name, denyReason: reason });
  }

  async settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<ChallengeState | undefined> {
    return (await this.#waits.settled(id, timeoutMs, signal)) as ChallengeState | undefined;
  }

  onOpen(listener: (challenge: Challenge) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async #answer(id: string, by: Approver, state: "approved" | "denied", merge: JsonObject): Promise<Challenge> {
    const challenge = checkAnswer(id, await this.get(id), by);
    const moved = await this.#store.move(id, "pending", state, merge);
    if (moved) return { ...challenge, ...read(moved) };
    // Another approver answered first; the same check reports how.
    checkAnswer(id, await this.get(id), by);
    throw new ApprovalRefused(`challenge ${id} was answered at the same moment; look at it again`);
  }
}

/** For one process. */
export class MemoryApprovals extends StoredApprovals {
  readonly #kept: MemoryChallenges;

  constructor(options: ApprovalOptions & { now?: () => number } = {}) {
    const kept = new MemoryChallenges(options.now);
    super(kept, options);
    this.#kept = kept;
  }

  /** Charges what open requests keep in memory. */
  chargeTo(budgetOf: BudgetOf): void {
    this.#kept.chargeTo(budgetOf);
  }
}

type ChallengeDocument = Omit<ChallengeSummary, "id" | "key" | "app" | "createdAt" | "expiresAt" | "state">;

function read({ document, id, key, app, createdAt, expiresAt, state }: KeptChallenge): ChallengeSummary {
  const known = document as unknown as ChallengeDocument;
  return { ...known, id, key, app, createdAt, expiresAt, state: state as ChallengeState };
}

function checkAnswer(id: string, challenge: Challenge | undefined, by: Approver): Challenge {
  const isTheirs = by.app === undefined || by.app === challenge?.app;
  if (!challenge || !isTheirs) throw new ApprovalRefused(`there is no approval request ${id}`);
  if (challenge.state === "expired") throw new ApprovalRefused(`approval request ${id} has expired`);
  if (challenge.state !== "pending") throw new ApprovalRefused(`approval request ${id} is already ${challenge.state}`);
  const { app, agent, holder = agent } = challenge;
  if (by.caller === `${app}/${agent}` || by.caller === `${app}/${holder}`) {
    throw new ApprovalRefused("the requester of a call cannot approve it");
  }
  const groups = challenge.approvers;
  if (groups.length > 0 && !groups.some((group) => by.groups.includes(group))) {
    throw new ApprovalRefused(`challenge ${id} can be answered by ${groups.join(", ")}, which ${by.name} is not in`);
  }
  return challenge;
}

/**
 * An approval covers exactly the intent it showed (caller, server, tool definition, arguments and everything that
 * travels beside them), and the rules and approver groups it showed: with others it is another approval request.
 */
function challengeKey(request: ChallengeRequest): string {
  return contentId(
    canonicalize([request.intent.id, request.rules.map((rule) => rule.id).sort(), [...request.approvers].sort()]),
  );
}

/** States are read again this often, in case a notification was lost. */
const POLL_MS = 1_000;

type Wake = (state: string | undefined) => void;

class ApprovalWaits {
  readonly #store: Pick<ChallengeStore, "states" | "onChange">;
  readonly #waiting = new Map<string, Set<Wake>>();
  #stop: (() => void) | undefined;
  #isPolling = false;

  constructor(store: Pick<ChallengeStore, "states" | "onChange">) {
    this.#store = store;
  }

  /** The state as soon as it is not `pending`, or as it is after `timeoutMs`; undefined when the id is unknown. */
  async settled(id: string, timeoutMs: number, signal?: AbortSignal): Promise<string | undefined> {
    let wake: Wake = () => {};
    const answered = new Promise<string | undefined>((resolve) => {
      wake = resolve;
    });
    // Subscribed before the first read: a change in between is not missed.
    this.#add(id, wake);
    const timer = setTimeout(() => wake("pending"), Math.max(0, timeoutMs));
    const abort = (): void => wake("pending");
    signal?.addEventListener("abort", abort);
    try {
      const now = (await this.#store.states([id])).get(id);
      return now !== "pending" || signal?.aborted ? now : await answered;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.#remove(id, wake);
    }
  }

  #add(id: string, wake: Wake): void {
    const wakes = this.#waiting.get(id);
    if (wakes) wakes.add(wake);
    else this.#waiting.set(id, new Set([wake]));
    if (this.#stop) return;
    const unsubscribe = this.#store.onChange((changed) => {
      if (changed === "") void this.#read([...this.#waiting.keys()]);
      else if (this.#waiting.has(changed)) void this.#read([changed]);
    });
    const timer = setInterval(() => void this.#readAll(), POLL_MS).unref();
    this.#stop = () => {
      clearInterval(timer);
      unsubscribe();
    };
  }

  #remove(id: string, wake: Wake): void {
    const wakes = this.#waiting.get(id);
    wakes?.delete(wake);
    if (wakes?.size === 0) this.#waiting.delete(id);
    if (this.#waiting.size > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }

  async #readAll(): Promise<void> {
    if (this.#isPolling) return;
    this.#isPolling = true;
    await this.#read([...this.#waiting.keys()]);
    this.#isPolling = false;
  }

  async #read(ids: readonly string[]): Promise<void> {
    try {
      const states = await this.#store.states(ids);
      for (const id of ids) {
        const state = states.get(id);
        if (state === "pending") continue;
        for (const wake of this.#waiting.get(id) ?? []) wake(state);
      }
    } catch {
      // The store is unreachable: the next read, or the end of the wait, answers.
    }
  }
}
