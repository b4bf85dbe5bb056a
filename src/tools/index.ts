// The core tools: modules that plug in for one application at a time.

export { type CoreApplication, type CoreServices, CoreSettingsError } from "./application.js";
export { coreChecks, coreTools } from "./core-tools.js";
export { hostCheckResult, hostFault, outputProgress } from "./host/adapter.js";
export { hostPolicyParts, type SharedDirectory, sharedDirectories } from "./host/policy.js";
export type { LlmSettings, UsageRecord } from "./llm/settings.js";
export { repositoryDirectory, type StateSettings } from "./state/settings.js";
export {
  applicationValues,
  historyOf,
  type RuntimeValue,
  type RuntimeValues,
  type StoredHistory,
} from "./state/stored.js";
