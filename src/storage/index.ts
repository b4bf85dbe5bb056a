export {
  type ApplicationDocument,
  applicationFields,
  type ApplicationLimits,
  applicationProblems,
  type ApplicationKeyEntry,
  type RateEntry,
  type RouteEntry,
  type ServerAuth,
  type GuardrailEntry,
  type ServerEntry,
} from "./application.js";
export { clearCredentials, hideCredentials, replaceCredentials } from "./credentials/hide.js";
export { hasCredentialForm, isCredentialHeader, isCredentialName } from "./credentials/hide.js";
export {
  credentialsInArguments,
  credentialsInText,
  credentialsInUrl,
  replaceSpans,
  type CredentialSpan,
} from "./credentials/spans.js";
export { readDump } from "./dump.js";
export { type StorageCode, StorageError } from "./sql.js";
export { CHANGES_AT_ONCE } from "./feed.js";
export type { StoreOperation } from "./open.js";
export { openStorage, type StorageOptions } from "./open.js";
export { createSealer, type SealedAs, type Sealer, sealKeyId } from "./seal.js";
export { loadSealKeys, newSealKey, sealKeyFile, type SealKeyOptions, writeSealKeys } from "./seal.js";
export type * from "./types.js";
