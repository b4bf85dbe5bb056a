// `requestState` travels through the client, so it is encrypted: a client cannot read it, change it, or use it for another
// call or caller, late, or twice. It is used by the permit of a call, not by an attempt that was denied.

import { randomBytes } from "node:crypto";
import { canonicalize, contentId, type Principal } from "../policy/index.js";
import { Fault, type JsonObject, type JsonValue, storeUnavailable } from "../mcp/index.js";
import type { NonceTable } from "../storage/index.js";
import { encryptState, ownKeys, type SharedKeys, unlockShared } from "./encryption.js";

export interface EncryptedState {
  /** Answers of earlier rounds. */
  responses: Record<string, JsonObject>;
  /** The handler's own state. */
  state?: JsonValue;
}

/** Names one state that may be used once, for as long as it could count at any replica. */
export interface StateUse {
  readonly nonce: string;
  readonly ttlMs: number;
}

interface Envelope extends EncryptedState {
  bind: string;
  expires: number;
  nonce: string;
}

/** How long a request state is valid. */
export const REQUEST_STATE_MS = 15 * 60_000;
const MAX_REMEMBERED = 100_000;
const PURPOSE = "requestState";

export class StateCipher {
  readonly #keys: SharedKeys;
  readonly #ttlMs: number;
  readonly #once: NonceTable;

  /** `once` remembers what was used: for every replica that has the key, or here alone. */
  constructor(keys: SharedKeys = ownKeys(), once: NonceTable = new OnceHere(), ttlMs: number = REQUEST_STATE_MS) {
    this.#keys = keys;
    this.#once = once;
    this.#ttlMs = ttlMs;
  }

  /** `use` is that of the state which this one replaces before it was used: of the two, one can be used. */
  close(bind: string, content: EncryptedState, use?: StateUse): string {
    const envelope: Envelope = {
      ...content,
      bind,
      expires: Date.now() + this.#ttlMs,
      nonce: use?.nonce ?? randomBytes(12).toString("base64url"),
    };
    return encryptState(this.#keys.current, PURPOSE, JSON.stringify(envelope));
  }

  async open(bind: string, sealed: JsonValue): Promise<EncryptedState & { readonly use: StateUse }> {
    if (typeof sealed !== "string") throw refused("it must be the string that came with the question");
    const text = await unlockShared(this.#keys, PURPOSE, sealed).catch(unavailable);
    if (text === undefined) throw refused("it was changed, or sealed by another gateway");
    const envelope = JSON.parse(text) as Envelope;
    if (envelope.bind !== bind) throw refused("it belongs to another call");
    const leftMs = envelope.expires - Date.now();
    if (leftMs < 0) throw refused("it has expired; begin the call again");
    const { responses, state, nonce } = envelope;
    // Clocks of replicas differ a little: it is remembered for longer than it could count anywhere.
    return { responses, state, use: { nonce, ttlMs: leftMs + this.#ttlMs } };
  }

  /** Throws unless this is the first use. */
  async use({ nonce, ttlMs }: StateUse): Promise<void> {
    const isFirst = await this.#once.first(requestStateId(nonce), ttlMs).catch(unavailable);
    if (!isFirst) throw refused("it was already used; begin the call again");
  }

  /** The call was not started, so that the state can be used after all. Where the store does not answer, it stays used. */
  async restore({ nonce }: StateUse): Promise<void> {
    await this.#once.forget(requestStateId(nonce)).catch(() => {});
  }
}

/** Under which a request state is remembered once it was used. */
export const requestStateId = (nonce: string): string => `requestState ${nonce}`;

/** In this process alone: oldest first, bounded. */
class OnceHere implements NonceTable {
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

  async forget(id: string): Promise<void> {
    this.#used.delete(id);
  }
}

function unavailable(cause: unknown): never {
  throw cause instanceof Fault ? cause : storeUnavailable(cause);
}

function refused(why: string): Fault {
  return new Fault("InvalidParams", `\`requestState\` is refused: ${why}`, { field: "requestState" });
}

/** One caller, one method, one target, these arguments. */
export function bindingOf(principal: Principal, method: string, name: string, args: JsonObject): string {
  const { app, agent, holder } = principal;
  return contentId(canonicalize([app, agent, method, name, args, ...(holder === undefined ? [] : [holder])]));
}
