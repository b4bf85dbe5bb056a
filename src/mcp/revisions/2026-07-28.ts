// 2026-07-28: no handshake and no session. Every request says in `_meta` which revision it speaks and what its
// client can do; a server asks by answering `input_required`; lists say how long they hold.

import { COMMON_METHODS, type Revision } from "./revision.js";

export const REVISION_20260728: Revision = {
  name: "2026-07-28",
  era: "modern",
  batches: false,
  versionHeader: true,
  resultType: true,
  structuredContent: true,
  serverRequests: false,
  methods: new Set([...COMMON_METHODS, "server/discover", "subscriptions/listen"]),
};

export const META = {
  protocolVersion: "io.modelcontextprotocol/protocolVersion",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  logLevel: "io.modelcontextprotocol/logLevel",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscriptionId: "io.modelcontextprotocol/subscriptionId",
} as const;
