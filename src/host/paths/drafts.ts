// A file that is to replace another has a name of its own for the moment between getting one and taking the other's:
// no system call replaces a name by a nameless file. A host that is killed in that moment leaves it behind, so
// whoever next writes in that folder clears it away. A living writer holds a lock on its draft; the kernel drops the
// lock with the process, whichever container it ran in.

import { randomBytes } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readdirSync, type Stats, unlinkSync } from "node:fs";
import { READ } from "./flags.js";
import { native } from "./native.js";

const DRAFT = /^\.portcullis-[0-9a-f]{24}\.tmp$/;
/** A draft that was only just made may not be locked yet. */
const MIN_AGE_MS = 60_000;
/** Where locks cannot be asked for, age alone decides. */
const MIN_AGE_WITHOUT_LOCKS_MS = 24 * 60 * 60_000;
const LOOK_AGAIN_MS = 60 * 60_000;
const MAX_CLEARED = 256;
const MAX_REMEMBERED = 1024;

export function draftName(): string {
  return `.portcullis-${randomBytes(12).toString("hex")}.tmp`;
}

export function isDraftName(name: string): boolean {
  return DRAFT.test(name);
}

/** Says that the draft's writer lives. Best effort: without it, its age protects it. */
export function holdDraft(fd: number): void {
  native()?.lockFile(fd);
}

/** When a folder was last looked through. Inode numbers are used again, so the time of birth goes with them. */
const looked = new Map<string, number>();

/** Now and then for each folder, since it takes reading it: drafts are rare, and we clear up after ourselves. */
export function clearDrafts(folder: string, { dev, ino, birthtimeMs }: Stats): void {
  const key = `${dev}:${ino}:${birthtimeMs}`;
  if (Date.now() - (looked.get(key) ?? 0) < LOOK_AGAIN_MS) return;
  if (looked.size >= MAX_REMEMBERED) looked.clear();
  looked.set(key, Date.now());
  try {
    for (const name of readdirSync(folder).filter(isDraftName).slice(0, MAX_CLEARED)) clearDraft(`${folder}/${name}`);
  } catch {
    // A folder that cannot be read can be written to all the same.
  }
}

function clearDraft(path: string): void {
  let fd: number | undefined;
  try {
    fd = openSync(path, READ | (constants.O_NOFOLLOW ?? 0));
    const { mtimeMs, nlink } = fstatSync(fd);
    const calls = native();
    const minAgeMs = calls === undefined ? MIN_AGE_WITHOUT_LOCKS_MS : MIN_AGE_MS;
    if (!fstatSync(fd).isFile() || nlink !== 1 || Date.now() - mtimeMs < minAgeMs) return;
    if (calls === undefined || calls.lockFile(fd) >= 0) unlinkSync(path);
  } catch {
    // Somebody else's, or gone by now.
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
