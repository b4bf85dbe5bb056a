// `requestState` travels through the client, so it is sealed: nobody can read it, change it, use it for another call
// or caller, use it late, or use it twice.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { canonicalize, contentId, type Principal } from "../gate/index.js";
import { Fault, type JsonObject, type JsonValue } from "../protocol/index.js";

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
const IV_BYTES = 12;
const TAG_BYTES = 16;

export class Seal {
  readonly #key: Buffer;
  readonly #ttlMs: number;
  /** Nonces that were used, with their expiry; oldest first, bounded. */
  readonly #used = new Map<string, number>();

  constructor(key: Buffer = randomBytes(32), ttlMs: number = DEFAULT_TTL_MS) {
    this.#key = key;
    this.#ttlMs = ttlMs;
  }

  close(bind: string, content: SealedState): string {
    const envelope: Envelope = {
      ...content,
      bind,
      expires: Date.now() + this.#ttlMs,
      nonce: randomBytes(12).toString("base64url"),
    };
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#key, iv);
    const body = Buffer.concat([cipher.update(JSON.stringify(envelope), "utf8"), cipher.final()]);
    return Buffer.concat([iv, cipher.getAuthTag(), body]).toString("base64url");
  }

  open(bind: string, sealed: JsonValue): SealedState {
    if (typeof sealed !== "string") throw refused("it must be the string that came with the question");
    const envelope = this.#decrypt(sealed);
    if (envelope.bind !== bind) throw refused("it belongs to another call");
    if (Date.now() > envelope.expires) throw refused("it has expired; begin the call again");
    this.#forgetExpired();
    if (this.#used.has(envelope.nonce)) throw refused("it was already used; begin the call again");
    if (this.#used.size >= MAX_REMEMBERED) throw new Fault("TooMany", "too many questions are open; try again later");
    this.#used.set(envelope.nonce, envelope.expires);
    return { responses: envelope.responses, state: envelope.state };
  }

  #decrypt(sealed: string): Envelope {
    const bytes = Buffer.from(sealed, "base64url");
    // A decoder that skips what it does not know would accept a changed text.
    if (bytes.toString("base64url") !== sealed || bytes.length <= IV_BYTES + TAG_BYTES) throw refused("it was changed");
    try {
      const decipher = createDecipheriv("aes-256-gcm", this.#key, bytes.subarray(0, IV_BYTES));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      const text = decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES), undefined, "utf8") + decipher.final("utf8");
      return JSON.parse(text) as Envelope;
    } catch {
      throw refused("it was changed, or sealed by another gateway");
    }
  }

  #forgetExpired(): void {
    const now = Date.now();
    for (const [nonce, expires] of this.#used) {
      if (expires > now) break;
      this.#used.delete(nonce);
    }
  }
}

function refused(why: string): Fault {
  return new Fault("InvalidParams", `\`requestState\` is refused: ${why}`, { field: "requestState" });
}

/** One caller, one method, one target, these arguments. */
export function bindingOf(principal: Principal, method: string, name: string, args: JsonObject): string {
  return contentId(canonicalize([principal.app, principal.agent, method, name, args]));
}
