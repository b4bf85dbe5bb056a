export {
  type ApprovalLimits,
  type ApprovalOptions,
  ApprovalRefused,
  type Approvals,
  type Approver,
  type Challenge,
  type ChallengeState,
  type ChallengeSummary,
  MemoryApprovals,
  StoredApprovals,
} from "./approvals.js";
export { REDACTION_NAMES, redactionPattern } from "./cedar/annotations.js";
export {
  type CaseResult,
  type DecisionChange,
  diffPolicies,
  type PolicyCase,
  type PolicyDiff,
  parseCases,
  type RuleChange,
  runCases,
} from "./cedar/cases.js";
export {
  METHODS,
  permitForServer,
  SERVER_REQUESTS,
  type ServerRequestMethod,
  type ServerRequestParts,
  serverAgent,
  serverRequest,
} from "./cedar/catalog.js";
export { type GrantPolicy, type GrantPolicyOptions, grantPolicy, type PolicyGrant } from "./cedar/grants.js";
export { type LoadPolicyOptions, loadPolicy, loadPolicyFiles, loadPolicyInSlices, noPolicy } from "./cedar/load.js";
export { type PolicyFileLimits, readPolicyFiles } from "./cedar/source.js";
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
export { type ChallengeFilter, type ChallengeStore } from "./challenges.js";
export { type Check, type Decision, decide, denyDecision, type GateParts } from "./decide.js";
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
export { delegationCheck, type SharedNonces } from "./delegation/check.js";
export {
  type DelegationKeys,
  exportDelegationKeys,
  generateDelegationKeys,
  importDelegationKeys,
} from "./delegation/keys.js";
export {
  type HandOn,
  handOnDelegation,
  type MintOptions,
  mintDelegation,
  type Spending,
  spendDelegation,
  takeDelegationAcross,
} from "./delegation/token.js";
export {
  DEFAULT_FLOW_LIMITS,
  FlowMemory,
  type FlowReaders,
  InformationFlow,
  isFlowTarget,
  NO_FLOW,
} from "./flow/flow.js";
export type { FlowLabels } from "./flow/labels.js";
export { flowRules } from "./flow/rules.js";
export { suggestFlow } from "./flow/suggest.js";
export { createGate, type Gate, type GateOptions } from "./gate.js";
export {
  CallbackRunner,
  type Guardrail,
  type GuardrailCall,
  type GuardrailCallback,
  type GuardrailProof,
  guardrailAgent,
} from "./guardrails.js";
export { type Halt, Halts, type HaltTarget } from "./halts.js";
export {
  type CallEvent,
  type CallFacts,
  CallHistory,
  type HistoryWanted,
  recordedField,
} from "./history/calls.js";
export { PastCalls, type PastCondition } from "./history/past.js";
export {
  canonicalize,
  contentId,
  type Intent,
  intentArguments,
  intentForwarded,
  makeIntent,
  NOTHING_FORWARDED,
} from "./intent.js";
export { type Limit, Limits, type SharedLimits, type TokenRate } from "./limits.js";
export { applyObligations, applyToFault, applyToText, applyToValue, cutText, mustBuffer } from "./obligations.js";
export { Permit, type PermitGrant } from "./permit.js";
export { type PendingPolicy, RecordedPolicy } from "./recorded-policy.js";
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
export {
  type CallTarget,
  type CheckResult,
  deny,
  type Effect,
  PERMIT,
  type PolicyInput,
  type Principal,
  type Rule,
} from "./types.js";
