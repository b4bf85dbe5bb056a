// From a manifest to code that compiles: one intermediate form, one target for each language.

export type { ContractOptions } from "./contract.js";
export { type Generated, generate, runtimeDirectory } from "./generate.js";
export type { CodegenLimits, Report } from "./report.js";
export { CodegenError, type CodegenErrorCode } from "./report.js";
export type { GeneratedFile, Runtime } from "./targets/target.js";
