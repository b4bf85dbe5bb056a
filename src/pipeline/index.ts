export { InputRequired, type RunContext } from "./call-context.js";
export { type Answer, call, callInside } from "./call.js";
export { CallsInFlight } from "./calls-in-flight.js";
export { Cancel } from "./cancel.js";
export { askClient } from "./client-request.js";
export { REQUEST_STATE_MS, requestStateId, StateCipher } from "./encrypted-state.js";
export { encryptState, type SharedKeys, unlockShared } from "./encryption.js";
export { type Forwards, isOwnMeta } from "./forward.js";
export { serverCapabilitiesOf, introduce } from "./introduction.js";
export { type DocumentKind, LIST_METHODS, type ListMethod, Lists } from "./lists.js";
export { LOG_LEVELS, isLogLevel } from "./log-levels.js";
export { Refusals } from "./refusals.js";
export { argumentsOf, clip, findTool, relayedBy, routeFor, stringField, visibleTool } from "./route.js";
export {
  type Conversation,
  DEFAULT_GATEWAY_LIMITS,
  type Gateway,
  type GatewayLimits,
  RawResult,
  type Relayed,
  type Route,
  SILENT,
} from "./types.js";
