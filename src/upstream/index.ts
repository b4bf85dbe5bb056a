// Connections from the gateway to downstream MCP servers, and the one outbound dialer.

export { createDialer, type Dialer, type DialerOptions, type DialTarget } from "./dialer.js";
export { createOutbound, type Outbound } from "./outbound.js";
export type { Difference, PinMode } from "./pins/keeper.js";
export { PinKeeper } from "./pins/keeper.js";
export type { StandingRule } from "./pins/rules.js";
export * from "./types.js";
export { createUpstream } from "./upstream.js";
