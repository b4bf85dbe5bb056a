import { createPrivateKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { dirname, join } from "node:path";
import { LedgerRefused } from "./errors.js";
import { type LedgerFs, readSmall, replaceFile } from "./files.js";
import { parseVkey, type Signer, signerFor, type Verifier } from "./note.js";

// `signing.key` (or the path the operator gave) is the private key, PKCS #8 PEM, readable by its owner alone.
// `keys/<id>.vkey` are the public keys that ever signed here, and `keys/<id>.note` the checkpoint that introduced
// key <id>: signed by the key before it and by itself. A change of keys under way has its new key in `<path>.rotate`.

const MODE = 0o600;

function keysDir(dir: string): string {
  return join(dir, "keys");
}

function rotatePath(keyFile: string): string {
  return `${keyFile}.rotate`;
}

async function checkOwner(disk: LedgerFs, path: string): Promise<void> {
  if (process.platform === "win32") return;
  const facts = await disk.stat(path);
  if (facts === undefined) return;
  if ((facts.mode & 0o077) !== 0) {
    const mode = (facts.mode & 0o777).toString(8).padStart(3, "0");
    throw new LedgerRefused(`signing key ${path} can be read by others (mode ${mode})`, `run: chmod 600 ${path}`);
  }
  const uid = process.getuid?.();
  if (uid !== undefined && facts.uid !== uid && uid !== 0) {
    throw new LedgerRefused(
      `signing key ${path} belongs to user ${facts.uid}, this process runs as user ${uid}`,
      `run: chown ${uid} ${path}`,
    );
  }
}

function parsePrivateKey(pem: string, path: string): KeyObject {
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === "ed25519") return key;
    throw new Error(`it is a ${String(key.asymmetricKeyType)} key`);
  } catch (error) {
    throw new LedgerRefused(
      `signing key ${path} is not an Ed25519 private key in PEM form`,
      "restore the file from a copy",
      error,
    );
  }
}

async function readSigner(disk: LedgerFs, path: string, origin: string): Promise<Signer | undefined> {
  const pem = await readSmall(disk, path);
  if (pem === undefined) return undefined;
  await checkOwner(disk, path);
  return signerFor(origin, parsePrivateKey(pem, path));
}

async function createSigner(disk: LedgerFs, path: string, origin: string): Promise<Signer> {
  const { privateKey } = generateKeyPairSync("ed25519");
  await disk.makeDir(dirname(path));
  await replaceFile(disk, path, privateKey.export({ type: "pkcs8", format: "pem" }) as string, MODE);
  return signerFor(origin, privateKey);
}

async function savePublic(disk: LedgerFs, dir: string, key: Verifier): Promise<void> {
  const path = join(keysDir(dir), `${key.id}.vkey`);
  if ((await disk.stat(path)) !== undefined) return;
  await disk.makeDir(keysDir(dir));
  await disk.syncDir(dir);
  await replaceFile(disk, path, `${key.vkey}\n`, MODE);
}

export interface LedgerKeys {
  readonly current: Signer;
  /** The key a rotation that was cut short wanted to change to. */
  readonly next: Signer | undefined;
  /** Every key that ever signed here, the current one included. */
  readonly all: readonly Verifier[];
  readonly isNew: boolean;
}

/** Loads the keys of a ledger, or makes the first one when the ledger is empty. */
export async function loadKeys(
  disk: LedgerFs,
  dir: string,
  keyFile: string,
  origin: string,
  isEmpty: boolean,
): Promise<LedgerKeys> {
  const existing = await readSigner(disk, keyFile, origin);
  if (existing === undefined && !isEmpty) {
    throw new LedgerRefused(
      `the signing key ${keyFile} of ledger ${dir} is missing, but the ledger has records`,
      "restore the key from a copy, or move the folder aside and begin a new ledger (the old one can still be verified)",
    );
  }
  const current = existing ?? (await createSigner(disk, keyFile, origin));
  await savePublic(disk, dir, current);
  const next = await readSigner(disk, rotatePath(keyFile), origin);
  const all = await readVerifiers(disk, dir);
  return { current, next, all: all.some((key) => key.id === current.id) ? all : [...all, current], isNew: !existing };
}

/** Makes the key a rotation changes to. It is durable before anything names it. */
export async function prepareRotation(disk: LedgerFs, dir: string, keyFile: string, origin: string): Promise<Signer> {
  const next = await createSigner(disk, rotatePath(keyFile), origin);
  await savePublic(disk, dir, next);
  return next;
}

/** Ends a rotation: `note` is the checkpoint that both keys signed. The old private key is gone after this. */
export async function finishRotation(
  disk: LedgerFs,
  dir: string,
  keyFile: string,
  next: Signer,
  note: string,
): Promise<void> {
  await savePublic(disk, dir, next);
  await replaceFile(disk, join(keysDir(dir), `${next.id}.note`), note, MODE);
  await disk.rename(rotatePath(keyFile), keyFile);
  await disk.syncDir(dirname(keyFile));
}

async function readAll(disk: LedgerFs, dir: string, ending: string): Promise<{ id: string; text: string }[]> {
  const found: { id: string; text: string }[] = [];
  if ((await disk.stat(keysDir(dir))) === undefined) return found;
  for (const name of (await disk.list(keysDir(dir))).sort()) {
    if (!name.endsWith(ending)) continue;
    const text = await readSmall(disk, join(keysDir(dir), name));
    if (text !== undefined) found.push({ id: name.slice(0, -ending.length), text });
  }
  return found;
}

/** The public keys kept beside the ledger. */
export async function readVerifiers(disk: LedgerFs, dir: string): Promise<Verifier[]> {
  return (await readAll(disk, dir, ".vkey")).map(({ id, text }) => {
    try {
      return parseVkey(text);
    } catch (error) {
      const path = join(keysDir(dir), `${id}.vkey`);
      throw new LedgerRefused(`${path} is damaged: ${(error as Error).message}`, "restore it from a copy", error);
    }
  });
}

/** The checkpoints that introduced a new key, each signed by the key before it as well. */
export async function readRotationNotes(disk: LedgerFs, dir: string): Promise<{ id: string; note: string }[]> {
  return (await readAll(disk, dir, ".note")).map((file) => ({ id: file.id, note: file.text }));
}
