// The decision: policy, guardrails, limits and further checks, the worst answer wins. An error while deciding is a deny.
// Only here is a permit minted, and only with a guardrail token.

import { asFault, type JsonObject } from "../mcp/index.js";
import { type ApprovalLimits, type Approvals, ApprovalsFull, type Challenge } from "./approvals.js";
import type { Obligation, PolicyDecision, PolicySet } from "./cedar/types.js";
import { describeFindings, type FlowFacts, type FlowFinding, type InformationFlow, isFlowTarget } from "./flow/flow.js";
import { type CallbackRunner, type GuardrailAnswer, type GuardrailProof, MISSING_GUARDRAIL } from "./guardrails.js";
import type { Halts } from "./halts.js";
import type { CallHistory, HistoryCall } from "./history/calls.js";
import { type Intent, intentForwarded } from "./intent.js";
import type { Counted, Limits } from "./limits.js";
import { Permit } from "./permit.js";
import {
  type CallTarget,
  type CheckResult,
  deny,
  type Effect,
  type PolicyInput,
  type Principal,
  type Rule,
} from "./types.js";

export interface Decision {
  readonly effect: Effect;
  readonly rules: readonly Rule[];
  readonly reason: string;
  /** The result that decided, with what the caller is told besides the reason. */
  readonly result: CheckResult;
  readonly policyHash: string;
  /** Present exactly when the call may run (which under `observe` includes calls that policy would not allow). */
  readonly permit: Permit | undefined;
  readonly challenge?: Challenge;
  /** True when this decision opened the challenge, which then has to be recorded before the caller learns of it. */
  readonly challengeIsNew?: boolean;
  readonly observed: boolean;
  /** The approval that was redeemed for this permit; it has to be on record before the call runs. */
  readonly redeemed?: Challenge;
  /**
   * Set where an approval was redeemed for this permit: gives the approval back. To be called when the call was never
   * started; once, and by the holder of the permit alone. Never throws.
   */
  readonly restoreApproval?: () => Promise<void>;
  /** The call in the history that rules over past calls are evaluated on. */
  readonly past?: HistoryCall;
  /** Gives back what the limits hold; call it when the work is over. */
  readonly release: (resultBytes?: number) => void;
}

/** One more check, such as the host's own policy. */
export type Check = (input: PolicyInput, intent: Intent) => CheckResult | Promise<CheckResult>;

export interface GateParts {
  /** The policy in force; read once per call, so every call is decided under one hash. */
  policy: () => PolicySet;
  guardrails: CallbackRunner;
  limits: Limits;
  approvals: Approvals;
  approvalLimits: ApprovalLimits;
  checks: readonly Check[];
  /** Information flow: facts for rules, where the application has labels. */
  flow?: InformationFlow | undefined;
  /** The past calls that rules are about. */
  history: CallHistory;
  /** What an operator has halted: enforced whatever policy says, also where policy is only observed. */
  halts?: Pick<Halts, "check"> | undefined;
  observe: boolean;
}

const NOTHING = (): void => {};

/** One call as it is decided. */
interface Deciding {
  readonly gate: GateParts;
  readonly policy: PolicySet;
  readonly input: PolicyInput;
  readonly intent: Intent;
  readonly counted: Counted;
  readonly flow: FlowKnown | undefined;
  readonly past: HistoryCall | undefined;
}

interface FlowKnown {
  readonly facts: FlowFacts;
  readonly findings: readonly FlowFinding[];
}

/** `waited`: this very call waited for its approval, and the limits have counted it before. */
export function decide(
  gate: GateParts,
  input: PolicyInput,
  intent: Intent,
  waited = false,
): Decision | Promise<Decision> {
  const { history } = gate;
  if (!history.concerns(input)) return decideWith(gate, input, intent, waited, undefined);
  return history.inTurn(() => {
    const past = history.begin(input);
    const remembered = (decision: Decision): Decision => {
      past.decided(decision);
      return { ...decision, past };
    };
    const decided = decideWith(gate, input, intent, waited, past);
    return decided instanceof Promise ? decided.then(remembered) : remembered(decided);
  });
}

function decideWith(
  gate: GateParts,
  input: PolicyInput,
  intent: Intent,
  waited: boolean,
  past: HistoryCall | undefined,
): Decision | Promise<Decision> {
  const policy = gate.policy();
  try {
    const flow = isFlowTarget(input.target) ? gate.flow?.facts(input) : undefined;
    const deciding: Deciding = { gate, policy, input, intent, counted: waited ? "repeat" : "call", flow, past };
    const unknowable = past && gate.history.refusal(input);
    if (unknowable) return denied(deciding, unknowable).catch((error) => denyOnError(policy, error));
    const halted = gate.halts?.check(input);
    if (halted) return denied(deciding, halted).catch((error) => denyOnError(policy, error));
    const answer = input.target.builtin ? builtinAnswer(input) : evaluatePolicy(deciding, []);
    const checked = input.target.builtin ? NO_RULES : check(deciding, 0, NO_RULES);
    const decided =
      checked instanceof Promise ? checked.then((c) => within(deciding, answer, c)) : within(deciding, answer, checked);
    return decided instanceof Promise ? decided.catch((error) => denyOnError(policy, error)) : decided;
  } catch (error) {
    return denyOnError(policy, error);
  }
}

const NO_RULES: readonly Rule[] = [];

/** The rules of all further checks, or the denial of the first that denies; waits only for a check that takes time. */
function check(deciding: Deciding, from: number, rules: readonly Rule[]): Checked | Promise<Checked> {
  const { gate, policy, input, intent } = deciding;
  const own = gate.checks.length;
  const count = own + (policy.checks?.length ?? 0);
  let all = rules;
  for (let i = from; i < count; i++) {
    const next = i < own ? gate.checks[i] : policy.checks?.[i - own]?.check;
    const result = (next as Check)(input, intent);
    if ("then" in result) {
      const before = all;
      return Promise.resolve(result).then((late) =>
        late.effect === "deny" ? late : check(deciding, i + 1, [...before, ...late.rules]),
      );
    }
    if (result.effect === "deny") return result;
    if (result.rules.length > 0) all = [...all, ...result.rules];
  }
  return all;
}

/** What the checks add to the rules, or the denial of one. */
type Checked = readonly Rule[] | CheckResult;

function within(deciding: Deciding, answer: PolicyDecision, checked: Checked): Decision | Promise<Decision> {
  const { gate, input, intent } = deciding;
  if ("effect" in checked) return denied(deciding, checked);
  if (answer.effect === "deny" && !gate.observe) return denied(deciding, policyResult(answer));
  const guarded = gate.guardrails.run(input.principal, input.target, intent);
  const decision =
    guarded instanceof Promise
      ? guarded.then((g) => finalize(deciding, answer, g))
      : finalize(deciding, answer, guarded);
  if (checked.length === 0) return decision;
  return decision instanceof Promise ? decision.then((d) => withRules(d, checked)) : withRules(decision, checked);
}

function withRules(decision: Decision, rules: readonly Rule[]): Decision {
  return decision.permit ? { ...decision, rules: [...decision.rules, ...rules] } : decision;
}

function finalize(deciding: Deciding, answer: PolicyDecision, guarded: GuardrailAnswer): Decision | Promise<Decision> {
  const { gate, policy, input, intent } = deciding;
  let token = "token" in guarded ? guarded.token : undefined;
  const missing = "blocked" in guarded && guarded.blocked.rules[0]?.id === MISSING_GUARDRAIL;
  if (missing && gate.observe) token = gate.guardrails.observed(input.principal, intent);
  if (!token) return denied(deciding, (guarded as { blocked: CheckResult }).blocked);
  const { principal, target } = input;
  // Guardrails and checks may have taken a while.
  const halted = gate.halts?.check(input);
  if (halted) return denied(deciding, halted);
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
  return slot instanceof Promise ? slot.then(within).catch((error) => denyOnError(policy, error)) : within(slot);
}

/** What a call holds once it has passed guardrails and limits. */
interface Admitted {
  readonly token: GuardrailProof;
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
    const { gate, policy, input } = deciding;
    if (error instanceof ApprovalsFull) return denyDecision(policy, tooManyOpen(error.per, gate.approvalLimits, input));
    return denyOnError(policy, error);
  }
}

/** INVARIANT: the redemption is the last step of a decision, so that nothing decided here can waste it. */
async function approvedOr(deciding: Deciding, answer: PolicyDecision, admitted: Admitted): Promise<Decision> {
  const { gate, policy, input, intent, flow } = deciding;
  const { principal, method, target } = input;
  const unreadable = tooLongToRead(gate.approvalLimits, intent);
  if (unreadable) return denyDecision(policy, unreadable);
  const { rules, approvers } = answer;
  const reason = describeFindings(answer.reason, flow?.findings ?? []);
  const { challenge, isNew } = await gate.approvals.open(
    { principal, method, target, intent, rules, approvers, reason, policyHash: policy.hash },
    gate.approvalLimits,
  );
  if (challenge.state === "denied") return denyDecision(policy, deniedByApprover(challenge));
  if (challenge.state !== "approved") return pending(policy, answer, challenge, isNew);
  const again = evaluatePolicy(
    deciding,
    challenge.rules.map((rule) => rule.id),
  );
  if (again.effect !== "permit") return denyDecision(policy, policyResult(again));
  const decision = permitted(deciding, again, admitted);
  // A compare-and-set: of several identical retries exactly one continues from here.
  if (!(await gate.approvals.redeem(challenge.id))) return pending(policy, answer, challenge, isNew);
  return { ...decision, redeemed: challenge, restoreApproval: () => restored(gate.approvals, challenge.id) };
}

function permitted(deciding: Deciding, answer: PolicyDecision, { token, release, missing }: Admitted): Decision {
  const { gate, policy, input, intent } = deciding;
  const permit = Permit.mint(
    {
      intent,
      principal: input.principal,
      method: input.method,
      target: input.target,
      policyHash: policy.hash,
      obligations: answer.obligations,
    },
    token,
  );
  const unguarded = missing && answer.effect === "permit";
  return {
    effect: unguarded ? "deny" : answer.effect,
    // The record tells a deny because a guardrail is missing from one that a rule made.
    rules: unguarded ? [{ id: MISSING_GUARDRAIL }, ...answer.rules] : answer.rules,
    reason: answer.reason,
    result: policyResult(answer),
    policyHash: policy.hash,
    permit,
    observed: gate.observe,
    release,
  };
}

function evaluatePolicy(
  { policy, input, intent, flow, past }: Deciding,
  approvedRules: readonly string[],
): PolicyDecision {
  const { principal, target } = input;
  const { serverRequest } = target;
  const answer = policy.decide({
    app: principal.app,
    agent: principal.agent,
    scope: principal.scope,
    user: principal.user,
    groups: principal.groups,
    action: target.action,
    resource: {
      type: target.type,
      id: target.name,
      server: target.server,
      tags: target.tags,
      readOnly: target.readOnly,
      ...(serverRequest ? { scope: serverRequest.scope, user: serverRequest.user, groups: serverRequest.groups } : {}),
    },
    arguments: input.arguments as JsonObject,
    ...(intent.forwardedText === "{}" ? {} : { forwarded: intentForwarded(intent) }),
    ...(flow ? { flow: flow.facts } : {}),
    ...(past ? { history: (condition: number) => past.holds(condition) } : {}),
    ...(serverRequest ? { serverRequest: { server: target.server, tool: serverRequest.tool } } : {}),
    transport: input.transport,
    now: Date.now(),
    approvedRules,
  });
  const isSilent = answer.effect === "deny" && answer.rules.length === 0 && answer.errors.length === 0;
  return isSilent && serverRequest?.permittedUnlessForbidden ? builtinAnswer(input) : answer;
}

function builtinAnswer(input: PolicyInput): PolicyDecision {
  const rules = [{ id: `builtin.${input.method}`, file: "", line: 0 }];
  return { effect: "permit", rules, reason: "", approvers: [], obligations: [], errors: [] };
}

function policyResult(answer: PolicyDecision): CheckResult {
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
  const result: CheckResult = {
    effect: "challenge",
    rules: answer.rules,
    reason: answer.reason,
    type: "ChallengePending",
    approvers: answer.approvers,
    suggestions: ["It did not run. Once an approver has approved it, repeat the same call"],
    extra: { challenge: challenge.id, expires_at: new Date(challenge.expiresAt).toISOString() },
  };
  return { ...denyDecision(policy, result), challenge, challengeIsNew: isNew };
}

function deniedByApprover(challenge: Challenge): CheckResult {
  return deny("PolicyDeny", challenge.rules[0]?.id ?? "challenge", challenge.denyReason ?? "an approver denied it", {
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
const FIRST_RESTORE_PAUSE_MS = 50;
const LONGEST_RESTORE_PAUSE_MS = 2_000;
/** About an hour; requests expire before that by default. */
const MAX_RESTORE_TRIES = 1_800;

async function restored(approvals: Approvals, id: string, attempt = 0): Promise<void> {
  try {
    await approvals.restore(id);
  } catch {
    if (attempt === MAX_RESTORE_TRIES) return;
    const pauseMs = Math.min(LONGEST_RESTORE_PAUSE_MS, FIRST_RESTORE_PAUSE_MS * 2 ** Math.min(attempt, 10));
    // The caller of the failed call does not wait for the store.
    setTimeout(() => void restored(approvals, id, attempt + 1), pauseMs).unref();
  }
}

/** A denial counts for the caller's own limits: without that, attempts would be free. */
function denied({ gate, policy, input }: Deciding, denial: CheckResult): Promise<Decision> {
  return chargeDenial(gate, policy, input, denial);
}

/** Also for denials from outside the gate, such as invalid arguments or an unknown tool. */
export async function chargeDenial(
  { limits }: Pick<GateParts, "limits">,
  policy: { hash: string },
  { principal, target }: { principal: Principal; target: Pick<CallTarget, "name"> },
  denial: CheckResult,
): Promise<Decision> {
  const taken = await limits.take(principal, target, 0, "refusal");
  if ("denied" in taken) return denyDecision(policy, taken.denied);
  taken.release();
  return denyDecision(policy, denial);
}

export function denyDecision(policy: { hash: string }, result: CheckResult): Decision {
  const { effect, rules, reason } = result;
  return {
    effect,
    rules,
    reason,
    result,
    policyHash: policy.hash,
    permit: undefined,
    observed: false,
    release: NOTHING,
  };
}

function denyOnError(policy: PolicySet, error: unknown): Decision {
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
