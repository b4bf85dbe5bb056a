// 2025-06-18: no batches any more, and the revision in a header on every HTTP request after the handshake.

import { COMMON_METHODS, HANDSHAKE_METHODS, type Revision } from "./revision.js";

export const REVISION_20250618: Revision = {
  name: "2025-06-18",
  era: "legacy",
  batches: false,
  versionHeader: true,
  resultType: false,
  structuredContent: true,
  serverRequests: true,
  methods: new Set([...COMMON_METHODS, ...HANDSHAKE_METHODS]),
};
