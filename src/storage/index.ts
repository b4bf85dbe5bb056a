export {
  type ApplicationDocument,
  type ApplicationKeyEntry,
  type ApplicationLimits,
  applicationFields,
  applicationProblems,
  type GuardrailEntry,
  type RateEntry,
  type RouteEntry,
  type SandboxEntry,
  type ServerAuth,
  type ServerEntry,
} from "./application.js";
export {
  clearCredentials,
  hasCredentialForm,
  hideCredentials,
  isCredentialHeader,
  isCredentialName,
  replaceCredentials,
} from "./credentials/hide.js";
export {
  type CredentialSpan,
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  replaceSpans,
} from "./credentials/spans.js";
export { readDump } from "./dump.js";
export { CHANGES_AT_ONCE } from "./feed.js";
export { flowShape } from "./flow-entry.js";
export type { StoreOperation } from "./open.js";
export { openStorage, type StorageOptions } from "./open.js";
export {
  createSealer,
  loadSealKeys,
  newSealKey,
  type SealedAs,
  type Sealer,
  type SealKeyOptions,
  sealKeyFile,
  sealKeyId,
  writeSealKeys,
} from "./seal.js";
export { type StorageCode, StorageError } from "./sql.js";
export { isCredentialChange } from "./tables/keys.js";
export type * from "./types.js";
