// The protocol: strict JSON, JSON-RPC, the table of errors, the revisions, byte budgets and the sharing of the main thread.

export * from "./byte-budget.js";
export * from "./errors.js";
export * from "./json.js";
export * from "./jsonrpc.js";
export * from "./loopback.js";
export * from "./revisions.js";
export * from "./shape.js";
export * from "./time.js";
