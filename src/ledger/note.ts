import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  type KeyObject,
  sign,
  verify,
} from "node:crypto";
import { dirname, join } from "node:path";
import { LedgerRefused } from "./errors.js";
import { type LedgerFs, readSmall, replaceFile } from "./files.js";
import { HASH_BYTES } from "./tree.js";

// C2SP signed-note and tlog-checkpoint (c2sp.org/signed-note, c2sp.org/tlog-checkpoint).

const ED25519 = 1;
const KEY_ID_BYTES = 4;
const MAX_NOTE_BYTES = 64 * 1024;
const MAX_SIGNATURES = 64;

/** A public key that may sign notes under a name. `vkey` is its text form: name+hex id+base64(0x01 ‖ key). */
export interface Verifier {
  readonly name: string;
  readonly id: string;
  readonly vkey: string;
  readonly publicKey: KeyObject;
}

export interface Signer extends Verifier {
  readonly privateKey: KeyObject;
}

export interface Checkpoint {
  readonly origin: string;
  readonly size: number;
  /** Base64. */
  readonly root: string;
}

/** A note that is malformed, or not signed by a key that is trusted. */
export class NoteError extends Error {
  readonly code = "NOTE_INVALID";

  constructor(message: string) {
    super(message);
    this.name = "NoteError";
  }
}

/** Key names, and therefore origins, hold no spaces, no plus and no control characters. */
export function isKeyName(name: string): boolean {
  return name.length > 0 && name.length <= 256 && !/[\s+\p{Cc}\p{Z}\p{Cs}]/u.test(name);
}

function keyId(name: string, rawKey: Buffer): string {
  const input = Buffer.concat([Buffer.from(`${name}\n`), Buffer.from([ED25519]), rawKey]);
  return hash("sha256", input, "hex").slice(0, 2 * KEY_ID_BYTES);
}

function rawPublicKey(key: KeyObject): Buffer {
  return Buffer.from(key.export({ format: "jwk" }).x ?? "", "base64url");
}

function verifierFor(name: string, publicKey: KeyObject): Verifier {
  if (publicKey.asymmetricKeyType !== "ed25519") {
    throw new NoteError(`the key for ${name} is ${String(publicKey.asymmetricKeyType)}; notes need an Ed25519 key`);
  }
  const raw = rawPublicKey(publicKey);
  const id = keyId(name, raw);
  const encoded = Buffer.concat([Buffer.from([ED25519]), raw]).toString("base64");
  return { name, id, vkey: `${name}+${id}+${encoded}`, publicKey };
}

export function signerFor(name: string, privateKey: KeyObject): Signer {
  return { ...verifierFor(name, createPublicKey(privateKey)), privateKey };
}

export function parseVkey(text: string): Verifier {
  const vkey = text.trim();
  // The name holds no plus, the base64 part may: split at the first two only.
  const first = vkey.indexOf("+");
  const second = vkey.indexOf("+", first + 1);
  const name = vkey.slice(0, first);
  const encoded = vkey.slice(second + 1);
  const bytes = Buffer.from(encoded, "base64");
  if (first < 1 || second < 0 || !isKeyName(name) || bytes.toString("base64") !== encoded) {
    throw new NoteError(`"${vkey.slice(0, 80)}" is not a verifier key of the form name+id+base64`);
  }
  if (bytes.length !== 1 + HASH_BYTES || bytes[0] !== ED25519) {
    throw new NoteError(`verifier key ${name} is not an Ed25519 key (type byte 1 and 32 bytes)`);
  }
  const jwk = { kty: "OKP", crv: "Ed25519", x: bytes.subarray(1).toString("base64url") };
  const verifier = verifierFor(name, createPublicKey({ key: jwk, format: "jwk" }));
  if (verifier.id !== vkey.slice(first + 1, second)) {
    throw new NoteError(
      `verifier key ${name} states id ${vkey.slice(first + 1, second)}, its bytes give ${verifier.id}`,
    );
  }
  return verifier;
}

/** Signs `text`, which ends in a newline, with each key in turn. */
export function signNote(text: string, signers: readonly Signer[]): string {
  let note = `${text}\n`;
  for (const signer of signers) {
    const signature = sign(null, Buffer.from(text), signer.privateKey);
    const encoded = Buffer.concat([Buffer.from(signer.id, "hex"), signature]).toString("base64");
    note += `\u2014 ${signer.name} ${encoded}\n`;
  }
  return note;
}

/**
 * Returns the text of a note and which of `trusted` signed it. Throws when none did, or when a signature that claims
 * to be by a trusted key is false. Signatures by unknown keys are ignored, as the specification asks.
 */
export function openNote(note: string, trusted: readonly Verifier[]): { text: string; signedBy: Verifier[] } {
  if (Buffer.byteLength(note) > MAX_NOTE_BYTES) {
    throw new NoteError(`the note is over ${MAX_NOTE_BYTES} bytes`);
  }
  // The specification forbids every ASCII control character but the newline.
  // oxlint-disable-next-line no-control-regex
  if (/[\0-\x09\x0b-\x1f]/.test(note)) throw new NoteError("the note holds a control character");
  const gap = note.lastIndexOf("\n\n");
  if (gap < 0 || !note.endsWith("\n")) throw new NoteError("the note has no signature block after a blank line");
  const text = note.slice(0, gap + 1);
  const lines = note.slice(gap + 2, -1).split("\n");
  if (lines.length > MAX_SIGNATURES) throw new NoteError(`the note has more than ${MAX_SIGNATURES} signatures`);

  const signedBy: Verifier[] = [];
  const seen: string[] = [];
  for (const line of lines) {
    const match = /^\u2014 (\S+) (\S+)$/.exec(line);
    const name = match?.[1];
    const encoded = match?.[2] ?? "";
    const bytes = Buffer.from(encoded, "base64");
    if (name === undefined || bytes.toString("base64") !== encoded || bytes.length <= KEY_ID_BYTES) {
      throw new NoteError(`signature line "${line.slice(0, 80)}" is malformed`);
    }
    const id = bytes.toString("hex", 0, KEY_ID_BYTES);
    seen.push(`${name}+${id}`);
    const verifier = trusted.find((known) => known.name === name && known.id === id);
    if (verifier === undefined) continue;
    if (!verify(null, Buffer.from(text), verifier.publicKey, bytes.subarray(KEY_ID_BYTES))) {
      throw new NoteError(`the signature by ${name}+${id} is false: the note was changed after it was signed`);
    }
    signedBy.push(verifier);
  }
  if (signedBy.length === 0) {
    const known = trusted.map((key) => `${key.name}+${key.id}`).join(", ") || "none";
    throw new NoteError(`the note is signed by ${seen.join(", ")}, none of which is trusted (trusted: ${known})`);
  }
  return { text, signedBy };
}

export function checkpointText(checkpoint: Checkpoint): string {
  return `${checkpoint.origin}\n${checkpoint.size}\n${checkpoint.root}\n`;
}

export function parseCheckpoint(text: string): Checkpoint {
  const [origin = "", size = "", root = "", ...rest] = text.split("\n");
  const bytes = Buffer.from(root, "base64");
  if (origin === "" || rest.length === 0 || rest.slice(0, -1).includes("")) {
    throw new NoteError("a checkpoint has an origin line, a size line and a root line");
  }
  if (!/^(0|[1-9]\d{0,15})$/.test(size) || !Number.isSafeInteger(Number(size))) {
    throw new NoteError(`checkpoint size "${size.slice(0, 40)}" is not a plain number`);
  }
  if (bytes.length !== HASH_BYTES || bytes.toString("base64") !== root) {
    throw new NoteError(`checkpoint root "${root.slice(0, 60)}" is not 32 bytes in base64`);
  }
  return { origin, size: Number(size), root };
}

/** Opens a signed checkpoint and lists the trusted keys that signed it. */
export function openCheckpoint(note: string, trusted: readonly Verifier[]): Checkpoint & { signedBy: Verifier[] } {
  const { text, signedBy } = openNote(note, trusted);
  return { ...parseCheckpoint(text), signedBy };
}

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
      "restore the key from a copy, or move the directory aside and begin a new ledger (the old one can still be verified)",
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
