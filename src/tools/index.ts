// The core tools: modules that plug in for one application at a time.

export { type CoreApplication, type CoreServices, CoreSettingsError } from "./application.js";
export { coreTools } from "./core-tools.js";
export { hostPolicyParts } from "./host/policy.js";
export { type SharedDirectory, sharedDirectories } from "./host/overlap.js";
export type { LlmSettings, UsageRecord } from "./llm/settings.js";
export { repositoryDirectory, type StateSettings } from "./state/settings.js";
export { historyOf, type StoredHistory } from "./state/stored-history.js";
export { type RuntimeValue, type RuntimeValues, valuesOf } from "./state/values.js";
export { coreCheck } from "./check.js";
