// 2025-11-25: URL elicitation, input validation failures as tool results, event streams that may be polled.

import { COMMON_METHODS, HANDSHAKE_METHODS, type Revision } from "./revision.js";

export const REVISION_20251125: Revision = {
  name: "2025-11-25",
  era: "legacy",
  batches: false,
  versionHeader: true,
  resultType: false,
  structuredContent: true,
  serverRequests: true,
  methods: new Set([...COMMON_METHODS, ...HANDSHAKE_METHODS]),
};
