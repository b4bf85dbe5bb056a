// What a caller may send before its message is read. The credential in the head of a request decides, so the body of an
// unauthenticated caller is neither kept nor parsed beyond a small limit.

import { DELEGATION_META, type Identify } from "../auth/index.js";
import {
  asFault,
  DEFAULT_MAX_VALUES,
  endOfString,
  Fault,
  type JsonObject,
  type JsonValue,
  type RetainedBytes,
} from "../mcp/index.js";
import type { Admission, Peer, Reply } from "../mcp/transports/index.js";
import type { CallsInFlight } from "../pipeline/index.js";
import type { Principal } from "../policy/index.js";
import { ANONYMOUS_APP, type Flow, type FlowControl } from "./flow-control.js";

/** Largest message of a caller that is not authenticated. It may carry the credential itself, as `auth`. */
const MAX_ANONYMOUS_MESSAGE_BYTES = 64 * 1024;

/** A key may be revoked while a body arrives. */
const REUSE_MS = 100;

export class Admissions {
  readonly #identify: Identify;
  readonly #retained: RetainedBytes;
  readonly #calls: CallsInFlight;
  readonly #flow: FlowControl;
  readonly #reject: (fault: Fault, peer: Peer, reply: Reply) => void;
  /** Of HTTP requests, each of which has a peer of its own; on connections every message is identified anew. */
  readonly #known = new WeakMap<Peer, { readonly known: Principal | Fault; readonly at: number }>();

  constructor(
    identify: Identify,
    retained: RetainedBytes,
    calls: CallsInFlight,
    flow: FlowControl,
    reject: (fault: Fault, peer: Peer, reply: Reply) => void,
  ) {
    this.#identify = identify;
    this.#retained = retained;
    this.#calls = calls;
    this.#flow = flow;
    this.#reject = reject;
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

  /** The caller by the head of this HTTP request, unless its body took so long that it has to be identified again. */
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
      refuse: (reply) => this.#reject(known, peer, reply),
    };
  }

  /** A call over a bound is answered before its body is read. Answers and cancellations of calls in flight are not. */
  #ofKnown(peer: Peer, principal: Principal): Admission {
    const budget = this.#retained.of(principal);
    const flow = this.#flow.of(principal);
    const overload = isCall(peer) ? this.#overload(principal, flow) : undefined;
    flow.arrived();
    if (overload === undefined) return { budget, flow };
    return { budget, flow, maxBytes: 0, fault: overload, refuse: (reply) => this.#reject(overload, peer, reply) };
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

export interface Claim {
  readonly auth: JsonValue | undefined;
  /** The part of `params._meta` that identifies the caller. */
  readonly meta: JsonObject | undefined;
}

const MAX_VALUE_CHARS = 32 * 1024;
const MAX_KEY_CHARS = 64;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** No credential has this form: a message with an ambiguous claim has an unknown caller. */
const AMBIGUOUS: Claim = { auth: false, meta: undefined };

/** Undefined when the text carries none. A batch has one claim for all of its messages. */
export function claimIn(text: string, maxValues: number = DEFAULT_MAX_VALUES): Claim | undefined {
  if (!text.includes('"auth"') && !text.includes("portcullis\\/") && !text.includes("portcullis/")) return undefined;
  const claims = new Claims(text, maxValues);
  try {
    claims.scan();
    return claims.claim();
  } catch {
    return AMBIGUOUS;
  }
}

/** Where a value stands that is part of the claim. */
interface Found {
  auth: string | undefined;
  delegation: string | undefined;
}

class Claims {
  readonly #text: string;
  readonly #maxValues: number;
  readonly #messages: Found[] = [];
  /** The keys on the way to the value being read; "" where it is in an array. */
  readonly #path: string[] = [];
  readonly #isObject: boolean[] = [];

  constructor(text: string, maxValues: number) {
    this.#text = text;
    this.#maxValues = maxValues;
  }

  claim(): Claim | undefined {
    const [first, ...others] = this.#messages;
    if (!first) return undefined;
    const isSame = (each: Found): boolean => each.auth === first.auth && each.delegation === first.delegation;
    if (!others.every(isSame)) return AMBIGUOUS;
    if (first.auth === undefined && first.delegation === undefined) return undefined;
    const value = (found: string | undefined): JsonValue | undefined =>
      found === undefined ? undefined : (JSON.parse(found) as JsonValue);
    const delegation = value(first.delegation);
    return { auth: value(first.auth), meta: delegation === undefined ? undefined : { [DELEGATION_META]: delegation } };
  }

  scan(): void {
    const text = this.#text;
    let expectsKey = false;
    let values = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c === QUOTE) {
        const end = endOfString(text, i);
        if (expectsKey) {
          this.#path[this.#path.length - 1] = keyAt(text, i, end);
          expectsKey = false;
          this.#valueAfter(end);
        }
        i = end;
      } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
        expectsKey = c === OPEN_OBJECT;
        values++;
        this.#path.push("");
        this.#isObject.push(expectsKey);
        if (expectsKey && this.#depth() === 1) this.#messages.push({ auth: undefined, delegation: undefined });
      } else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
        this.#path.pop();
        this.#isObject.pop();
        expectsKey = false;
      } else if (c === COMMA) {
        expectsKey = this.#isObject.at(-1) === true;
        values++;
      }
      // The caller is not identified yet, so nothing may cost much. Such a message is rejected from every caller.
      if (values > this.#maxValues) throw new SyntaxError("too many values");
    }
  }

  /** Of the message being read, whether or not it is in a batch. */
  #depth(): number {
    return this.#isObject[0] === false ? this.#path.length - 1 : this.#path.length;
  }

  #valueAfter(endOfKey: number): void {
    const depth = this.#depth();
    if (depth !== 1 && depth !== 3) return;
    const [first, second, third] = this.#path.slice(-depth);
    const message = this.#messages.at(-1);
    if (!message) return;
    if (depth === 1 && first === "auth") {
      if (message.auth !== undefined) throw new SyntaxError("two credentials");
      message.auth = valueFrom(this.#text, endOfKey + 1);
    } else if (depth === 3 && first === "params" && second === "_meta" && third === DELEGATION_META) {
      if (message.delegation !== undefined) throw new SyntaxError("two delegations");
      message.delegation = valueFrom(this.#text, endOfKey + 1);
    }
  }
}

/** The text of the value after the colon, without the space around it. */
function valueFrom(text: string, afterKey: number): string {
  const start = text.indexOf(":", afterKey) + 1;
  const most = Math.min(text.length, start + MAX_VALUE_CHARS);
  let depth = 0;
  for (let i = start; i < most; i++) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) i = endOfString(text, i);
    else if (c === OPEN_OBJECT || c === OPEN_ARRAY) depth++;
    else if (c === COMMA && depth === 0) return text.slice(start, i).trim();
    else if (c === CLOSE_OBJECT || c === CLOSE_ARRAY) {
      if (depth-- === 0) return text.slice(start, i).trim();
    }
  }
  throw new SyntaxError("the credential is too long");
}

function keyAt(text: string, start: number, end: number): string {
  if (end - start > MAX_KEY_CHARS) return "";
  const raw = text.slice(start + 1, end);
  return raw.includes("\\") ? (JSON.parse(`"${raw}"`) as string) : raw;
}
