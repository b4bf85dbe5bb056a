// One connection to one server, in one agreed revision; the pool of what can be asked of either kind.

import type { ServerProtections } from "../host/index.js";
import type { Fault } from "../mcp/index.js";
import type { UpstreamAgreement } from "./dialect.js";
import type { Containment, UpstreamAnswer, UpstreamCall, UpstreamChange } from "./types.js";

export interface UpstreamConnection {
  readonly agreement: UpstreamAgreement;
  /** INVARIANT: never throws; what fails is in the promise. */
  call(call: UpstreamCall): Promise<UpstreamAnswer>;
  /** 2026-07-28: a listen request; resolves or rejects when it has ended, `acknowledged` when it has begun. */
  listen(call: UpstreamCall, acknowledged: () => void): Promise<UpstreamAnswer>;
  close(): Promise<void>;
  readonly process?: ProcessFacts;
}

export interface ProcessFacts {
  readonly pid: number | undefined;
  readonly lastWords: string;
  readonly containment: Containment;
  readonly protections: ServerProtections;
}

export interface ConnectionEvents {
  change(change: UpstreamChange): void;
  /** The server had lost our session and a new one has begun: what it was asked to tell, it has to be asked again. */
  renewed(): void;
  /** HTTP without a session: no connection is left, so the next one may lead to another process. */
  disconnected(isByAgreement: boolean): void;
  /** Rejects when a call that is to be sent a second time must not be: the definitions are others now. */
  mayResend(call: UpstreamCall): Promise<void>;
  /** Once, when the connection is of no more use; never after `close`. */
  lost(fault: Fault): void;
}
