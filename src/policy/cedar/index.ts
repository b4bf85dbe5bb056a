export { type CaseResult, parseCases, type PolicyCase, runCases } from "./cases.js";
export { METHODS, SERVER_REQUESTS, type ServerRequestMethod } from "./catalog.js";
export { type DecisionChange, diffPolicies, type PolicyDiff, type RuleChange } from "./diff.js";
export { type GrantPolicy, grantPolicy, type GrantPolicyOptions, type PolicyGrant } from "./grants.js";
export { loadPolicyFiles, type PolicyFileLimits, readPolicyFiles } from "./files.js";
export { loadPolicy, loadPolicyInSlices, type LoadPolicyOptions, noPolicy } from "./load.js";
export { REDACTION_NAMES, redactionPattern } from "./obligations.js";
export { type ObservedCall, suggestPolicy } from "./suggest.js";
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
} from "./types.js";
export { permitForServer, serverAgent, serverRequest, type ServerRequestParts } from "./server-request.js";
