export * from "./applications/index.js";
export { CallsInFlight } from "./calls-in-flight.js";
export { Endpoint } from "./endpoint.js";
export { createGateway, type GatewayOptions, toolSummaries } from "./gateway.js";
export { Post } from "./post/post.js";
export { Seal } from "./seal.js";
export { DEFAULT_GATEWAY_LIMITS, type Gateway, type GatewayLimits } from "./types.js";
