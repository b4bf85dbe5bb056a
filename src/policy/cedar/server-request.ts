// A server's request to a client (sampling, elicitation, roots) as policy sees it: the server is the principal, the
// agent whose client would be asked is the resource.

import type { ServerRequestMethod } from "./catalog.js";
import { quoteString } from "./language/scan.js";
import type { PolicyRequest } from "./types.js";

export interface ServerRequestParts {
  readonly app: string;
  readonly server: string;
  readonly method: ServerRequestMethod;
  /** The agent whose client would be asked, and the scopes of its credential. */
  readonly agent: string;
  readonly scope: readonly string[];
  /** What the call in flight is about. */
  readonly tool: string;
}

/** The agent name under which a server appears in records, limits and approval requests; no credential can have it. */
export function serverAgent(server: string): string {
  return `server:${server}`;
}

export function serverRequest(
  parts: ServerRequestParts,
): Pick<PolicyRequest, "app" | "agent" | "scope" | "action" | "resource" | "serverRequest"> {
  const { app, server, method, agent, scope, tool } = parts;
  return {
    app,
    agent: serverAgent(server),
    scope: [],
    action: method,
    resource: { type: "Agent", id: `${app}/${agent}`, server, scope },
    serverRequest: { server, tool },
  };
}

/** The narrowest rule that permits a server's request, for the log and `policy explain`. */
export function permitForServer(app: string, server: string, method: string): string {
  return `permit (principal == Server::${quoteString(server)}, action == Action::${quoteString(method)}, resource in App::${quoteString(app)});`;
}
