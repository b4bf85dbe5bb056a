import type { Stats } from "node:fs";
import * as fs from "node:fs";
import { dirname } from "node:path";
import { errnoOf } from "./errors.js";
import { acquireLock } from "./lock.js";

// The only access to the disk. The power-loss test puts another implementation behind it, which forgets whatever was
// not synced; so the ledger may rely only on what this interface promises.

type Done = (error: Error | null) => void;

/** What readers of records need of a file; a compressed one gives its plain contents. */
export interface ReadableFile {
  /** Fills `bytes` from `position`; answers how many bytes there were. */
  read(bytes: Buffer, position: number): Promise<number>;
  size(): Promise<number>;
  close(): Promise<void>;
}

export interface LedgerFile extends ReadableFile {
  /** Writes `bytes[0..length)` at `position`, all of it; not durable before `sync` calls back. */
  write(bytes: Buffer, length: number, position: number, done: Done): void;
  /** Makes everything written so far durable (fdatasync). */
  sync(done: Done): void;
  truncate(size: number): Promise<void>;
  /** False when the path leads to no file or to another one: records written here would not be found. */
  isAt(path: string, done: (error: Error | null, isThere: boolean) => void): void;
}

export interface FileFacts {
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly isDirectory: boolean;
}

/** A lock that dies with its process. */
export interface LedgerLock {
  /** Calls back when another process took the lock over, which it does only when it takes this one for dead. */
  onLost(listener: (why: string) => void): void;
  release(): Promise<void>;
}

export interface LedgerFs {
  /** Opens for reading only. */
  openRead(path: string): Promise<LedgerFile>;
  /** Opens for reading and writing; creates the file with `mode` when absent. Its name is durable after `syncDir`. */
  openWrite(path: string, mode: number): Promise<LedgerFile>;
  /** The same for a file where every write is followed by a sync: the two may be one trip to the disk. */
  openJournal(path: string, mode: number): Promise<LedgerFile>;
  /** Undefined when there is nothing at `path`. */
  stat(path: string): Promise<FileFacts | undefined>;
  list(dir: string): Promise<string[]>;
  makeDir(dir: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  /** Makes creations, renames and removals in `dir` durable. */
  syncDir(dir: string): Promise<void>;
  lock(dir: string, timeoutMs: number): Promise<LedgerLock>;
}

class NodeFile implements LedgerFile {
  readonly #fd: number;
  readonly #link: string;
  /** Writes return when they are durable, so that `sync` has nothing left to do. */
  readonly #writesAreDurable: boolean;
  #identity: string | undefined;
  /** Where the file was when `stat` last found it, and when that was. */
  #found: { readonly path: string; readonly location: string; readonly at: number } | undefined;

  constructor(fd: number, writesAreDurable: boolean) {
    this.#fd = fd;
    this.#link = `/proc/self/fd/${fd}`;
    this.#writesAreDurable = writesAreDurable;
  }

  write(bytes: Buffer, length: number, position: number, done: Done): void {
    const from = (at: number): void => {
      fs.write(this.#fd, bytes, at, length - at, position + at, (error, written) => {
        if (error !== null) return done(error);
        // A short write is what a nearly full disk answers: the next one fails with the reason.
        if (at + written < length) return from(at + written);
        done(null);
      });
    };
    from(0);
  }

  sync(done: Done): void {
    if (this.#writesAreDurable) done(null);
    else fs.fdatasync(this.#fd, done);
  }

  read(bytes: Buffer, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      fs.read(this.#fd, bytes, 0, bytes.length, position, (error, count) =>
        error === null ? resolve(count) : reject(error),
      );
    });
  }

  truncate(size: number): Promise<void> {
    return settle((done) => fs.ftruncate(this.#fd, size, done));
  }

  size(): Promise<number> {
    return new Promise((resolve, reject) => {
      fs.fstat(this.#fd, (error, stats) => (error === null ? resolve(stats.size) : reject(error)));
    });
  }

  /**
   * A disk that does not answer must not block the process, so it is asked in the thread pool. That costs as much as
   * several records; as long as the kernel says that the open file is where it was, it is asked once in a while only:
   * for what another machine did to a shared disk, and for what was mounted over the directory.
   */
  isAt(path: string, done: (error: Error | null, isThere: boolean) => void): void {
    const location = locationOf(this.#link);
    const found = this.#found;
    if (location !== undefined && found?.location === location && found.path === path) {
      if (performance.now() - found.at < ASK_DISK_MS) return done(null, true);
    }
    this.#found = undefined;
    if (this.#identity !== undefined) return this.#ask(path, location, this.#identity, done);
    fs.fstat(this.#fd, { bigint: true }, (error, stats) => {
      if (error !== null) return done(error, false);
      this.#identity = identityOf(stats);
      this.#ask(path, location, this.#identity, done);
    });
  }

  /** `location` was read before: a file that is moved meanwhile is asked for again. */
  #ask(
    path: string,
    location: string | undefined,
    identity: string,
    done: (e: Error | null, is: boolean) => void,
  ): void {
    fs.stat(path, { bigint: true }, (error, named) => {
      if (error === null) {
        const isThere = identityOf(named) === identity;
        if (isThere && location !== undefined) this.#found = { path, location, at: performance.now() };
        return done(null, isThere);
      }
      const isMissing = errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR";
      done(isMissing ? null : error, false);
    });
  }

  close(): Promise<void> {
    return settle((done) => fs.close(this.#fd, done));
  }
}

/** How long the kernel's word on where a file is holds without asking the disk. */
const ASK_DISK_MS = 1_000;

/**
 * The present name of an open file by its link in `/proc`, with a mark behind it once it was removed. The kernel answers from its memory and
 * never waits for the disk. Undefined where there is no such answer.
 */
function locationOf(link: string): string | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    return fs.readlinkSync(link);
  } catch {
    return undefined;
  }
}

function identityOf({ dev, ino }: fs.BigIntStats): string {
  return `${dev}:${ino}`;
}

function settle(run: (done: (error: Error | null | undefined) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    run((error) => (error ? reject(error) : resolve()));
  });
}

function openNode(path: string, flags: number, mode: number): Promise<LedgerFile> {
  return new Promise((resolve, reject) => {
    fs.open(path, flags, mode, (error, fd) =>
      error === null ? resolve(new NodeFile(fd, (flags & DSYNC) !== 0)) : reject(error),
    );
  });
}

// On Linux a write with O_DSYNC is a write and an fdatasync in one: one trip through the thread pool instead of two.
// On other systems it may stop at the drive's cache, which fdatasync does not.
const DSYNC = process.platform === "linux" ? fs.constants.O_DSYNC : 0;

export const nodeFs: LedgerFs = {
  openRead: (path) => openNode(path, fs.constants.O_RDONLY, 0),
  openWrite: (path, mode) => openNode(path, fs.constants.O_RDWR | fs.constants.O_CREAT, mode),
  openJournal: (path, mode) => openNode(path, fs.constants.O_RDWR | fs.constants.O_CREAT | DSYNC, mode),

  async stat(path) {
    let facts: Stats;
    try {
      facts = await fs.promises.stat(path);
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return undefined;
      throw error;
    }
    return { size: facts.size, mode: facts.mode, uid: facts.uid, isDirectory: facts.isDirectory() };
  },

  list: (dir) => fs.promises.readdir(dir),
  async makeDir(dir) {
    try {
      await fs.promises.mkdir(dir, { mode: 0o700 });
    } catch (error) {
      // Only where needed: a recursive mkdir answers ENOENT on a read-only disk.
      if (errnoOf(error) === "ENOENT") await fs.promises.mkdir(dir, { recursive: true, mode: 0o700 });
      else if (errnoOf(error) !== "EEXIST") throw error;
    }
  },
  rename: (from, to) => fs.promises.rename(from, to),
  remove: (path) => fs.promises.rm(path, { force: true }),

  async syncDir(dir) {
    // Windows cannot open a directory for syncing; its file systems journal names on their own.
    if (process.platform === "win32") return;
    const handle = await fs.promises.open(dir, "r");
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },

  lock: (dir, timeoutMs) => acquireLock(dir, timeoutMs),
};

export function syncFile(file: LedgerFile): Promise<void> {
  return settle((done) => file.sync(done));
}

export function writeAt(file: LedgerFile, bytes: Buffer, position: number): Promise<void> {
  return settle((done) => file.write(bytes, bytes.length, position, done));
}

/** Puts a whole small file in place: after a power cut there is the old one or the new one, never a mixture. */
export async function replaceFile(disk: LedgerFs, path: string, text: string, mode: number): Promise<void> {
  const next = `${path}.next`;
  const file = await disk.openWrite(next, mode);
  try {
    await file.truncate(0);
    await writeAt(file, Buffer.from(text), 0);
    await syncFile(file);
  } finally {
    await file.close();
  }
  await disk.rename(next, path);
  await disk.syncDir(dirname(path));
}

/** The text of a small file, or undefined when there is none. */
export async function readSmall(disk: LedgerFs, path: string, maxBytes = 1 << 20): Promise<string | undefined> {
  const facts = await disk.stat(path);
  if (facts === undefined) return undefined;
  if (facts.size > maxBytes)
    throw new RangeError(`${path} has ${facts.size} bytes, more than the ${maxBytes} expected`);
  const file = await disk.openRead(path);
  try {
    const bytes = Buffer.alloc(facts.size);
    const count = await file.read(bytes, 0);
    return bytes.toString("utf8", 0, count);
  } finally {
    await file.close();
  }
}
