// In front of all applications: finds out who is calling and hands the text over to the application's own endpoint.
// A caller of one application reaches nothing of another, because nothing of it is behind the door it is let through.

import type { Principal } from "../policy/index.js";
import { type Identify, unknownCaller } from "../auth/index.js";
import { asFault, Fault, type RetainedBytes } from "../mcp/index.js";
import type {
  Admission,
  Channel,
  TransportHandler,
  HttpRequest,
  Inbound,
  Malformed,
  Peer,
  Reply,
} from "../mcp/transports/index.js";
import { Admissions } from "./admission.js";
import type { CallsInFlight } from "../pipeline/index.js";
import type { Endpoint, KnownPeer } from "./endpoint.js";
import { ANONYMOUS_APP, FlowControl } from "./flow-control.js";
import { type Claim, claimIn } from "./credential-in-text.js";
import type { ServedApplication } from "./application.js";
import { FairQueue } from "./fair-queue.js";

export interface TenantRouterOptions {
  readonly identify: Identify;
  /** Decides by the head of a request how much may follow; `identify` unless a message can change who it is from. */
  readonly admits?: Identify;
  readonly retained: RetainedBytes;
  readonly calls: CallsInFlight;
  readonly applications: {
    peek(id: string): ServedApplication | undefined;
    get(id: string): Promise<ServedApplication | undefined>;
  };
  /** Has nothing and lets nobody in: it words the answers to whoever is not known. */
  readonly outside: Endpoint;
  /** Paths that anybody may ask for, such as `/.well-known/…`. True when it answered. */
  readonly open?: (request: HttpRequest) => boolean;
}

export class TenantRouter implements TransportHandler {
  readonly #options: TenantRouterOptions;
  /** A lasting connection belongs to the application of its first caller. */
  readonly #channels = new Map<Channel, ServedApplication>();
  readonly #turns: FairQueue;
  readonly #flow: FlowControl;
  readonly #admissions: Admissions;

  constructor(options: TenantRouterOptions) {
    const { identify, admits = identify, retained, calls, outside } = options;
    this.#options = options;
    this.#turns = new FairQueue({ inFlight: (app) => calls.of(app), turned: () => this.#flow.turned() });
    this.#flow = new FlowControl(calls, this.#turns);
    this.#admissions = new Admissions(admits, retained, calls, this.#flow, (fault, peer, reply) =>
      outside.refused(fault, peer, reply),
    );
  }

  /** Connections that are not read, because their callers have sent more than is soon handled. */
  get pausedConnections(): number {
    return this.#flow.paused;
  }

  admit(peer: Peer): Admission | Promise<Admission> {
    return this.#admissions.admit(peer);
  }

  connected(channel: Channel): void {
    channel.onClose(() => this.#channels.delete(channel));
  }

  message(inbound: Inbound): void {
    const { maxValues } = this.#options.outside.gateway.limits;
    this.#enter(inbound.peer, claimIn(inbound.text, maxValues), (servedApplication, known) => {
      const { text, peer, reply, channel } = inbound;
      const { outside } = this.#options;
      const arrivedAt = performance.now();
      const take = (app: string, run: (queuedMs: number) => void): void => {
        const agent = known instanceof Fault ? peer.address : known.agent;
        const next = (): void => run(performance.now() - arrivedAt);
        this.#turns.take({ app, agent }, next, text.length, () => reply.ended);
      };
      const refuse = (by: KnownPeer) => (): void => outside.message({ text, peer, reply, known: by });
      if (!servedApplication) return take(ANONYMOUS_APP, refuse(known));
      if (!channel) {
        return take(servedApplication.id, (queuedMs) =>
          servedApplication.endpoint.message({ text, peer, reply, known, queuedMs }),
        );
      }
      if (this.#seat(channel, servedApplication)) {
        if (!(known instanceof Fault)) {
          const flow = this.#flow.of(known);
          channel.authenticated?.(this.#options.retained.of(known), flow);
          flow.arrived();
        }
        return take(servedApplication.id, (queuedMs) =>
          servedApplication.endpoint.message({ text, peer, reply, channel, known, queuedMs }),
        );
      }
      take(ANONYMOUS_APP, refuse(unknownCaller()));
    });
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    this.#options.outside.malformed(problem, peer, reply);
  }

  http(request: HttpRequest): boolean {
    if (this.#options.open?.(request)) return true;
    const { outside } = this.#options;
    // Whether a path is served does not depend on who asks: unknown callers learn nothing from the answer.
    this.#enter(request.peer, undefined, (servedApplication, known) => {
      const { method, path, query, peer, body, reply } = request;
      const answer = (endpoint: Endpoint): void => {
        if (!endpoint.http({ method, path, query, peer, body, reply, known })) reply.end(undefined, { status: 404 });
      };
      const run = (): void => answer(servedApplication?.endpoint ?? outside);
      const agent = known instanceof Fault ? peer.address : known.agent;
      this.#turns.take({ app: servedApplication?.id ?? ANONYMOUS_APP, agent }, run, body.length, () => reply.ended);
    });
    return true;
  }

  #enter(
    peer: Peer,
    claim: Claim | undefined,
    then: (servedApplication: ServedApplication | undefined, known: KnownPeer) => void,
  ): void {
    const { identify, admits = identify } = this.#options;
    let known: Principal | Promise<Principal>;
    try {
      const byHead = claim === undefined && admits === identify ? this.#admissions.knownBy(peer) : undefined;
      if (byHead instanceof Fault) throw byHead;
      known = byHead ?? identify(peer, claim?.auth, claim?.meta);
    } catch (error) {
      return then(undefined, asFault(error));
    }
    if (known instanceof Promise) {
      known.then(
        (principal) => this.#admit(peer, principal, then),
        (error) => then(undefined, asFault(error)),
      );
    } else this.#admit(peer, known, then);
  }

  #admit(
    peer: Peer,
    principal: Principal,
    then: (servedApplication: ServedApplication | undefined, known: KnownPeer) => void,
  ): void {
    const { applications } = this.#options;
    const servedApplication = applications.peek(principal.app);
    const session = peer.headers?.["mcp-session-id"];
    const adopts = servedApplication && typeof session === "string" && servedApplication.endpoint.mustAdopt(session);
    if (servedApplication && !adopts) return then(servedApplication, principal);
    const nobody = (error?: unknown): void =>
      then(undefined, error === undefined ? unknownCaller() : unavailable(error));
    applications
      .get(principal.app)
      .then(async (found) => {
        if (!found) return nobody();
        if (typeof session === "string" && found.endpoint.mustAdopt(session)) {
          await found.endpoint.adopt(session, principal);
        }
        then(found, principal);
      })
      .catch(nobody);
  }

  #seat(channel: Channel, servedApplication: ServedApplication): boolean {
    const seated = this.#channels.get(channel);
    if (seated) return seated === servedApplication;
    this.#channels.set(channel, servedApplication);
    servedApplication.endpoint.connected(channel);
    return true;
  }
}

/** Why is the operator's affair and in the log: it may speak of paths and addresses. */
function unavailable(error: unknown): Fault {
  const fault = asFault(error);
  return fault.type !== "InternalError"
    ? fault
    : new Fault("Unavailable", "the application cannot be opened now; its operator finds the reason in the log");
}
