// In front of all applications: finds out who is calling and hands the text over to the application's own endpoint.
// A caller of one application reaches nothing of another, because nothing of it is behind the door it is let through.

import type { Principal } from "../../gate/index.js";
import { DELEGATION_META, type Identify, unknownCaller } from "../../identity/index.js";
import { asFault, Fault, isJsonObject, type JsonObject, type JsonValue } from "../../protocol/index.js";
import type { Channel, Handler, HttpRequest, Inbound, Malformed, Peer, Reply } from "../../transport/index.js";
import type { Endpoint, Known } from "../endpoint.js";
import type { House } from "./house.js";
import { Turns } from "./turns.js";

export interface LobbyOptions {
  readonly identify: Identify;
  readonly applications: { peek(id: string): House | undefined; get(id: string): Promise<House | undefined> };
  /** Has nothing and lets nobody in: it words the answers to whoever is not known. */
  readonly outside: Endpoint;
  /** Paths that anybody may ask for, such as `/.well-known/…`. True when it answered. */
  readonly open?: (request: HttpRequest) => boolean;
}

export class Lobby implements Handler {
  readonly #options: LobbyOptions;
  /** A lasting connection belongs to the application of its first caller. */
  readonly #channels = new Map<Channel, House>();
  readonly #turns = new Turns();

  constructor(options: LobbyOptions) {
    this.#options = options;
  }

  connected(channel: Channel): void {
    channel.onClose(() => this.#channels.delete(channel));
  }

  message(inbound: Inbound): void {
    const said = saidIn(inbound.text);
    this.#enter(inbound.peer, said?.auth, said?.meta, (house, known) => {
      const { text, peer, reply, channel } = inbound;
      const { outside } = this.#options;
      if (!house) return outside.message({ text, peer, reply, known });
      if (!channel) return this.#turns.take(house.id, () => house.endpoint.message({ text, peer, reply, known }));
      if (this.#seat(channel, house)) {
        return this.#turns.take(house.id, () => house.endpoint.message({ text, peer, reply, channel, known }));
      }
      outside.message({ text, peer, reply, known: unknownCaller() });
    });
  }

  malformed(problem: Malformed, peer: Peer, reply: Reply): void {
    this.#options.outside.malformed(problem, peer, reply);
  }

  http(request: HttpRequest): boolean {
    if (this.#options.open?.(request)) return true;
    const { outside } = this.#options;
    // Whether a path is served does not depend on who asks: unknown callers learn nothing from the answer.
    this.#enter(request.peer, undefined, undefined, (house, known) => {
      const endpoint = house?.endpoint ?? outside;
      const { method, path, query, peer, body, reply } = request;
      if (!endpoint.http({ method, path, query, peer, body, reply, known })) reply.end(undefined, { status: 404 });
    });
    return true;
  }

  #enter(
    peer: Peer,
    auth: JsonValue | undefined,
    meta: JsonValue | undefined,
    then: (house: House | undefined, known: Known) => void,
  ): void {
    let known: Principal | Promise<Principal>;
    try {
      known = this.#options.identify(peer, auth, meta);
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
  return error instanceof Fault
    ? error
    : new Fault("Unavailable", "the application cannot be opened now; its operator finds the reason in the log");
}

/** The credential that a text carries itself, for transports without headers; a batch has one for all of it. */
function saidIn(text: string): { auth: JsonValue | undefined; meta: JsonValue | undefined } | undefined {
  // Most texts carry none, and they are parsed only once, later on.
  if (!text.includes('"auth"') && !text.includes("portcullis\\/") && !text.includes("portcullis/")) return undefined;
  try {
    const value = JSON.parse(text) as JsonValue;
    const first = Array.isArray(value) ? value[0] : value;
    if (!isJsonObject(first)) return undefined;
    // Two callers in one batch: nobody can tell which of them is asking, so it is nobody.
    if (Array.isArray(value) && value.some((each) => !isJsonObject(each) || differs(each, first))) return NOBODY;
    const params = isJsonObject(first.params) ? first.params : {};
    return { auth: first.auth, meta: params._meta };
  } catch {
    return undefined;
  }
}

/** No credential has this form. */
const NOBODY = { auth: false, meta: undefined } as const;

function differs(a: JsonObject, b: JsonObject): boolean {
  return JSON.stringify(claimOf(a)) !== JSON.stringify(claimOf(b));
}

/** What a message says of whom it is from. */
function claimOf({ auth, params }: JsonObject): JsonValue[] {
  const meta = isJsonObject(params) && isJsonObject(params._meta) ? params._meta : {};
  return [auth ?? null, meta[DELEGATION_META] ?? null];
}
