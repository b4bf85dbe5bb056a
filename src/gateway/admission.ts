// What a caller may send before its message is read: the credential in the head of a request decides, so the body of an
// unknown caller is neither kept nor parsed beyond a small limit.

import type { Principal } from "../policy/index.js";
import type { Identify } from "../auth/index.js";
import { asFault, Fault, type RetainedBytes } from "../mcp/index.js";
import type { Admission, Peer, Reply } from "../mcp/transports/index.js";
import type { CallsInFlight } from "../pipeline/index.js";
import { ANONYMOUS_APP, type Flow, type FlowControl } from "./flow-control.js";

/** Largest message of a caller that is not authenticated. It may carry the credential itself, as `auth`. */
export const MAX_ANONYMOUS_MESSAGE_BYTES = 64 * 1024;

/** A key may be revoked while a body arrives. */
const REUSE_MS = 100;

export class Admissions {
  readonly #identify: Identify;
  readonly #retained: RetainedBytes;
  readonly #calls: CallsInFlight;
  readonly #flow: FlowControl;
  readonly #refuse: (fault: Fault, peer: Peer, reply: Reply) => void;
  /** Of HTTP requests, each of which has a peer of its own; on connections every message is identified anew. */
  readonly #known = new WeakMap<Peer, { readonly known: Principal | Fault; readonly at: number }>();

  constructor(
    identify: Identify,
    retained: RetainedBytes,
    calls: CallsInFlight,
    flow: FlowControl,
    refuse: (fault: Fault, peer: Peer, reply: Reply) => void,
  ) {
    this.#identify = identify;
    this.#retained = retained;
    this.#calls = calls;
    this.#flow = flow;
    this.#refuse = refuse;
  }

  admit(peer: Peer): Admission | Promise<Admission> {
    try {
      const known = this.#identify(peer);
      if (!(known instanceof Promise)) return this.#admission(peer, known);
      return known.then(
        (principal) => this.#admission(peer, principal),
        (error) => this.#admission(peer, asFault(error)),
      );
    } catch (error) {
      return this.#admission(peer, asFault(error));
    }
  }

  /** Who the head of this HTTP request is from, unless its body took so long that it has to be found out again. */
  knownBy(peer: Peer): Principal | Fault | undefined {
    const found = this.#known.get(peer);
    return found && performance.now() - found.at < REUSE_MS ? found.known : undefined;
  }

  #admission(peer: Peer, known: Principal | Fault): Admission {
    if (peer.transport === "http") this.#known.set(peer, { known, at: performance.now() });
    if (!(known instanceof Fault)) return this.#ofKnown(peer, known);
    const flow = this.#flow.of({ app: ANONYMOUS_APP, agent: peer.address });
    flow.arrived();
    return {
      maxBytes: MAX_ANONYMOUS_MESSAGE_BYTES,
      budget: this.#retained.anonymous,
      flow,
      fault: known,
      refuse: (reply) => this.#refuse(known, peer, reply),
    };
  }

  /** A call over a bound is answered before its body is read. Answers and cancellations of calls in flight are not. */
  #ofKnown(peer: Peer, principal: Principal): Admission {
    const budget = this.#retained.of(principal);
    const flow = this.#flow.of(principal);
    const overload = isCall(peer) ? this.#overload(principal, flow) : undefined;
    flow.arrived();
    if (overload === undefined) return { budget, flow };
    return { budget, flow, maxBytes: 0, fault: overload, refuse: (reply) => this.#refuse(overload, peer, reply) };
  }

  #overload(principal: Principal, flow: Flow): Fault | undefined {
    const fault =
      this.#calls.refusal(principal) ?? (this.#flow.isOverfull(principal.app) ? this.#calls.queueFull() : undefined);
    if (fault) flow.refused();
    return fault;
  }
}

/** The head names the method since 2026-07-28; an older message is read first, since it may answer a call in flight. */
function isCall({ transport, headers }: Peer): boolean {
  return transport === "http" && headers?.["mcp-method"] === "tools/call";
}
