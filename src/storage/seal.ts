// Secrets at rest: AES-256-GCM, bound to what they are and whose. The key comes from outside the store, so that a copy
// of the store alone opens nothing.

import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";
import { StorageError } from "./errors.js";

/** What is sealed, and whose: opened under any other name it is refused. */
export interface SealedAs {
  readonly kind: "secret" | "token";
  readonly app: string;
  readonly name: string;
}

export interface Sealer {
  seal(as: SealedAs, plain: string): Uint8Array;
  /** Throws `STORAGE_SEAL`; the message holds nothing of the value. */
  open(as: SealedAs, sealed: Uint8Array): string;
  /** Sealed with a key that has been replaced: seal it again. */
  isOld(sealed: Uint8Array): boolean;
  /** Sealed with a key that is here. */
  knows(sealed: Uint8Array): boolean;
}

const VERSION = 1;
const KEY_BYTES = 32;
const ID_BYTES = 8;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const HEADER_BYTES = 1 + ID_BYTES;
const MAX_KEYS = 16;
const MAX_PLAIN_BYTES = 64 * 1024;

/**
 * The first key seals; all of them open, so that keys can be replaced one after the other. `reload` answers with the keys
 * when they have changed since it was last called.
 */
export function createSealer(
  keys: readonly Uint8Array[],
  reload: () => readonly Uint8Array[] | undefined = () => undefined,
): Sealer {
  let current = withKeys(keys);
  const newest = (): Sealer => {
    const changed = reload();
    if (changed) current = withKeys(changed);
    return current;
  };
  return {
    seal: (as, plain) => newest().seal(as, plain),
    open: (as, sealed) => (current.knows(sealed) ? current : newest()).open(as, sealed),
    isOld: (sealed) => newest().isOld(sealed),
    knows: (sealed) => current.knows(sealed) || newest().knows(sealed),
  };
}

function withKeys(keys: readonly Uint8Array[]): Sealer {
  if (keys.length === 0 || keys.length > MAX_KEYS) {
    throw new StorageError("STORAGE_SEAL", `1 to ${MAX_KEYS} sealing keys are needed, not ${keys.length}`);
  }
  const byId = new Map<string, Uint8Array>();
  for (const key of keys) {
    if (key.byteLength !== KEY_BYTES) {
      throw new StorageError("STORAGE_SEAL", `a sealing key has ${KEY_BYTES} bytes, not ${key.byteLength}`);
    }
    byId.set(idOf(key).toString("hex"), key);
  }
  const current = keys[0] as Uint8Array;
  const currentHeader = Buffer.concat([Buffer.from([VERSION]), idOf(current)]);
  return {
    seal(as, plain) {
      if (Buffer.byteLength(plain) > MAX_PLAIN_BYTES) {
        throw new StorageError("STORAGE_INVALID", `a secret has at most ${MAX_PLAIN_BYTES} bytes`);
      }
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv("aes-256-gcm", current, nonce).setAAD(boundTo(as, currentHeader));
      const body = Buffer.concat([cipher.update(plain, "utf8"), cipher.final()]);
      return Buffer.concat([currentHeader, nonce, body, cipher.getAuthTag()]);
    },

    open(as, sealed) {
      const bytes = Buffer.from(sealed);
      const header = bytes.subarray(0, HEADER_BYTES);
      if (bytes.length < HEADER_BYTES + NONCE_BYTES + TAG_BYTES || header[0] !== VERSION) {
        throw new StorageError("STORAGE_SEAL", `what is stored for \`${as.name}\` was not sealed by this program`);
      }
      const id = header.subarray(1).toString("hex");
      const key = byId.get(id);
      if (!key) {
        throw new StorageError(
          "STORAGE_SEAL",
          `\`${as.name}\` is sealed with key ${id}, which is not here; give every replica the same sealing key, or give up what it sealed: portcullis secret reset-seal`,
        );
      }
      const nonce = bytes.subarray(HEADER_BYTES, HEADER_BYTES + NONCE_BYTES);
      const body = bytes.subarray(HEADER_BYTES + NONCE_BYTES, -TAG_BYTES);
      const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES })
        .setAAD(boundTo(as, header))
        .setAuthTag(bytes.subarray(-TAG_BYTES));
      try {
        return Buffer.concat([decipher.update(body), decipher.final()]).toString("utf8");
      } catch {
        throw new StorageError("STORAGE_SEAL", `\`${as.name}\` was changed in the store or moved there; set it again`);
      }
    },

    knows: (sealed) => byId.has(Buffer.from(sealed).subarray(1, HEADER_BYTES).toString("hex")),
    isOld: (sealed) => !Buffer.from(sealed).subarray(0, HEADER_BYTES).equals(currentHeader),
  };
}

/** One way from each name to its bytes: lengths first, so that no two names share them. */
function boundTo({ kind, app, name }: SealedAs, header: Uint8Array): Buffer {
  const parts = [header, ...["portcullis seal", kind, app, name].map((text) => Buffer.from(text, "utf8"))];
  return Buffer.concat(
    parts.flatMap((part) => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(part.byteLength);
      return [length, part];
    }),
  );
}

/** Names a key without telling anything of it. */
export function sealKeyId(key: Uint8Array): string {
  return idOf(key).toString("hex");
}

function idOf(key: Uint8Array): Buffer {
  return createHash("sha256").update("portcullis seal key id\0").update(key).digest().subarray(0, ID_BYTES);
}
