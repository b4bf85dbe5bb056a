// Connections from the gateway to downstream MCP servers, and the one outbound dialer.

export { allowanceFor, createDialer, type Dialer, type DialerOptions, type DialTarget } from "./dialer.js";
export { createOutbound, type Outbound } from "./outbound.js";
export { createS3Client, type S3Client, type S3Options } from "./s3.js";
export { ServerProcess } from "./process/server-process.js";
export type { Difference, PinMode } from "./pins/keeper.js";
export { PinKeeper } from "./pins/keeper.js";
export type { StandingRule } from "./pins/rules.js";
export * from "./types.js";
export { createUpstream } from "./upstream.js";
