// In front of all applications: finds out who is calling and hands the text over to the application's own endpoint.
// A caller of one application reaches nothing of another, because nothing of it is behind the door it is let through.

import type { Principal } from "../../gate/index.js";
import { type Identify, unknownCaller } from "../../identity/index.js";
import { asFault, Fault, type RetainedBytes } from "../../protocol/index.js";
import type {
  Admission,
  Channel,
  Handler,
  HttpRequest,
  Inbound,
  Malformed,
  Peer,
  Reply,
} from "../../transport/index.js";
import { Admissions } from "../admission.js";
import type { CallsInFlight } from "../calls-in-flight.js";
import type { Endpoint, Known } from "../endpoint.js";
import { type Claim, claimIn } from "./credential-in-text.js";
import type { House } from "./house.js";
import { Turns } from "./turns.js";

export interface LobbyOptions {
  readonly identify: Identify;
  /** Decides by the head of a request how much may follow; `identify` unless a message can change who it is from. */
  readonly admits?: Identify;
  readonly retained: RetainedBytes;
  readonly calls: CallsInFlight;
  readonly applications: { peek(id: string): House | undefined; get(id: string): Promise<House | undefined> };
  /** Has nothing and lets nobody in: it words the answers to whoever is not known. */
  readonly outside: Endpoint;
  /** Paths that anybody may ask for, such as `/.well-known/…`. True when it answered. */
  readonly open?: (request: HttpRequest) => boolean;
}

/** Callers that are not known take turns like one application; no application has this name. */
const UNKNOWN = " unknown";

export class Lobby implements Handler {
  readonly #options: LobbyOptions;
  /** A lasting connection belongs to the application of its first caller. */
  readonly #channels = new Map<Channel, House>();
  readonly #turns = new Turns();
  readonly #admissions: Admissions;

  constructor(options: LobbyOptions) {
    const { identify, admits = identify, retained, calls, outside } = options;
    this.#options = options;
    this.#admissions = new Admissions(admits, retained, calls, (fault, peer, reply) =>
      outside.refused(fault, peer, reply),
    );
  }

  admit(peer: Peer): Admission | Promise<Admission> {
    return this.#admissions.admit(peer);
  }

  connected(channel: Channel): void {
    channel.onClose(() => this.#channels.delete(channel));
  }

  message(inbound: Inbound): void {
    const { maxValues } = this.#options.outside.gateway.limits;
    this.#enter(inbound.peer, claimIn(inbound.text, maxValues), (house, known) => {
      const { text, peer, reply, channel } = inbound;
      const { outside } = this.#options;
      const take = (app: string, run: () => void): void => this.#turns.take(app, run, text.length, () => reply.ended);
      const refuse = (by: Known) => (): void => outside.message({ text, peer, reply, known: by });
      if (!house) return take(UNKNOWN, refuse(known));
      if (!channel) return take(house.id, () => house.endpoint.message({ text, peer, reply, known }));
      if (this.#seat(channel, house)) {
        if (!(known instanceof Fault)) channel.authenticated?.(this.#options.retained.of(known));
        return take(house.id, () => house.endpoint.message({ text, peer, reply, channel, known }));
      }
      take(UNKNOWN, refuse(unknownCaller()));
    });
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    this.#options.outside.malformed(problem, peer, reply);
  }

  http(request: HttpRequest): boolean {
    if (this.#options.open?.(request)) return true;
    const { outside } = this.#options;
    // Whether a path is served does not depend on who asks: unknown callers learn nothing from the answer.
    this.#enter(request.peer, undefined, (house, known) => {
      const { method, path, query, peer, body, reply } = request;
      const answer = (endpoint: Endpoint): void => {
        if (!endpoint.http({ method, path, query, peer, body, reply, known })) reply.end(undefined, { status: 404 });
      };
      const run = (): void => answer(house?.endpoint ?? outside);
      this.#turns.take(house?.id ?? UNKNOWN, run, body.length, () => reply.ended);
    });
    return true;
  }

  #enter(peer: Peer, claim: Claim | undefined, then: (house: House | undefined, known: Known) => void): void {
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

  #admit(peer: Peer, principal: Principal, then: (house: House | undefined, known: Known) => void): void {
    const { applications } = this.#options;
    const house = applications.peek(principal.app);
    const session = peer.headers?.["mcp-session-id"];
    const adopts = house && typeof session === "string" && house.endpoint.mustAdopt(session);
    if (house && !adopts) return then(house, principal);
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

  #seat(channel: Channel, house: House): boolean {
    const seated = this.#channels.get(channel);
    if (seated) return seated === house;
    this.#channels.set(channel, house);
    house.endpoint.connected(channel);
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
