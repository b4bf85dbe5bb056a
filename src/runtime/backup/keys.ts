// Keys in a backup, encrypted with a passphrase. The same passphrase authenticates the manifest, and by its hashes the
// whole archive.

import { createCipheriv, createDecipheriv, createHmac, randomBytes, scrypt, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { CliError, EXIT } from "../../lib/exit.js";
import { takeVariable } from "../environment.js";

export interface BackedUpKeys {
  /** Texts by path, relative to the data directory. */
  readonly files: Readonly<Record<string, string>>;
  /** Base64, the current one first; wherever they came from. */
  readonly sealKeys: readonly string[];
  /** By the place of the ledger in the manifest: texts by name. */
  readonly ledgers: readonly Readonly<Record<string, string>>[];
}

export interface SealedKeys {
  readonly v: 1;
  readonly kdf: "scrypt";
  readonly N: number;
  readonly r: number;
  readonly p: number;
  readonly salt: string;
  readonly nonce: string;
  readonly tag: string;
  readonly data: string;
}

export interface DerivedKeys {
  readonly encryption: Buffer;
  readonly mac: Buffer;
}

const VARIABLE = "PORTCULLIS_BACKUP_PASSPHRASE";
const MIN_PASSPHRASE = 12;
const COST = { N: 2 ** 17, r: 8, p: 1 };
const MAX_COST = { N: 2 ** 20, r: 16, p: 4 };
const KEY_BYTES = 32;

/** From the file, or from the environment; never from the command line, which every process can read. */
export function passphraseFrom(file: string | undefined): string | undefined {
  const text = file === undefined ? takeVariable(VARIABLE) : readFileSync(file, "utf8").replace(/\r?\n$/, "");
  if (text === undefined) return undefined;
  if (text.length >= MIN_PASSPHRASE) return text;
  const where = file ?? `the variable ${VARIABLE}`;
  throw new CliError(`the passphrase in ${where} has fewer than ${MIN_PASSPHRASE} characters`, EXIT.usage);
}

export const PASSPHRASE_HELP = `give a passphrase with --passphrase-file FILE or ${VARIABLE}`;

export function newSalt(): Pick<SealedKeys, "N" | "r" | "p" | "salt"> {
  return { ...COST, salt: randomBytes(16).toString("base64") };
}

export async function deriveKeys(
  passphrase: string,
  { N, r, p, salt }: Pick<SealedKeys, "N" | "r" | "p" | "salt">,
): Promise<DerivedKeys> {
  const isBounded = N <= MAX_COST.N && r <= MAX_COST.r && p <= MAX_COST.p;
  if (!isBounded) throw new CliError("the backup asks for more work than a passphrase needs: it is damaged");
  const bytes = await new Promise<Buffer>((resolve, reject) => {
    const options = { N, r, p, maxmem: 256 * N * r };
    scrypt(passphrase, Buffer.from(salt, "base64"), 2 * KEY_BYTES, options, (error, key) =>
      error ? reject(error) : resolve(key),
    );
  });
  return { encryption: bytes.subarray(0, KEY_BYTES), mac: bytes.subarray(KEY_BYTES) };
}

export function sealKeys(
  keys: BackedUpKeys,
  derived: DerivedKeys,
  cost: ReturnType<typeof newSalt>,
  id: string,
): SealedKeys {
  const nonce = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", derived.encryption, nonce).setAAD(Buffer.from(id));
  const data = Buffer.concat([cipher.update(JSON.stringify(keys), "utf8"), cipher.final()]);
  return {
    v: 1,
    kdf: "scrypt",
    ...cost,
    nonce: nonce.toString("base64"),
    tag: cipher.getAuthTag().toString("base64"),
    data: data.toString("base64"),
  };
}

export function openKeys(sealed: SealedKeys, derived: DerivedKeys, id: string): BackedUpKeys {
  try {
    const decipher = createDecipheriv("aes-256-gcm", derived.encryption, Buffer.from(sealed.nonce, "base64"), {
      authTagLength: 16,
    })
      .setAAD(Buffer.from(id))
      .setAuthTag(Buffer.from(sealed.tag, "base64"));
    const text = Buffer.concat([decipher.update(Buffer.from(sealed.data, "base64")), decipher.final()]);
    return JSON.parse(text.toString("utf8")) as BackedUpKeys;
  } catch {
    throw new CliError("the keys in the backup cannot be decrypted: the passphrase is another one", EXIT.auth);
  }
}

export function macOf({ mac }: DerivedKeys, text: string): string {
  return createHmac("sha256", mac).update(text).digest("hex");
}

export function isMacOf(given: string, derived: DerivedKeys, text: string): boolean {
  const expected = Buffer.from(macOf(derived, text));
  const found = Buffer.from(given);
  return found.length === expected.length && timingSafeEqual(found, expected);
}
