// `TenantRouter` identifies the caller of each message and passes the message to the endpoint of the caller's application.
// A caller of one application reaches nothing of another, because that endpoint has nothing of it.

import { type Identify, unknownCaller } from "../auth/index.js";
import { asFault, Fault, type RetainedBytes } from "../mcp/index.js";
import type {
  Admission,
  Channel,
  HttpRequest,
  Inbound,
  Malformed,
  Peer,
  Reply,
  TransportHandler,
} from "../mcp/transports/index.js";
import type { CallsInFlight } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import { Admissions, type Claim, claimIn } from "./admission.js";
import type { ServedApplication } from "./application.js";
import type { Endpoint, KnownPeer } from "./endpoint.js";
import { FairQueue } from "./fair-queue.js";
import { ANONYMOUS_APP, FlowControl } from "./flow-control.js";

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
  /** Empty endpoint that formats responses for unauthenticated callers. */
  readonly anonymousEndpoint: Endpoint;
  /** Paths without authentication, such as `/.well-known/…`. True when it answered. */
  readonly open?: (request: HttpRequest) => boolean;
}

export class TenantRouter implements TransportHandler {
  readonly #options: TenantRouterOptions;
  /** A persistent connection belongs to the application of its first caller. */
  readonly #channels = new Map<Channel, ServedApplication>();
  readonly #queue: FairQueue;
  readonly #flow: FlowControl;
  readonly #admissions: Admissions;

  constructor(options: TenantRouterOptions) {
    const { identify, admits = identify, retained, calls, anonymousEndpoint } = options;
    this.#options = options;
    this.#queue = new FairQueue({ inFlight: (app) => calls.of(app), onHandled: () => this.#flow.handled() });
    this.#flow = new FlowControl(calls, this.#queue);
    this.#admissions = new Admissions(admits, retained, calls, this.#flow, (fault, peer, reply) =>
      anonymousEndpoint.refused(fault, peer, reply),
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
    const { maxValues } = this.#options.anonymousEndpoint.gateway.limits;
    this.#enter(inbound.peer, claimIn(inbound.text, maxValues), (application, known) => {
      const { text, peer, reply, channel } = inbound;
      const { anonymousEndpoint } = this.#options;
      const arrivedAt = performance.now();
      const enqueue = (app: string, run: (queuedMs: number) => void): void => {
        const agent = known instanceof Fault ? peer.address : known.agent;
        const next = (): void => run(performance.now() - arrivedAt);
        this.#queue.enqueue({ app, agent }, next, text.length, () => reply.ended);
      };
      const reject = (by: KnownPeer) => (): void => anonymousEndpoint.message({ text, peer, reply, known: by });
      if (!application) return enqueue(ANONYMOUS_APP, reject(known));
      if (!channel) {
        return enqueue(application.id, (queuedMs) =>
          application.endpoint.message({ text, peer, reply, known, queuedMs }),
        );
      }
      if (this.#bind(channel, application)) {
        if (!(known instanceof Fault)) {
          const flow = this.#flow.of(known);
          channel.authenticated?.(this.#options.retained.of(known), flow);
          flow.arrived();
        }
        return enqueue(application.id, (queuedMs) =>
          application.endpoint.message({ text, peer, reply, channel, known, queuedMs }),
        );
      }
      enqueue(ANONYMOUS_APP, reject(unknownCaller()));
    });
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    this.#options.anonymousEndpoint.malformed(problem, peer, reply);
  }

  http(request: HttpRequest): boolean {
    if (this.#options.open?.(request)) return true;
    const { anonymousEndpoint } = this.#options;
    // Whether a path is served does not depend on the caller: unauthenticated ones learn nothing from the answer.
    this.#enter(request.peer, undefined, (application, known) => {
      const { method, path, query, peer, body, reply } = request;
      const answer = (endpoint: Endpoint): void => {
        if (!endpoint.http({ method, path, query, peer, body, reply, known })) reply.end(undefined, { status: 404 });
      };
      const run = (): void => answer(application?.endpoint ?? anonymousEndpoint);
      const agent = known instanceof Fault ? peer.address : known.agent;
      this.#queue.enqueue({ app: application?.id ?? ANONYMOUS_APP, agent }, run, body.length, () => reply.ended);
    });
    return true;
  }

  #enter(
    peer: Peer,
    claim: Claim | undefined,
    then: (application: ServedApplication | undefined, known: KnownPeer) => void,
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
    then: (application: ServedApplication | undefined, known: KnownPeer) => void,
  ): void {
    const { applications } = this.#options;
    const application = applications.peek(principal.app);
    const session = peer.headers?.["mcp-session-id"];
    const adopts = application && typeof session === "string" && application.endpoint.handshakes.mustAdopt(session);
    if (application && !adopts) return then(application, principal);
    const unknown = (error?: unknown): void =>
      then(undefined, error === undefined ? unknownCaller() : unavailable(error));
    applications
      .get(principal.app)
      .then(async (found) => {
        if (!found) return unknown();
        if (typeof session === "string" && found.endpoint.handshakes.mustAdopt(session)) {
          await found.endpoint.handshakes.adopt(session, principal);
        }
        then(found, principal);
      })
      .catch(unknown);
  }

  #bind(channel: Channel, application: ServedApplication): boolean {
    const bound = this.#channels.get(channel);
    if (bound) return bound === application;
    this.#channels.set(channel, application);
    application.endpoint.connected(channel);
    return true;
  }
}

/** The reason is in the log only: it may name paths and addresses. */
function unavailable(error: unknown): Fault {
  const fault = asFault(error);
  return fault.type !== "InternalError"
    ? fault
    : new Fault("Unavailable", "the application cannot be opened now; its operator finds the reason in the log");
}
