// What differs on the wire from one revision of MCP to the next, as data. The gateway reads this table and never compares
// dates.

import type { Era } from "./errors.js";

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
  /** Methods a client may send. */
  readonly methods: ReadonlySet<string>;
}

const COMMON_METHODS = [
  "tools/list",
  "tools/call",
  "tools/validate",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "prompts/list",
  "prompts/get",
  "completion/complete",
];
const HANDSHAKE_METHODS = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/** The revisions with a handshake and sessions. */
function legacy(name: string, differs: Partial<Revision> = {}): Revision {
  return {
    name,
    era: "legacy",
    batches: false,
    versionHeader: true,
    resultType: false,
    structuredContent: true,
    serverRequests: true,
    methods: new Set([...COMMON_METHODS, ...HANDSHAKE_METHODS]),
    ...differs,
  };
}

/**
 * No handshake and no session. Every request names its revision and what its client can do in `_meta`; a server asks by
 * answering `input_required`; lists state how long they hold.
 */
export const MODERN: Revision = {
  name: "2026-07-28",
  era: "modern",
  batches: false,
  versionHeader: true,
  resultType: true,
  structuredContent: true,
  serverRequests: false,
  methods: new Set([...COMMON_METHODS, "server/discover", "subscriptions/listen"]),
};

/** Newest first. 2025-03-26 introduced Streamable HTTP and alone has batches. */
export const LEGACY: readonly Revision[] = [
  legacy("2025-11-25"),
  legacy("2025-06-18"),
  legacy("2025-03-26", { batches: true, versionHeader: false, structuredContent: false }),
];
export const REVISIONS: readonly Revision[] = [MODERN, ...LEGACY];
export const SUPPORTED_VERSIONS: readonly string[] = REVISIONS.map((revision) => revision.name);

/** A client that sends no revision at all over HTTP predates the header. */
export const ASSUMED: Revision = LEGACY.at(-1) as Revision;

/** Entries of `_meta` in 2026-07-28. */
export const META = {
  protocolVersion: "io.modelcontextprotocol/protocolVersion",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  logLevel: "io.modelcontextprotocol/logLevel",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscriptionId: "io.modelcontextprotocol/subscriptionId",
} as const;

const byName = new Map(REVISIONS.map((revision) => [revision.name, revision]));

export function revisionNamed(name: string | undefined): Revision | undefined {
  return name === undefined ? undefined : byName.get(name);
}

/** `negotiate` answers a handshake with the revision asked for when it is known, otherwise with the newest of its era. */
export function negotiate(asked: unknown): Revision {
  const known = typeof asked === "string" ? byName.get(asked) : undefined;
  return known && known.era === "legacy" ? known : (LEGACY[0] as Revision);
}
