export type { Dialect, JsonSchema } from "./inclusion/document.js";
export {
  INCLUSION_LIMITS,
  type Inclusion,
  type InclusionLimits,
  type InclusionOptions,
  includes,
  type Validator,
} from "./inclusion/includes.js";
