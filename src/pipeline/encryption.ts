// A text that only the gateways of one key can read, and nobody can change.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

const IV_BYTES = 12;
const TAG_BYTES = 16;

/** The key that replicas share, and for a while the one before it. */
export interface SharedKeys {
  readonly current: Buffer;
  /** Encrypts nothing any more; opens what was encrypted before it was replaced. */
  readonly previous: Buffer | undefined;
  /** Reads them again: another replica may have a newer one already. */
  refresh(): Promise<void>;
}

/** A key of this process alone. */
export function ownKeys(): SharedKeys {
  return { current: randomBytes(32), previous: undefined, refresh: async () => {} };
}

/** Undefined when none of the keys opens it. */
export async function unlockShared(keys: SharedKeys, purpose: string, locked: string): Promise<string | undefined> {
  const attempt = (): string | undefined =>
    decryptState(keys.current, purpose, locked) ?? (keys.previous && decryptState(keys.previous, purpose, locked));
  const text = attempt();
  if (text !== undefined) return text;
  await keys.refresh();
  return attempt();
}

/** `purpose` is not kept in it, and has to be said again to open it. */
export function encryptState(key: Buffer, purpose: string, text: string): string {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, iv);
  cipher.setAAD(Buffer.from(purpose));
  const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([iv, cipher.getAuthTag(), body]).toString("base64url");
}

/** Undefined when it was changed, or locked with another key or for another purpose. */
export function decryptState(key: Buffer, purpose: string, locked: string): string | undefined {
  const bytes = Buffer.from(locked, "base64url");
  // A decoder that skips what it does not know would accept a changed text.
  if (bytes.toString("base64url") !== locked || bytes.length <= IV_BYTES + TAG_BYTES) return undefined;
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, IV_BYTES));
    decipher.setAAD(Buffer.from(purpose));
    decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
    return decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES), undefined, "utf8") + decipher.final("utf8");
  } catch {
    return undefined;
  }
}
