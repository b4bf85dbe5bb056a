export {
  CallsInFlight,
  DEFAULT_GATEWAY_LIMITS,
  type GatewayLimits,
  REQUEST_STATE_MS,
  requestStateId,
  type SharedKeys,
  StateCipher,
} from "../pipeline/index.js";
export type { ServedApplication } from "./application.js";
export type {
  ApplicationServices,
  CoreTools,
  DefinitionPins,
  Gateway,
  InProcessApplication,
} from "./application-types.js";
export { Applications, type ApplicationsOptions } from "./applications.js";
export { deferredUpstream, type ObserveRequest } from "./deferred.js";
export { Endpoint } from "./endpoint.js";
export { createGateway, type GatewayOptions, toolSummaries } from "./gateway.js";
export { CallReader } from "./history.js";
export { PolicyCache } from "./policies.js";
export { ReplicaBus } from "./replicas/bus.js";
export { storedSessions } from "./sessions.js";
export { sharedLimits } from "./shared-limits.js";
export { TenantRouter, type TenantRouterOptions } from "./tenant-router.js";
export { matcher } from "./upstream-handle.js";
