export {
  type ApprovalLimits,
  type ApprovalOptions,
  type Approvals,
  type Approver,
  ApprovalRefused,
  type Challenge,
  type ChallengeState,
  type ChallengeSummary,
  MemoryApprovals,
  StoredApprovals,
} from "./approvals.js";
export { type ChallengeFilter, type ChallengeStore } from "./challenges.js";
export { canonicalize } from "./canonical.js";
export { contentId } from "./content-id.js";
export * from "./delegation/index.js";
export { type Decision, decide, type GateParts, denyDecision, type Check } from "./decide.js";
export { type CheckFile, type LoadedCheck, withChecks } from "./check-file.js";
export { createGate, type Gate, type GateOptions } from "./gate.js";
export {
  CallbackRunner,
  guardrailAgent,
  type Guardrail,
  type GuardrailCall,
  type GuardrailCallback,
  type GuardrailToken,
} from "./guardrails.js";
export { type Intent, intentArguments, intentForwarded, makeIntent, NOTHING_FORWARDED } from "./intent.js";
export { type Limit, Limits, type SharedLimits, type TokenRate } from "./limits.js";
export { type PermitGrant, Permit } from "./permit.js";
export * from "./cedar/index.js";
export {
  deny,
  type Effect,
  PERMIT,
  type Principal,
  type PolicyInput,
  type Rule,
  type CallTarget,
  type CheckResult,
} from "./types.js";
export { type PendingPolicy, RecordedPolicy } from "./recorded-policy.js";
export { type PolicyRefusal, type PolicySwap, type PolicyWatcher, type Reload, watchPolicy } from "./reload.js";
export { applyObligations, applyToFault, applyToText, applyToValue, cutText, mustBuffer } from "./obligations.js";
