// What goes with every request in each era: 2026-07-28 says everything again in `_meta` (and, on HTTP, in headers);
// the handshake revisions said it once and only name the session.

import { type Era, isJsonObject, type JsonObject, META } from "../index.js";
import type { Implementation, LogLevel } from "../server/index.js";
import { standardHeaders } from "./headers.js";
import { factsOf, MODERN_NAME, type RevisionName } from "./revision.js";

interface Framed {
  params: JsonObject;
  headers: Record<string, string>;
}

export interface WireDialect {
  readonly era: Era;
  readonly revision: RevisionName;
  frame(method: string, params: JsonObject): Framed;
  /** Headers of anything that is no request: notifications, answers, GET and DELETE. */
  plainHeaders(): Record<string, string>;
}

export interface ModernTerms {
  clientInfo: Implementation;
  capabilities: JsonObject;
  logLevel: () => LogLevel | undefined;
  http: boolean;
}

export function modernDialect(terms: ModernTerms): WireDialect {
  const own = {
    [META.protocolVersion]: MODERN_NAME,
    [META.clientInfo]: terms.clientInfo as JsonObject,
    [META.clientCapabilities]: terms.capabilities,
  };
  return {
    era: "modern",
    revision: MODERN_NAME,
    frame(method, params) {
      const level = terms.logLevel();
      const _meta: JsonObject = {
        ...(isJsonObject(params._meta) ? params._meta : {}),
        ...own,
        ...(level === undefined ? {} : { [META.logLevel]: level }),
      };
      return { params: { ...params, _meta }, headers: terms.http ? standardHeaders(MODERN_NAME, method, params) : {} };
    },
    plainHeaders: () => ({ "mcp-protocol-version": MODERN_NAME }),
  };
}

export interface WireSession {
  revision: RevisionName;
  /** Given by an HTTP server with its answer to `initialize`; absent where the server keeps no sessions. */
  id?: string;
}

export function handshakeDialect(session: WireSession): WireDialect {
  const plainHeaders = (): Record<string, string> => ({
    ...(factsOf(session.revision).versionHeader ? { "mcp-protocol-version": session.revision } : {}),
    ...(session.id === undefined ? {} : { "mcp-session-id": session.id }),
  });
  return {
    era: "legacy",
    revision: session.revision,
    frame: (_method, params) => ({ params, headers: plainHeaders() }),
    plainHeaders,
  };
}
