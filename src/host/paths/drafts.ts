// A file that is to replace another has a name of its own for the moment between getting one and taking the other's:
// no system call replaces a name by a nameless file. A host that is killed in that moment leaves it behind, so
// the next write in that directory removes it. A living writer holds a lock on its draft; the kernel drops the
// lock with the process, whichever container it ran in.

import { randomBytes } from "node:crypto";
import { closeSync, fstatSync, openSync, readdirSync, type Stats, unlinkSync } from "node:fs";
import { native, O_NOFOLLOW, OPEN_FLAGS } from "./native.js";

const DRAFT = /^\.portcullis-[0-9a-f]{24}\.tmp$/;
/** A draft that was only just made may not be locked yet. */
const MIN_AGE_MS = 60_000;
/** Where locks are not available, age alone decides. */
const MIN_AGE_WITHOUT_LOCKS_MS = 24 * 60 * 60_000;
const CHECK_AGAIN_MS = 60 * 60_000;
const MAX_CLEARED = 256;
const MAX_REMEMBERED = 1024;

export function draftName(): string {
  return `.portcullis-${randomBytes(12).toString("hex")}.tmp`;
}

export function isDraftName(name: string): boolean {
  return DRAFT.test(name);
}

/** Locks the draft for as long as its writer lives. Best effort: without the lock, its age protects it. */
export function holdDraft(fd: number): void {
  native()?.lockFile(fd);
}

/** When a directory was last checked. Inode numbers are used again, so the key has the time of birth as well. */
const checked = new Map<string, number>();

/** Once an hour for each directory, because reading it takes time: drafts that are left behind are rare. */
export function clearDrafts(directory: string, { dev, ino, birthtimeMs }: Stats): void {
  const key = `${dev}:${ino}:${birthtimeMs}`;
  if (Date.now() - (checked.get(key) ?? 0) < CHECK_AGAIN_MS) return;
  if (checked.size >= MAX_REMEMBERED) checked.clear();
  checked.set(key, Date.now());
  try {
    for (const name of readdirSync(directory).filter(isDraftName).slice(0, MAX_CLEARED))
      clearDraft(`${directory}/${name}`);
  } catch {
    // A directory that cannot be read may still be writable.
  }
}

function clearDraft(path: string): void {
  let fd: number | undefined;
  try {
    fd = openSync(path, OPEN_FLAGS.READ | O_NOFOLLOW);
    const { mtimeMs, nlink } = fstatSync(fd);
    const calls = native();
    const minAgeMs = calls === undefined ? MIN_AGE_WITHOUT_LOCKS_MS : MIN_AGE_MS;
    if (!fstatSync(fd).isFile() || nlink !== 1 || Date.now() - mtimeMs < minAgeMs) return;
    if (calls === undefined || calls.lockFile(fd) >= 0) unlinkSync(path);
  } catch {
    // Another user's, or removed meanwhile.
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
