// The decision: a meet of everything that has a say, worst answer wins. An error while deciding is a deny.
// Only here is a permit minted, and only with a guardrail token.

import { asFault, type JsonObject } from "../mcp/index.js";
import { type ApprovalLimits, type Approvals, ApprovalsFull, type Challenge } from "./approvals.js";
import { type CallbackRunner, type GuardrailAnswer, type GuardrailToken, MISSING_GUARDRAIL } from "./guardrails.js";
import { type Intent, intentForwarded } from "./intent.js";
import type { Counted, Limits } from "./limits.js";
import { Permit } from "./permit.js";
import type { Obligation, PolicyDecision, PolicySet } from "./cedar/index.js";
import {
  deny,
  type Effect,
  type Principal,
  type PolicyInput,
  type Rule,
  type CallTarget,
  type CheckResult,
} from "./types.js";

export interface Decision {
  readonly effect: Effect;
  readonly rules: readonly Rule[];
  readonly reason: string;
  readonly verdict: CheckResult;
  readonly policyHash: string;
  /** Present exactly when the call may run (which under `observe` includes calls that policy would not allow). */
  readonly permit: Permit | undefined;
  readonly challenge?: Challenge;
  /** True when this decision opened the challenge, which then has to be recorded before the caller hears of it. */
  readonly challengeIsNew?: boolean;
  readonly observed: boolean;
  /** The approval that was redeemed for this permit; it has to be on record before the call runs. */
  readonly redeemed?: Challenge;
  /**
   * Set where an approval was redeemed for this permit: gives the approval back. To be called when the call was never
   * started; once, and by the holder of the permit alone. Never throws.
   */
  readonly restoreApproval?: () => Promise<void>;
  /** Gives back what the limits hold; call it when the work is over. */
  readonly release: (resultBytes?: number) => void;
}

/** One more voice, such as the host's own policy. */
export type Check = (proposed: PolicyInput, intent: Intent) => CheckResult | Promise<CheckResult>;

export interface GateParts {
  /** The policy in force; read once per call, so every call is decided under one hash. */
  policy: () => PolicySet;
  guardrails: CallbackRunner;
  limits: Limits;
  approvals: Approvals;
  approvalLimits: ApprovalLimits;
  voices: readonly Check[];
  observe: boolean;
}

const NOTHING = (): void => {};

/** One call as it is decided. */
interface Deciding {
  readonly gate: GateParts;
  readonly policy: PolicySet;
  readonly proposed: PolicyInput;
  readonly intent: Intent;
  readonly counted: Counted;
}

/** `waited`: this very call waited for its approval, and the limits have counted it before. */
export function decide(
  gate: GateParts,
  proposed: PolicyInput,
  intent: Intent,
  waited = false,
): Decision | Promise<Decision> {
  const policy = gate.policy();
  const deciding: Deciding = { gate, policy, proposed, intent, counted: waited ? "repeat" : "call" };
  try {
    const answer = proposed.target.builtin ? builtinAnswer(proposed) : askPolicy(policy, proposed, intent, []);
    if (
      answer.effect === "permit" &&
      ((gate.voices.length === 0 && !policy.checks?.length) || proposed.target.builtin)
    ) {
      const guarded = gate.guardrails.run(proposed.principal, proposed.target, intent);
      if (!(guarded instanceof Promise)) return conclude(deciding, answer, guarded);
      return guarded.then((token) => conclude(deciding, answer, token)).catch((error) => broken(policy, error));
    }
    return decideSlowly(deciding, answer).catch((error) => broken(policy, error));
  } catch (error) {
    return broken(policy, error);
  }
}

async function decideSlowly(deciding: Deciding, answer: PolicyDecision): Promise<Decision> {
  const { gate, policy, proposed, intent } = deciding;
  const voiced: Rule[] = [];
  const ofPolicy = (policy.checks ?? []).map(({ check }) => check);
  for (const voice of [...gate.voices, ...ofPolicy]) {
    const verdict = await voice(proposed, intent);
    if (verdict.effect === "deny") return refused(deciding, verdict);
    voiced.push(...verdict.rules);
  }
  if (answer.effect === "deny" && !gate.observe) return refused(deciding, policyVerdict(answer));
  const guarded = await gate.guardrails.run(proposed.principal, proposed.target, intent);
  const decision = await conclude(deciding, answer, guarded);
  return decision.permit && voiced.length > 0 ? { ...decision, rules: [...decision.rules, ...voiced] } : decision;
}

function conclude(deciding: Deciding, answer: PolicyDecision, guarded: GuardrailAnswer): Decision | Promise<Decision> {
  const { gate, policy, proposed, intent } = deciding;
  let token = "token" in guarded ? guarded.token : undefined;
  const missing = "blocked" in guarded && guarded.blocked.rules[0]?.id === MISSING_GUARDRAIL;
  if (missing && gate.observe) token = gate.guardrails.observed(proposed.principal, intent);
  if (!token) return refused(deciding, (guarded as { blocked: CheckResult }).blocked);
  const { principal, target } = proposed;
  const bytes = target.builtin ? 0 : intent.argumentsText.length;
  const slot = gate.limits.take(principal, target, bytes, deciding.counted);
  const spent = token;
  const within = (taken: Awaited<typeof slot>): Decision | Promise<Decision> => {
    if ("denied" in taken) return denyDecision(policy, taken.denied);
    const admitted: Admitted = { token: spent, release: taken.release, missing };
    return answer.effect === "challenge" && !gate.observe
      ? withApproval(deciding, answer, admitted)
      : permitted(deciding, answer, admitted);
  };
  return slot instanceof Promise ? slot.then(within).catch((error) => broken(policy, error)) : within(slot);
}

/** What a call holds once guardrails and limits have let it pass. */
interface Admitted {
  readonly token: GuardrailToken;
  readonly release: Decision["release"];
  readonly missing: boolean;
}

async function withApproval(deciding: Deciding, answer: PolicyDecision, admitted: Admitted): Promise<Decision> {
  try {
    const decision = await approvedOr(deciding, answer, admitted);
    if (!decision.permit) admitted.release();
    return decision;
  } catch (error) {
    admitted.release();
    const { gate, policy, proposed } = deciding;
    if (error instanceof ApprovalsFull)
      return denyDecision(policy, tooManyOpen(error.per, gate.approvalLimits, proposed));
    return broken(policy, error);
  }
}

/** INVARIANT: the redemption is the last step of a decision, so that nothing decided here can waste it. */
async function approvedOr(deciding: Deciding, answer: PolicyDecision, admitted: Admitted): Promise<Decision> {
  const { gate, policy, proposed, intent } = deciding;
  const { principal, method, target } = proposed;
  const unreadable = tooLongToRead(gate.approvalLimits, intent);
  if (unreadable) return denyDecision(policy, unreadable);
  const { rules, approvers, reason } = answer;
  const { challenge, isNew } = await gate.approvals.open(
    { principal, method, target, intent, rules, approvers, reason, policyHash: policy.hash },
    gate.approvalLimits,
  );
  if (challenge.state === "denied") return denyDecision(policy, deniedByPerson(challenge));
  if (challenge.state !== "approved") return pending(policy, answer, challenge, isNew);
  const again = askPolicy(
    policy,
    proposed,
    intent,
    challenge.rules.map((rule) => rule.id),
  );
  if (again.effect !== "permit") return denyDecision(policy, policyVerdict(again));
  const decision = permitted(deciding, again, admitted);
  // A compare-and-set: of several identical retries exactly one goes on from here.
  if (!(await gate.approvals.redeem(challenge.id))) return pending(policy, answer, challenge, isNew);
  return { ...decision, redeemed: challenge, restoreApproval: () => restored(gate.approvals, challenge.id) };
}

function permitted(deciding: Deciding, answer: PolicyDecision, { token, release, missing }: Admitted): Decision {
  const { gate, policy, proposed, intent } = deciding;
  const permit = Permit.mint(
    {
      intent,
      principal: proposed.principal,
      method: proposed.method,
      target: proposed.target,
      policyHash: policy.hash,
      obligations: answer.obligations,
    },
    token,
  );
  const unguarded = missing && answer.effect === "permit";
  return {
    effect: unguarded ? "deny" : answer.effect,
    // The record tells a deny for want of a guardrail from one that a rule made.
    rules: unguarded ? [{ id: MISSING_GUARDRAIL }, ...answer.rules] : answer.rules,
    reason: answer.reason,
    verdict: policyVerdict(answer),
    policyHash: policy.hash,
    permit,
    observed: gate.observe,
    release,
  };
}

function askPolicy(
  policy: PolicySet,
  proposed: PolicyInput,
  intent: Intent,
  approvedRules: readonly string[],
): PolicyDecision {
  const { principal, target } = proposed;
  const { serverRequest } = target;
  const answer = policy.decide({
    app: principal.app,
    agent: principal.agent,
    scope: principal.scope,
    action: target.action,
    resource: {
      type: target.type,
      id: target.name,
      server: target.server,
      tags: target.tags,
      readOnly: target.readOnly,
      ...(serverRequest ? { scope: serverRequest.scope } : {}),
    },
    arguments: proposed.arguments as JsonObject,
    ...(intent.forwardedText === "{}" ? {} : { forwarded: intentForwarded(intent) }),
    ...(serverRequest ? { serverRequest: { server: target.server, tool: serverRequest.tool } } : {}),
    transport: proposed.transport,
    approvedRules,
  });
  const saysNothing = answer.effect === "deny" && answer.rules.length === 0 && answer.errors.length === 0;
  return saysNothing && serverRequest?.permittedUnlessForbidden ? builtinAnswer(proposed) : answer;
}

function builtinAnswer(proposed: PolicyInput): PolicyDecision {
  const rules = [{ id: `builtin.${proposed.method}`, file: "", line: 0 }];
  return { effect: "permit", rules, reason: "", approvers: [], obligations: [], errors: [] };
}

function policyVerdict(answer: PolicyDecision): CheckResult {
  return {
    effect: answer.effect,
    rules: answer.rules,
    reason: answer.reason,
    type: answer.effect === "challenge" ? "ChallengePending" : "PolicyDeny",
    approvers: answer.approvers,
    obligations: answer.obligations as readonly Obligation[],
    suggestions:
      answer.effect === "deny"
        ? ["Ask the operator, who can see the deciding rule with `portcullis policy explain`"]
        : [],
  };
}

function pending(policy: PolicySet, answer: PolicyDecision, challenge: Challenge, isNew: boolean): Decision {
  const verdict: CheckResult = {
    effect: "challenge",
    rules: answer.rules,
    reason: answer.reason,
    type: "ChallengePending",
    approvers: answer.approvers,
    suggestions: ["It did not run. Once a person has approved it, repeat the same call"],
    extra: { challenge: challenge.id, expires_at: new Date(challenge.expiresAt).toISOString() },
  };
  return { ...denyDecision(policy, verdict), challenge, challengeIsNew: isNew };
}

function deniedByPerson(challenge: Challenge): CheckResult {
  return deny("PolicyDeny", challenge.rules[0]?.id ?? "challenge", challenge.denyReason ?? "a person said no", {
    rules: challenge.rules,
    extra: { challenge: challenge.id, denied_by_person: true },
  });
}

function tooLongToRead({ maxBytes }: ApprovalLimits, intent: Intent): CheckResult | undefined {
  const forwarded = intent.forwardedText === "{}" ? 0 : Buffer.byteLength(intent.forwardedText);
  const bytes = Buffer.byteLength(intent.argumentsText) + forwarded;
  if (bytes <= maxBytes) return undefined;
  const reason = `this call needs an approval, and its arguments have ${bytes} bytes: an approver is shown at most ${maxBytes}`;
  return deny("PolicyDeny", "approvals.maxBytes", reason, {
    suggestions: ["Send less in one call", "The operator can raise limits.approvals.maxBytes"],
    extra: { bytes, max_bytes: maxBytes },
  });
}

/** Long enough for an approver to answer some. */
const FULL_RETRY_MS = 30_000;

function tooManyOpen(full: "app" | "agent", limits: ApprovalLimits, { principal }: PolicyInput): CheckResult {
  const bound = full === "agent" ? "perAgent" : "perApp";
  const whose = full === "agent" ? `agent \`${principal.app}/${principal.agent}\`` : `application \`${principal.app}\``;
  const reason = `${limits[bound]} approval requests of ${whose} are open already (limits.approvals.${bound})`;
  return deny("RateLimited", `approvals.${bound}`, reason, {
    suggestions: ["Try again when some were answered or have expired"],
    extra: { retry_after_ms: FULL_RETRY_MS },
  });
}

/** While the store is away it is tried again: an approval for a call that never started must not be lost. */
const RESTORE_PAUSES_MS = [50, 250, 1_000, 5_000, 30_000, 60_000];

async function restored(approvals: Approvals, id: string, attempt = 0): Promise<void> {
  try {
    await approvals.restore(id);
  } catch {
    const pauseMs = RESTORE_PAUSES_MS[attempt];
    // The caller of the failed call does not wait for the store.
    if (pauseMs !== undefined) setTimeout(() => void restored(approvals, id, attempt + 1), pauseMs).unref();
  }
}

/** A denial counts for the caller's own limits: without that, attempts would be free. */
async function refused({ gate, policy, proposed }: Deciding, verdict: CheckResult): Promise<Decision> {
  return chargedRefusal(gate, policy, proposed, verdict);
}

/** Also for refusals from outside the gate, such as invalid arguments or an unknown tool. */
export async function chargedRefusal(
  { limits }: Pick<GateParts, "limits">,
  policy: { hash: string },
  { principal, target }: { principal: Principal; target: Pick<CallTarget, "name"> },
  verdict: CheckResult,
): Promise<Decision> {
  const taken = await limits.take(principal, target, 0, "refusal");
  if ("denied" in taken) return denyDecision(policy, taken.denied);
  taken.release();
  return denyDecision(policy, verdict);
}

export function denyDecision(policy: { hash: string }, verdict: CheckResult): Decision {
  return {
    effect: verdict.effect,
    rules: verdict.rules,
    reason: verdict.reason,
    verdict,
    policyHash: policy.hash,
    permit: undefined,
    observed: false,
    release: NOTHING,
  };
}

function broken(policy: PolicySet, error: unknown): Decision {
  const fault = asFault(error);
  if (fault.type === "InternalError" && fault !== error) {
    return denyDecision(
      policy,
      deny("PolicyDeny", "gate.error", `deciding failed: ${(error as Error)?.message ?? error}`),
    );
  }
  const { suggestions = [], extra } = fault.detail;
  return denyDecision(
    policy,
    deny(fault.type, "gate.error", fault.message, { suggestions, ...(extra ? { extra } : {}) }),
  );
}
