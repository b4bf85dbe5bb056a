// Connections from the gateway to downstream MCP servers, and the one outbound dialer.

export {
  allowanceFor,
  createDialer,
  createOutbound,
  type Dialer,
  type DialerOptions,
  type DialTarget,
  type Outbound,
} from "./dialer.js";
export type { StandingRule } from "./pins/difference.js";
export { type Difference, PinKeeper, type PinMode } from "./pins/keeper.js";
export { causeOf } from "./process/cause.js";
export { ServerProcess } from "./process/server-process.js";
export { createS3Client, type S3Client, type S3Options } from "./s3.js";
export * from "./types.js";
export { createUpstream } from "./upstream.js";
