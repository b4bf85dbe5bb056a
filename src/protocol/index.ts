export * from "./errors.js";
export * from "./json.js";
export * from "./jsonrpc.js";
export * from "./phases.js";
export * from "./revisions/index.js";
export * from "./sendable.js";
export * from "./shape/index.js";
