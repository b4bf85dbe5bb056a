// Where sealing keys come from: the environment, a file that only its owner can read, or the keyring of the operating
// system. Wherever they are, they are base64 texts, the current one first.

import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, fstatSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { StorageError } from "./errors.js";

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
const KEY_BYTES = 32;
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
