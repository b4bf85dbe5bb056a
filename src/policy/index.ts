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
export {
  canonicalize,
  contentId,
  type Intent,
  intentArguments,
  intentForwarded,
  makeIntent,
  NOTHING_FORWARDED,
} from "./intent.js";
export {
  type DelegationProblem,
  DelegationRefused,
  type HopBlock,
  type RootBlock,
  type UseBlock,
} from "./delegation/block.js";
export {
  type ChainOptions,
  ChainReader,
  type DelegationChain,
  type DelegationRules,
  type RuleAnswer,
} from "./delegation/chain.js";
export {
  type DelegationKeys,
  exportDelegationKeys,
  generateDelegationKeys,
  importDelegationKeys,
} from "./delegation/keys.js";
export {
  type HandOn,
  handOnDelegation,
  mintDelegation,
  type MintOptions,
  spendDelegation,
  type Spending,
  takeDelegationAcross,
} from "./delegation/token.js";
export { delegationCheck, type SharedNonces } from "./delegation/check.js";
export { type Decision, decide, type GateParts, denyDecision, type Check } from "./decide.js";
export {
  type CheckFile,
  type LoadedCheck,
  type PolicyRefusal,
  type PolicySwap,
  type PolicyWatcher,
  type Reload,
  watchPolicy,
  withChecks,
} from "./reload.js";
export { createGate, type Gate, type GateOptions } from "./gate.js";
export {
  CallbackRunner,
  guardrailAgent,
  type Guardrail,
  type GuardrailCall,
  type GuardrailCallback,
  type GuardrailProof,
} from "./guardrails.js";
export { type Halt, Halts, type HaltTarget } from "./halts.js";
export { type Limit, Limits, type SharedLimits, type TokenRate } from "./limits.js";
export { type PermitGrant, Permit } from "./permit.js";
export {
  type CaseResult,
  type DecisionChange,
  diffPolicies,
  parseCases,
  type PolicyCase,
  type PolicyDiff,
  type RuleChange,
  runCases,
} from "./cedar/cases.js";
export {
  METHODS,
  permitForServer,
  SERVER_REQUESTS,
  serverAgent,
  serverRequest,
  type ServerRequestMethod,
  type ServerRequestParts,
} from "./cedar/catalog.js";
export { type GrantPolicy, grantPolicy, type GrantPolicyOptions, type PolicyGrant } from "./cedar/grants.js";
export { type PolicyFileLimits, readPolicyFiles } from "./cedar/source.js";
export { loadPolicy, loadPolicyFiles, loadPolicyInSlices, type LoadPolicyOptions, noPolicy } from "./cedar/load.js";
export { REDACTION_NAMES, redactionPattern } from "./cedar/annotations.js";
export { type ObservedCall, suggestPolicy } from "./cedar/suggest.js";
export {
  type DecidingPart,
  describeProblem,
  type ExplainedRule,
  type ExplainedValue,
  type Explanation,
  type Obligation,
  type Outlook,
  type OutlookRequest,
  type PolicyDecision,
  PolicyInvalid,
  type PolicyProblem,
  type PolicyRequest,
  type PolicyResource,
  type PolicyRule,
  type PolicySet,
  type PolicySource,
  type PolicyText,
  type ResourceType,
  type ToolSummary,
} from "./cedar/types.js";
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
export { applyObligations, applyToFault, applyToText, applyToValue, cutText, mustBuffer } from "./obligations.js";
