// What differs on the wire from one revision of MCP to the next, as data. The gateway asks these questions and
// never compares dates.

import type { Era } from "../errors.js";

export interface Revision {
  readonly name: string;
  readonly era: Era;
  /** JSON-RPC batches were in one revision only. */
  readonly batches: boolean;
  /** HTTP requests after the handshake must name the revision in a header. */
  readonly versionHeader: boolean;
  /** Results carry `resultType`, lists carry `ttlMs` and `cacheScope`. */
  readonly resultType: boolean;
  /** Results of tools may carry `structuredContent`. */
  readonly structuredContent: boolean;
  /** Requests from server to client exist; otherwise a call answers `input_required`. */
  readonly serverRequests: boolean;
  /** Methods a client may send, beyond those that every revision has. */
  readonly methods: ReadonlySet<string>;
}

export const COMMON_METHODS = [
  "tools/list",
  "tools/call",
  "tools/validate",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "prompts/list",
  "prompts/get",
  "completion/complete",
] as const;

export const HANDSHAKE_METHODS = [
  "initialize",
  "ping",
  "logging/setLevel",
  "resources/subscribe",
  "resources/unsubscribe",
] as const;
