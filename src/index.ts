// The whole package through one door. Import a subpath (`portcullis/client`, `portcullis/server`, …) to load less.

export { type Ledger, openLedger, prove, verify } from "./ledger/index.js";
export * from "./mcp/client/index.js";
export { defineTool } from "./mcp/server/index.js";
export {
  canonicalize,
  contentId,
  createGate,
  type Gate,
  type GateOptions,
  loadPolicy,
  MemoryApprovals,
} from "./policy/index.js";
export { createServer, permitAll, Server } from "./server.js";
