// From a manifest to code that compiles: one intermediate form, one target for each language.

export { buildContract, type Contract, type ContractOptions, type Side, type ToolContract } from "./contract.js";
export { CodegenError, type CodegenErrorCode } from "./errors.js";
export { type CodegenLimits, DEFAULT_CODEGEN_LIMITS } from "./limits.js";
export type { Report } from "./report.js";
