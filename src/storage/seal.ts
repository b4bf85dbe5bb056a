// Secrets at rest: AES-256-GCM, bound to what they are and whose. The key comes from outside the store, so that a copy
// of the store alone opens nothing.

import { spawnSync } from "node:child_process";
import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";
import { closeSync, fstatSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { StorageError } from "./sql.js";

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

export interface SealKeyOptions {
  /** `env:NAME`, `file:PATH` or `keyring:NAME`. */
  readonly source?: string;
  /** Used when no source is named and the environment has no key; made when it is not there. */
  readonly defaultFile: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Throws instead of creating a key where there is none. */
  readonly mustExist?: boolean;
}

const SEAL_KEY_VARIABLE = "PORTCULLIS_SEAL_KEY";
const TOOL_TIMEOUT_MS = 15_000;

export function loadSealKeys(options: SealKeyOptions): Uint8Array[] {
  const { env = process.env, mustExist = false } = options;
  const { kind, place } = placeOf(options);
  switch (kind) {
    case "env":
      return fromEnvironment(place, env);
    case "file":
      return fromFile(place, mustExist);
    case "keyring":
      return fromKeyring(place, env, mustExist);
  }
}

/** The file that the keys are in, where they are in one. */
export function sealKeyFile(options: SealKeyOptions): string | undefined {
  const { kind, place } = placeOf(options);
  return kind === "file" ? place : undefined;
}

/** Puts these keys into a file, the current one first; after a power cut it holds the old ones or the new ones. */
export function writeSealKeys(file: string, keys: readonly Uint8Array[]): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const next = `${file}.${randomBytes(6).toString("hex")}`;
  const text = keys.map((key) => `${Buffer.from(key).toString("base64")}\n`).join("");
  writeFileSync(next, text, { mode: 0o600, flag: "wx", flush: true });
  renameSync(next, file);
}

export function newSealKey(): Uint8Array {
  return randomBytes(KEY_BYTES);
}

function placeOf({ source, defaultFile, env = process.env }: SealKeyOptions): {
  kind: "env" | "file" | "keyring";
  place: string;
} {
  if (source === undefined) {
    return env[SEAL_KEY_VARIABLE] === undefined
      ? { kind: "file", place: defaultFile }
      : { kind: "env", place: SEAL_KEY_VARIABLE };
  }
  const [kind, place = ""] = split(source);
  if (kind === "env" || kind === "file" || kind === "keyring") return { kind, place };
  throw new StorageError("STORAGE_SEAL", "a sealing key comes from env:NAME, file:PATH or keyring:NAME");
}

function split(source: string): [string, string?] {
  const colon = source.indexOf(":");
  return colon < 1 || colon === source.length - 1 ? [""] : [source.slice(0, colon), source.slice(colon + 1)];
}

function fromEnvironment(name: string, env: NodeJS.ProcessEnv): Uint8Array[] {
  const text = env[name];
  if (text === undefined || text === "") {
    throw new StorageError("STORAGE_SEAL", `the variable ${name} is not set; set it to 32 random bytes in base64`);
  }
  return parse(text, `the variable ${name}`);
}

function fromFile(file: string, mustExist: boolean): Uint8Array[] {
  let handle: number;
  try {
    handle = openSync(file, "r");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    if (mustExist) throw new StorageError("STORAGE_SEAL", `there is no sealing key at ${file}`);
    handle = make(file);
  }
  try {
    const { mode, uid } = fstatSync(handle);
    const others = process.platform !== "win32" && (mode & 0o077) !== 0;
    if (others) {
      throw new StorageError("STORAGE_SEAL", `${file} can be read by others; chmod 600 it, and replace its key`);
    }
    const me = process.getuid?.();
    if (me !== undefined && uid !== me && me !== 0) {
      throw new StorageError("STORAGE_SEAL", `${file} belongs to another user; it must be owned by who runs this`);
    }
    return parse(readFileSync(handle, "utf8"), file);
  } finally {
    closeSync(handle);
  }
}

/** Of several that start together one makes the file, and the others read it. */
function make(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  try {
    writeFileSync(file, `${newKey()}\n`, { mode: 0o600, flag: "wx", flush: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  return openSync(file, "r");
}

function newKey(): string {
  return Buffer.from(newSealKey()).toString("base64");
}

function parse(text: string, where: string): Uint8Array[] {
  const keys = text.split(/[\s,]+/).filter((part) => part !== "");
  if (keys.length === 0) throw new StorageError("STORAGE_SEAL", `${where} holds no sealing key`);
  return keys.map((key, i) => {
    const bytes = Buffer.from(key, "base64");
    if (bytes.length === KEY_BYTES && /^[A-Za-z0-9+/]{43}=$/.test(key)) return bytes;
    throw new StorageError("STORAGE_SEAL", `key ${i + 1} in ${where} is not 32 bytes in base64`);
  });
}

// ---- keyring --------------------------------------------------------------------------------------------------------

interface Keyring {
  readonly program: string;
  readonly read: readonly string[];
  readonly write: { readonly args: readonly string[]; readonly input: (key: string) => string };
}

function keyringFor(name: string): Keyring {
  if (process.platform === "darwin") {
    const at = ["-s", "portcullis", "-a", name];
    return {
      program: "security",
      read: ["find-generic-password", ...at, "-w"],
      // Commands on stdin: an argument could be read by every process of the machine.
      write: { args: ["-i"], input: (key) => `add-generic-password -s portcullis -a ${name} -w ${key}\n` },
    };
  }
  const at = ["service", "portcullis", "account", name];
  return {
    program: "secret-tool",
    read: ["lookup", ...at],
    write: { args: ["store", "--label", `portcullis ${name}`, ...at], input: (key) => key },
  };
}

function fromKeyring(name: string, env: NodeJS.ProcessEnv, mustExist: boolean): Uint8Array[] {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(name)) {
    throw new StorageError("STORAGE_SEAL", "a name in the keyring has letters, digits, dots, - and _");
  }
  const keyring = keyringFor(name);
  const found = call(keyring.program, keyring.read, env);
  if (found.trim() !== "") return parse(found, `the keyring's entry ${name}`);
  if (mustExist) throw new StorageError("STORAGE_SEAL", `the keyring has no entry ${name}`);
  const key = newKey();
  call(keyring.program, keyring.write.args, env, keyring.write.input(key));
  // Read again: it is of use only if it is really there.
  return parse(call(keyring.program, keyring.read, env), `the keyring's entry ${name}`);
}

function call(program: string, args: readonly string[], env: NodeJS.ProcessEnv, input = ""): string {
  const { error, status, stdout, stderr } = spawnSync(program, args, {
    env,
    input,
    encoding: "utf8",
    timeout: TOOL_TIMEOUT_MS,
    maxBuffer: 64 * 1024,
  });
  if (error) {
    const missing = (error as NodeJS.ErrnoException).code === "ENOENT";
    const why = missing ? `there is no ${program} here` : error.message;
    throw new StorageError("STORAGE_SEAL", `the keyring cannot be used: ${why}; use file: or env: instead`);
  }
  // Not found is status 1 without a word (secret-tool) or 44 (security).
  if (status !== 0 && !(status === 1 && stderr.trim() === "") && status !== 44) {
    throw new StorageError("STORAGE_SEAL", `${program} failed: ${stderr.trim().slice(0, 500)}`);
  }
  return stdout;
}
