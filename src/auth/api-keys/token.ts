// What an API key looks like: `pk_<prefix>_<random><checksum>`. The prefix is how people recognise it and may be shown;
// the checksum tells a mistyped key, or a text that is none, without asking anyone. An approver's begins with `pa`.

import { createHash, hash, randomBytes } from "node:crypto";

export type KeyKind = "caller" | "approver";

const KINDS: Readonly<Record<KeyKind, string>> = { caller: "pk", approver: "pa" };
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX_LETTERS = 10;
/** 62^43 > 2^256 */
const RANDOM_LETTERS = 43;
const CHECKSUM_LETTERS = 6;
const TOKEN = /^p[ka]_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}$/;

export interface ApiKeyToken {
  readonly text: string;
  /** Also the key's id. */
  readonly prefix: string;
}

export function newToken(kind: KeyKind): ApiKeyToken {
  const prefix = `${KINDS[kind]}_${letters(PREFIX_LETTERS)}`;
  const body = `${prefix}_${letters(RANDOM_LETTERS)}`;
  return { text: body + checksum(body), prefix };
}

/** False for everything that was never a key. */
export function looksLikeToken(text: string): boolean {
  return TOKEN.test(text) && checksum(text.slice(0, -CHECKSUM_LETTERS)) === text.slice(-CHECKSUM_LETTERS);
}

/** Keys are random and long: one round of a plain hash is enough, and quick. */
export function hashToken(text: string): string {
  return hash("sha256", text, "hex");
}

function checksum(body: string): string {
  const digest = createHash("sha256").update("portcullis key checksum\0").update(body).digest();
  return Array.from(digest.subarray(0, CHECKSUM_LETTERS), (byte) => LETTERS[byte % LETTERS.length]).join("");
}

/** Each letter equally likely. */
function letters(count: number): string {
  let text = "";
  while (text.length < count) {
    for (const byte of randomBytes(count * 2)) {
      // 248 is the largest multiple of 62 in a byte; the rest would favour the first letters.
      if (byte < 248 && text.length < count) text += LETTERS[byte % LETTERS.length];
    }
  }
  return text;
}
