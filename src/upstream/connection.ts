// A connection to a server, with the facts of the process behind it where there is one.

import type { ServerProtections } from "../host/index.js";
import type { SessionConnection } from "../mcp/session/index.js";
import type { Containment } from "./types.js";

export interface UpstreamConnection extends SessionConnection {
  readonly process?: ProcessFacts | undefined;
}

export interface ProcessFacts {
  readonly pid: number | undefined;
  readonly lastWords: string;
  readonly containment: Containment;
  readonly protections: ServerProtections;
}
