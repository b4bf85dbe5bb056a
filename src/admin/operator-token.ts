// The operator's credential: a random token in a file that only its owner can read. It is what approves calls, so a
// file that others could have read or written is not used.

import { randomBytes } from "node:crypto";
import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { stat } from "node:fs/promises";
import { dirname } from "node:path";

const TOKEN = /^[\x21-\x7e]{32,512}$/;
const MAX_FILE_BYTES = 4_096;
const OTHERS = 0o077;

export class OperatorTokenError extends Error {
  readonly code = "OPERATOR_TOKEN";
  constructor(path: string, what: string, remedy: string) {
    super(`${path} ${what}; ${remedy}`);
    this.name = "OperatorTokenError";
  }
}

/** The token in the file; the file is made when there is none. */
export function ensureOperatorToken(path: string): string {
  try {
    return readOperatorToken(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  writeDurably(draft, `${newToken()}\n`);
  try {
    // A link appears whole or not at all, and fails when another process was first: then its token counts.
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return readOperatorToken(path);
}

/** The disk of a token file has this long to say whether the file was replaced. */
const LOOK_MS = 500;

/**
 * `FollowedToken` is the token that is in a file, which is created when there is none; while the file cannot be used, a
 * random one that is never written anywhere.
 */
export class FollowedToken {
  readonly #path: string;
  #token: string;
  #seen: string;
  #isLate = false;

  constructor(path: string) {
    this.#path = path;
    this.#token = ensureOperatorToken(path);
    this.#seen = versionOf(statSync(path, { bigint: true, throwIfNoEntry: false }));
  }

  get value(): string {
    return this.#token;
  }

  /** Reads the file when it was replaced. On a disk that does not answer it cannot have been: the token stays. */
  async look(): Promise<void> {
    if (this.#isLate) return;
    const looked = this.#read().finally(() => {
      this.#isLate = false;
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        this.#isLate = true;
        resolve();
      }, LOOK_MS);
    });
    await Promise.race([looked, late]);
    clearTimeout(timer);
  }

  async #read(): Promise<void> {
    const now = versionOf(await stat(this.#path, { bigint: true }).catch(() => undefined));
    if (now === this.#seen) return;
    this.#seen = now;
    try {
      this.#token = readOperatorToken(this.#path);
    } catch {
      this.#token = newToken();
    }
  }
}

function versionOf(facts: BigIntStats | undefined): string {
  return facts ? `${facts.ino} ${facts.mtimeNs} ${facts.ctimeNs}` : "";
}

/** Puts a new token in the place of the old one, which is refused from then on. */
export function rotateOperatorToken(path: string): void {
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeDurably(draft, `${newToken()}\n`);
  renameSync(draft, path);
}

function newToken(): string {
  return `pcop_${randomBytes(32).toString("base64url")}`;
}

export function readOperatorToken(path: string): string {
  // The file that is checked is the file that is read: no link is followed, and no name is looked up twice.
  const file = open(path);
  try {
    const about = fstatSync(file);
    if (!about.isFile()) throw new OperatorTokenError(path, "is not a regular file", "remove it and start again");
    if (process.platform !== "win32") {
      if ((about.mode & OTHERS) !== 0) {
        throw new OperatorTokenError(path, "can be read or written by others", `remove it, or run chmod 600 on it`);
      }
      if (about.uid !== process.getuid?.()) {
        throw new OperatorTokenError(path, "belongs to another user", "start as that user or name another file");
      }
    }
    if (about.size > MAX_FILE_BYTES) throw new OperatorTokenError(path, "is too large for a token", "remove it");
    const token = readFileSync(file, "utf8").trim();
    if (TOKEN.test(token)) return token;
    throw new OperatorTokenError(
      path,
      "does not hold a token of at least 32 printable characters",
      "remove it and start again",
    );
  } finally {
    closeSync(file);
  }
}

function open(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | (constants.O_NOFOLLOW ?? 0));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ELOOP") throw error;
    throw new OperatorTokenError(path, "is a symbolic link", "put the file itself there");
  }
}

function writeDurably(path: string, text: string): void {
  const file = openSync(path, "wx", 0o600);
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
