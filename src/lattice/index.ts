export type { Dialect } from "../schema/documents/index.js";
export {
  BOTTOM,
  type Capability,
  type CapabilitySet,
  type Comparison,
  canSubstitute,
  capabilitiesOf,
  compareAuthority,
  compareSubstitutability,
  effective,
  hasAtMostAuthority,
  join,
  joinTypes,
  meet,
  meetTypes,
  TOP,
} from "./capability.js";
export { LatticeError, type LatticeErrorCode } from "./errors.js";
export type { SchemaValue as JsonSchema } from "./inclusion/document.js";
export {
  INCLUSION_LIMITS,
  type Inclusion,
  type InclusionLimits,
  type InclusionOptions,
  type InclusionValidator,
  includes,
  includesType,
  isEmpty,
} from "./inclusion/includes.js";
export { toSchema, typeOf, type ValueType } from "./inclusion/type.js";
export { tell } from "./report/picture.js";
export { toSvg } from "./report/svg.js";
export { type SarifOptions, toDot, toJson, toMermaid, toSarif } from "./report/text.js";
export { ANALYSIS_LIMITS, Analysis, type AnalysisOptions, analyse, type WorkflowChange } from "./workflow/analyse.js";
export { DelegationCheck, type DelegationGraph, type NumberedChange, words } from "./workflow/delegation-check.js";
export {
  type CapabilityGrant,
  type Delegation,
  findCycle,
  type RuleEvidence,
  type RuleTerm,
  type Violation,
  violationKey,
  type Workflow,
  type WorkflowAgent,
  type WorkflowRule,
} from "./workflow/model.js";
export { type ParseOptions, parseWorkflow } from "./workflow/parse.js";
