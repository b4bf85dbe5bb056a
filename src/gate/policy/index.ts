export { METHODS } from "./catalog.js";
export { loadPolicy, noPolicy } from "./load.js";
export { REDACTION_NAMES, redactionPattern } from "./obligations.js";
export {
  type DecidingPart,
  describeProblem,
  type ExplainedRule,
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
