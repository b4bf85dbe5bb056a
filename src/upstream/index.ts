// Connections from the gateway to downstream MCP servers, and the one outbound dialer.

export type { Dialer } from "./dialer.js";
export { DEFAULT_UPSTREAM_LIMITS, DEFAULT_UPSTREAM_TIMEOUTS } from "./limits.js";
export * from "./types.js";
