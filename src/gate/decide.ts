// The decision: a meet of everything that has a say, worst answer wins. An error while deciding is a deny.
// Only here is a permit minted, and only with a guardrail token.

import { Fault, type JsonObject } from "../protocol/index.js";
import type { Approvals, Challenge } from "./approvals.js";
import { type CallbackRunner, type GuardrailAnswer, type GuardrailToken, MISSING_GUARDRAIL } from "./guardrails.js";
import type { Intent } from "./intent.js";
import type { Limits } from "./limits.js";
import { Permit } from "./permit.js";
import type { Obligation, PolicyDecision, PolicySet } from "./policy/index.js";
import { deny, type Effect, type Proposed, type Rule, type Verdict } from "./types.js";

export interface Decision {
  readonly effect: Effect;
  readonly rules: readonly Rule[];
  readonly reason: string;
  readonly verdict: Verdict;
  readonly policyHash: string;
  /** Present exactly when the call may run (which under `observe` includes calls that policy would not allow). */
  readonly permit: Permit | undefined;
  readonly challenge?: Challenge;
  /** True when this decision opened the challenge, which then has to be recorded before the caller hears of it. */
  readonly challengeIsNew?: boolean;
  readonly observed: boolean;
  /** Gives back what the limits hold; call it when the work is over. */
  readonly release: (resultBytes?: number) => void;
}

/** One more voice, such as the host's own policy. */
export type Voice = (proposed: Proposed, intent: Intent) => Verdict | Promise<Verdict>;

export interface GateParts {
  /** The policy in force; read once per call, so every call is decided under one hash. */
  policy: () => PolicySet;
  guardrails: CallbackRunner;
  limits: Limits;
  approvals: Approvals;
  voices: readonly Voice[];
  observe: boolean;
}

const NOTHING = (): void => {};

export function decide(
  gate: GateParts,
  proposed: Proposed,
  intent: Intent,
  inputResponses?: unknown,
): Decision | Promise<Decision> {
  const policy = gate.policy();
  try {
    const answer = proposed.target.builtin ? builtinAnswer(proposed) : askPolicy(policy, proposed, []);
    if (answer.effect === "permit" && (gate.voices.length === 0 || proposed.target.builtin)) {
      const guarded = gate.guardrails.run(proposed.principal, proposed.target, intent);
      if (!(guarded instanceof Promise)) return conclude(gate, policy, proposed, intent, answer, guarded);
      return guarded
        .then((token) => conclude(gate, policy, proposed, intent, answer, token))
        .catch((error) => broken(policy, error));
    }
    return decideSlowly(gate, policy, proposed, intent, answer, inputResponses).catch((error) => broken(policy, error));
  } catch (error) {
    return broken(policy, error);
  }
}

async function decideSlowly(
  gate: GateParts,
  policy: PolicySet,
  proposed: Proposed,
  intent: Intent,
  first: PolicyDecision,
  inputResponses: unknown,
): Promise<Decision> {
  let answer = first;
  const voiced: Rule[] = [];
  for (const voice of gate.voices) {
    const verdict = await voice(proposed, intent);
    if (verdict.effect === "deny") return refuse(policy, verdict);
    voiced.push(...verdict.rules);
  }
  if (answer.effect === "challenge" && !gate.observe) {
    const { challenge, isNew } = await gate.approvals.open({
      principal: proposed.principal,
      method: proposed.method,
      target: proposed.target,
      intent,
      inputResponses,
      rules: answer.rules,
      approvers: answer.approvers,
      reason: answer.reason,
      policyHash: policy.hash,
    });
    if (challenge.state === "denied") return refuse(policy, deniedByPerson(challenge));
    // The redemption is a compare-and-set, so of several identical retries exactly one goes on from here.
    if (challenge.state !== "approved" || !(await gate.approvals.redeem(challenge.id))) {
      return pending(policy, answer, challenge, isNew);
    }
    answer = askPolicy(
      policy,
      proposed,
      challenge.rules.map((rule) => rule.id),
    );
  }
  const wouldRun = answer.effect === "permit" || gate.observe;
  if (!wouldRun) return refuse(policy, policyVerdict(answer));
  const guarded = await gate.guardrails.run(proposed.principal, proposed.target, intent);
  const decision = await conclude(gate, policy, proposed, intent, answer, guarded);
  return decision.permit && voiced.length > 0 ? { ...decision, rules: [...decision.rules, ...voiced] } : decision;
}

function conclude(
  gate: GateParts,
  policy: PolicySet,
  proposed: Proposed,
  intent: Intent,
  answer: PolicyDecision,
  guarded: GuardrailAnswer,
): Decision | Promise<Decision> {
  let token = "token" in guarded ? guarded.token : undefined;
  const missing = "blocked" in guarded && guarded.blocked.rules[0]?.id === MISSING_GUARDRAIL;
  if (missing && gate.observe) token = gate.guardrails.observed(proposed.principal, intent);
  if (!token) return refuse(policy, (guarded as { blocked: Verdict }).blocked);
  const { principal, target } = proposed;
  const slot = gate.limits.take(principal, target, target.builtin ? 0 : intent.argumentsText.length);
  const spent = token;
  const within = (taken: Awaited<typeof slot>): Decision =>
    "denied" in taken
      ? refuse(policy, taken.denied)
      : permitted(gate, policy, proposed, intent, answer, spent, taken.release, missing);
  return slot instanceof Promise ? slot.then(within).catch((error) => broken(policy, error)) : within(slot);
}

function permitted(
  gate: GateParts,
  policy: PolicySet,
  proposed: Proposed,
  intent: Intent,
  answer: PolicyDecision,
  token: GuardrailToken,
  release: Decision["release"],
  missing: boolean,
): Decision {
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

function askPolicy(policy: PolicySet, proposed: Proposed, approvedRules: readonly string[]): PolicyDecision {
  const { principal, target } = proposed;
  return policy.decide({
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
    },
    arguments: proposed.arguments as JsonObject,
    transport: proposed.transport,
    approvedRules,
  });
}

function builtinAnswer(proposed: Proposed): PolicyDecision {
  const rules = [{ id: `builtin.${proposed.method}`, file: "", line: 0 }];
  return { effect: "permit", rules, reason: "", approvers: [], obligations: [], errors: [] };
}

function policyVerdict(answer: PolicyDecision): Verdict {
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
  const verdict: Verdict = {
    effect: "challenge",
    rules: answer.rules,
    reason: answer.reason,
    type: "ChallengePending",
    approvers: answer.approvers,
    suggestions: ["It did not run. Once a person has approved it, repeat the same call"],
    extra: { challenge: challenge.id, expires_at: new Date(challenge.expiresAt).toISOString() },
  };
  return { ...refuse(policy, verdict), challenge, challengeIsNew: isNew };
}

function deniedByPerson(challenge: Challenge): Verdict {
  return deny("PolicyDeny", challenge.rules[0]?.id ?? "challenge", challenge.denyReason ?? "a person said no", {
    rules: challenge.rules,
    extra: { challenge: challenge.id, denied_by_person: true },
  });
}

export function refuse(policy: { hash: string }, verdict: Verdict): Decision {
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
  const reason = error instanceof Fault ? error.message : `deciding failed: ${(error as Error)?.message ?? error}`;
  const type = error instanceof Fault ? error.type : "PolicyDeny";
  return refuse(policy, deny(type, "gate.error", reason));
}
