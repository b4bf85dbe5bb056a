export { isNetworkType, isWithin, type Mount, mountOf, mountsBetween, readMounts } from "./mounts.js";
export {
  type JailRules,
  locate,
  type LocatedPath,
  type OpeningMethod,
  openingMethod,
  type LocatedPlace,
  useOpeningMethod,
} from "./locate.js";
export { absolutePath, expandTilde } from "./path-text.js";
export { findPortableTarget, writePortable } from "./portable-write.js";
export { ioDenial, type OpenFile, openForRead, readBytes, type ReadRules } from "./read.js";
export { findTarget, type PathTarget, type Zone } from "./target.js";
export { type Written, writeTarget } from "./write.js";
