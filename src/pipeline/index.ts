export { type Answer, call, callInside, toolResultOf } from "./call.js";
export { InputRequired, isLogLevel, MCP_LOG_LEVELS, type RunContext } from "./call-context.js";
export { CallsInFlight, Refusals } from "./calls-in-flight.js";
export { Cancel } from "./cancel.js";
export { sendClientRequest } from "./client-request.js";
export {
  decryptShared,
  encryptState,
  REQUEST_STATE_MS,
  requestStateId,
  type SharedKeys,
  StateCipher,
} from "./encrypted-state.js";
export {
  argumentsOf,
  clip,
  type Forwards,
  findTool,
  isOwnMeta,
  mayGet,
  mayRead,
  relayedBy,
  routeFor,
  stringField,
  visibleTool,
} from "./route.js";
export {
  type CallRequest,
  type ClientSession,
  type Conversation,
  DEFAULT_GATEWAY_LIMITS,
  type GatewayLimits,
  type Pipeline,
  RawResult,
  type Relayed,
  type Route,
  type RouteTable,
  SILENT,
} from "./types.js";
