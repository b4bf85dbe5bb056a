// `requestState` travels through the client, so it is sealed: nobody can read it, change it, use it for another call
// or caller, use it late, or use it twice.

import { randomBytes } from "node:crypto";
import { canonicalize, contentId, type Principal } from "../gate/index.js";
import { Fault, type JsonObject, type JsonValue, storeUnavailable } from "../protocol/index.js";
import type { Once } from "../storage/index.js";
import { lock, unlock } from "./box.js";

export interface SealedState {
  /** Answers of earlier rounds. */
  responses: Record<string, JsonObject>;
  /** The handler's own state. */
  state?: JsonValue;
}

interface Envelope extends SealedState {
  bind: string;
  expires: number;
  nonce: string;
}

const DEFAULT_TTL_MS = 15 * 60_000;
const MAX_REMEMBERED = 100_000;
const PURPOSE = "requestState";

export class Seal {
  readonly #key: Buffer;
  readonly #ttlMs: number;
  readonly #once: Once;

  /** `once` remembers what was used: for every replica that has the key, or here alone. */
  constructor(key: Buffer = randomBytes(32), once: Once = new OnceHere(), ttlMs: number = DEFAULT_TTL_MS) {
    this.#key = key;
    this.#once = once;
    this.#ttlMs = ttlMs;
  }

  close(bind: string, content: SealedState): string {
    const envelope: Envelope = {
      ...content,
      bind,
      expires: Date.now() + this.#ttlMs,
      nonce: randomBytes(12).toString("base64url"),
    };
    return lock(this.#key, PURPOSE, JSON.stringify(envelope));
  }

  async open(bind: string, sealed: JsonValue): Promise<SealedState> {
    if (typeof sealed !== "string") throw refused("it must be the string that came with the question");
    const text = unlock(this.#key, PURPOSE, sealed);
    if (text === undefined) throw refused("it was changed, or sealed by another gateway");
    const envelope = JSON.parse(text) as Envelope;
    if (envelope.bind !== bind) throw refused("it belongs to another call");
    const leftMs = envelope.expires - Date.now();
    if (leftMs < 0) throw refused("it has expired; begin the call again");
    // Clocks of replicas differ a little: it is remembered for longer than it could count anywhere.
    const isFirst = await this.#once
      .first(`requestState ${envelope.nonce}`, leftMs + this.#ttlMs)
      .catch((cause: unknown) => {
        if (cause instanceof Fault) throw cause;
        throw storeUnavailable(cause);
      });
    if (!isFirst) throw refused("it was already used; begin the call again");
    return { responses: envelope.responses, state: envelope.state };
  }
}

/** In this process alone: oldest first, bounded. */
class OnceHere implements Once {
  readonly #used = new Map<string, number>();

  async first(id: string, ttlMs: number): Promise<boolean> {
    const now = Date.now();
    for (const [known, expires] of this.#used) {
      if (expires > now) break;
      this.#used.delete(known);
    }
    if (this.#used.has(id)) return false;
    if (this.#used.size >= MAX_REMEMBERED) throw new Fault("TooMany", "too many questions are open; try again later");
    this.#used.set(id, now + ttlMs);
    return true;
  }
}

function refused(why: string): Fault {
  return new Fault("InvalidParams", `\`requestState\` is refused: ${why}`, { field: "requestState" });
}

/** One caller, one method, one target, these arguments. */
export function bindingOf(principal: Principal, method: string, name: string, args: JsonObject): string {
  return contentId(canonicalize([principal.app, principal.agent, method, name, args]));
}
