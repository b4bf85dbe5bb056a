// `requestState` travels through the client, so it is encrypted: a client cannot read it, change it, or use it for another
// call or caller, late, or twice. It is used by the permit of a call, not by an attempt that was denied.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { Fault, type JsonObject, type JsonValue, storeUnavailable } from "../mcp/index.js";
import { canonicalize, contentId, type Principal } from "../policy/index.js";
import type { NonceTable } from "../storage/index.js";

const IV_BYTES = 12;
const TAG_BYTES = 16;

/** The key that replicas share, and for a while the one before it. */
export interface SharedKeys {
  readonly current: Buffer;
  /** Only decrypts: what was encrypted before it was replaced. */
  readonly previous: Buffer | undefined;
  /** Reads the keys again: another replica may have a newer one. */
  refresh(): Promise<void>;
}

/** A key of this process alone. */
function ownKeys(): SharedKeys {
  return { current: randomBytes(32), previous: undefined, refresh: async () => {} };
}

/** Undefined when neither key decrypts it. */
export async function decryptShared(
  keys: SharedKeys,
  purpose: string,
  ciphertext: string,
): Promise<string | undefined> {
  const attempt = (): string | undefined =>
    decryptState(keys.current, purpose, ciphertext) ??
    (keys.previous && decryptState(keys.previous, purpose, ciphertext));
  const text = attempt();
  if (text !== undefined) return text;
  await keys.refresh();
  return attempt();
}

/** `purpose` is authenticated and not part of the ciphertext: decryption needs the same one. */
export function encryptState(key: Buffer, purpose: string, text: string): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, iv);
  cipher.setAAD(Buffer.from(purpose));
  const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), body]).toString("base64url");
}

/** Undefined when it was changed, or encrypted with another key or for another purpose. */
function decryptState(key: Buffer, purpose: string, ciphertext: string): string | undefined {
  const bytes = Buffer.from(ciphertext, "base64url");
  // A decoder that skips what it does not know would accept a changed text.
  if (bytes.toString("base64url") !== ciphertext || bytes.length <= IV_BYTES + TAG_BYTES) return undefined;
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, IV_BYTES));
    decipher.setAAD(Buffer.from(purpose));
    decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
    return decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES), undefined, "utf8") + decipher.final("utf8");
  } catch {
    return undefined;
  }
}

interface EncryptedState {
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
  constructor(
    keys: SharedKeys = ownKeys(),
    once: NonceTable = new InMemoryNonceStore(),
    ttlMs: number = REQUEST_STATE_MS,
  ) {
    this.#keys = keys;
    this.#once = once;
    this.#ttlMs = ttlMs;
  }

  /** `use` is that of the state which this one replaces before it was used: of the two, one can be used. */
  encrypt(bind: string, content: EncryptedState, use?: StateUse): string {
    const envelope: Envelope = {
      ...content,
      bind,
      expires: Date.now() + this.#ttlMs,
      nonce: use?.nonce ?? randomBytes(12).toString("base64url"),
    };
    return encryptState(this.#keys.current, PURPOSE, JSON.stringify(envelope));
  }

  async decrypt(bind: string, ciphertext: JsonValue): Promise<EncryptedState & { readonly use: StateUse }> {
    if (typeof ciphertext !== "string") throw invalidState("it must be the string that came with the input requests");
    const text = await decryptShared(this.#keys, PURPOSE, ciphertext).catch(unavailable);
    if (text === undefined) throw invalidState("it was changed, or encrypted by another gateway");
    const envelope = JSON.parse(text) as Envelope;
    if (envelope.bind !== bind) throw invalidState("it belongs to another call");
    const leftMs = envelope.expires - Date.now();
    if (leftMs < 0) throw invalidState("it has expired; begin the call again");
    const { responses, state, nonce } = envelope;
    // Clocks of replicas differ a little: it is remembered for longer than it could count anywhere.
    return { responses, state, use: { nonce, ttlMs: leftMs + this.#ttlMs } };
  }

  /** Throws unless this is the first use. */
  async use({ nonce, ttlMs }: StateUse): Promise<void> {
    const isFirst = await this.#once.first(requestStateId(nonce), ttlMs).catch(unavailable);
    if (!isFirst) throw invalidState("it was already used; begin the call again");
  }

  /** Makes the state usable again, because the call was not started. Where the store does not answer, it stays used. */
  async restore({ nonce }: StateUse): Promise<void> {
    await this.#once.forget(requestStateId(nonce)).catch(() => {});
  }
}

/** Under which a request state is remembered once it was used. */
export const requestStateId = (nonce: string): string => `requestState ${nonce}`;

/** In this process alone: oldest first, bounded. */
class InMemoryNonceStore implements NonceTable {
  readonly #used = new Map<string, number>();

  async first(id: string, ttlMs: number): Promise<boolean> {
    const now = Date.now();
    for (const [known, expires] of this.#used) {
      if (expires > now) break;
      this.#used.delete(known);
    }
    if (this.#used.has(id)) return false;
    if (this.#used.size >= MAX_REMEMBERED)
      throw new Fault("TooMany", "too many input requests are open; try again later");
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

function invalidState(why: string): Fault {
  return new Fault("InvalidParams", `\`requestState\` is not valid: ${why}`, { field: "requestState" });
}

/** One caller, one method, one target, these arguments. */
export function bindingOf(principal: Principal, method: string, name: string, args: JsonObject): string {
  const { app, agent, holder } = principal;
  return contentId(canonicalize([app, agent, method, name, args, ...(holder === undefined ? [] : [holder])]));
}
