// Writing a file whole or not at all. The bytes go to a file without a name (or a temporary one where the file system
// does not support that), reach the disk, and only then take the name, through the descriptor of the directory.

import {
  accessSync,
  type BigIntStats,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  write,
} from "node:fs";
import { constants as osConstants } from "node:os";
import { promisify } from "node:util";
import { type Denial, denial, pathDenial } from "../denial.js";
import { clearDrafts, draftName, holdDraft } from "./drafts.js";
import { descriptorName, errnoName, native, O_NOFOLLOW, OPEN_FLAGS } from "./native.js";
import { ioDenial } from "./read.js";
import type { PathTarget } from "./target.js";

const writeAsync = promisify(write);
const fsyncAsync = promisify(fsync);

const NEW_FILE_MODE = 0o600;
const NEW_DIRECTORY_MODE = 0o700;

export interface Written {
  readonly path: string;
  readonly created: boolean;
}

/** INVARIANT: on any failure the old file is as it was and nothing new is left in the directory. Closes the target. */
export async function writeTarget(
  target: PathTarget,
  data: Uint8Array,
  path: string,
  field: string,
  signal?: AbortSignal,
): Promise<Written | Denial> {
  const made: MadeDirectory[] = [];
  let done = false;
  try {
    checkReplaceable(target);
    makeDirectories(target, made);
    const failed = await writeInto(made.at(-1)?.fd ?? target.directory, target, data, signal);
    if (failed === "EEXIST") return pathDenial("created", field, path);
    if (failed !== undefined) return pathDenial("io", field, path, failed);
    done = true;
    const written = [target.directoryPath, ...target.missingDirectories, target.name].join("/");
    return { path: written, created: target.old === undefined };
  } catch (error) {
    if (signal?.aborted !== true) return ioDenial(error, path, field);
    const reason = "the call was cancelled before the file was written; nothing changed";
    return denial("IO_ERROR", "cancelled", reason, { field });
  } finally {
    if (!done) removeDirectories(made);
    for (const directory of made) closeSync(directory.fd);
    closeSync(target.directory);
  }
}

/** Replacing a name needs no right to the file itself, so a read-only file would be lost without asking. */
function checkReplaceable({ old, directory, name }: PathTarget): void {
  if (old === undefined) return;
  const fd = openSync(descriptorName(directory, name), OPEN_FLAGS.NAME_ONLY_NO_FOLLOW);
  try {
    accessSync(descriptorName(fd), constants.W_OK);
  } finally {
    closeSync(fd);
  }
}

interface MadeDirectory {
  readonly fd: number;
  readonly parent: number;
  readonly name: string;
}

function makeDirectories(target: PathTarget, made: MadeDirectory[]): void {
  let parent = target.directory;
  for (const name of target.missingDirectories) {
    const at = descriptorName(parent, name);
    mkdirSync(at, NEW_DIRECTORY_MODE);
    const fd = openSync(at, OPEN_FLAGS.DIRECTORY_NAME_ONLY | O_NOFOLLOW);
    made.push({ fd, parent, name });
    const readable = openSync(descriptorName(fd), OPEN_FLAGS.DIRECTORY_READ);
    try {
      giveToDirectoryOwner(parent, readable);
    } finally {
      closeSync(readable);
    }
    parent = fd;
  }
}

function removeDirectories(made: readonly MadeDirectory[]): void {
  // One that another process put something into meanwhile stays.
  for (const { parent, name } of [...made].reverse()) systemError(() => rmdirSync(descriptorName(parent, name)));
}

/** Undefined when it is written, else the name of the error. */
async function writeInto(
  directory: number,
  target: PathTarget,
  data: Uint8Array,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  clearDrafts(descriptorName(directory), fstatSync(directory));
  const draft = openDraft(directory);
  let published = false;
  try {
    holdDraft(draft.fd);
    await writeAll(draft.fd, data, signal);
    setOwnerAndMode(draft.fd, directory, target.old);
    await fsyncAsync(draft.fd);
    signal?.throwIfAborted();
    const publish = target.old === undefined ? takeFreeName : replaceName;
    const failed = publish(draft, directory, target.name);
    if (failed !== undefined) return failed;
    published = true;
    await syncDirectory(directory);
    return undefined;
  } finally {
    if (!published && draft.name !== undefined) unlinkQuietly(directory, draft.name);
    closeSync(draft.fd);
  }
}

interface Draft {
  readonly fd: number;
  /** Undefined while the file has no name at all. */
  readonly name: string | undefined;
}

/** What NFS, some FUSE and old kernels answer when asked for a nameless file. */
const NO_NAMELESS_FILES = ["EOPNOTSUPP", "ENOTSUP", "EISDIR", "EINVAL", "ENOENT"];

function openDraft(directory: number): Draft {
  if (native() !== undefined) {
    try {
      return { fd: openSync(descriptorName(directory), OPEN_FLAGS.NAMELESS_FILE, NEW_FILE_MODE), name: undefined };
    } catch (error) {
      if (!NO_NAMELESS_FILES.includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    }
  }
  const name = draftName();
  return { fd: openSync(descriptorName(directory, name), OPEN_FLAGS.NEW_FILE, NEW_FILE_MODE), name };
}

async function writeAll(fd: number, data: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
  // Small enough that a cancelled call is noticed soon.
  const chunk = 4 << 20;
  for (let done = 0; done < data.length; ) {
    signal?.throwIfAborted();
    const { bytesWritten } = await writeAsync(fd, data, done, Math.min(chunk, data.length - done), done);
    done += bytesWritten;
  }
}

/** The old file's owner and mode; where the owner cannot be kept, only the new owner has access. */
function setOwnerAndMode(fd: number, directory: number, old: BigIntStats | undefined): void {
  if (old === undefined) return giveToDirectoryOwner(directory, fd);
  const mode = Number(old.mode) & 0o777;
  const now = fstatSync(fd, { bigint: true });
  const sameOwner = now.uid === old.uid && now.gid === old.gid;
  const kept = sameOwner || tryChown(fd, Number(old.uid), Number(old.gid));
  fchmodSync(fd, kept ? mode : mode & 0o700);
}

/** Run by root, a new file belongs to the owner of its directory, who could not read it otherwise. */
function giveToDirectoryOwner(directory: number, fd: number): void {
  const owner = fstatSync(directory);
  if (process.getuid?.() === 0 && owner.uid !== 0) tryChown(fd, owner.uid, owner.gid);
}

function tryChown(fd: number, uid: number, gid: number): boolean {
  return systemError(() => fchownSync(fd, uid, gid)) === undefined;
}

/** Atomic, and fails for a name that is taken. */
function takeFreeName(draft: Draft, directory: number, name: string): string | undefined {
  const calls = native();
  if (draft.name === undefined) {
    const result = calls?.linkFile(draft.fd, directory, name) ?? -1;
    return result < 0 ? errnoName(result) : undefined;
  }
  const from = draft.name;
  const renamed = calls?.renameNoReplace(directory, from, directory, name) ?? -osConstants.errno.ENOSYS;
  if (renamed >= 0) return undefined;
  if (!["ENOSYS", "EINVAL"].includes(errnoName(renamed))) return errnoName(renamed);
  const failed = systemError(() => linkSync(descriptorName(directory, from), descriptorName(directory, name)));
  if (failed === undefined) unlinkQuietly(directory, from);
  return failed;
}

function replaceName(draft: Draft, directory: number, name: string): string | undefined {
  const from = draft.name ?? draftName();
  if (draft.name === undefined) {
    const linked = native()?.linkFile(draft.fd, directory, from) ?? -1;
    if (linked < 0) return errnoName(linked);
  }
  const failed = systemError(() => renameSync(descriptorName(directory, from), descriptorName(directory, name)));
  if (failed !== undefined) unlinkQuietly(directory, from);
  return failed;
}

function systemError(action: () => void): string | undefined {
  try {
    action();
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

function unlinkQuietly(directory: number, name: string): void {
  systemError(() => unlinkSync(descriptorName(directory, name)));
}

/** The name is on the disk, too, only when the directory is. */
async function syncDirectory(directory: number): Promise<void> {
  const fd = openSync(descriptorName(directory), OPEN_FLAGS.DIRECTORY_READ);
  try {
    await fsyncAsync(fd);
  } finally {
    closeSync(fd);
  }
}
