export * from "./errors.js";
export * from "./json.js";
export * from "./jsonrpc.js";
