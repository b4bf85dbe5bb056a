// 2025-03-26: Streamable HTTP arrives, with sessions and, in this revision alone, JSON-RPC batches.

import { COMMON_METHODS, HANDSHAKE_METHODS, type Revision } from "./revision.js";

export const REVISION_20250326: Revision = {
  name: "2025-03-26",
  era: "legacy",
  batches: true,
  versionHeader: false,
  resultType: false,
  structuredContent: false,
  serverRequests: true,
  methods: new Set([...COMMON_METHODS, ...HANDSHAKE_METHODS]),
};
