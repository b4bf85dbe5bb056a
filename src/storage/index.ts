export {
  type ApplicationDocument,
  ApplicationInvalid,
  type ApplicationLimits,
  applicationProblems,
  applicationShape,
  checkApplication,
  type KeyEntry,
  type RateEntry,
  type RouteEntry,
  type ServerAuth,
  type ServerEntry,
} from "./application.js";
export { type StorageCode, StorageError } from "./errors.js";
export { openStorage, type StorageOptions } from "./open.js";
export type * from "./types.js";
