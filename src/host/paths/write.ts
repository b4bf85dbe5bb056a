// Writing a file whole or not at all. The bytes go to a file without a name (or a temporary one where the file system
// has no such thing), reach the disk, and only then take the name, through the descriptor of the folder.

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
import { type Denial, denial, quoteValue } from "../denial.js";
import { clearDrafts, draftName, holdDraft } from "./drafts.js";
import { FOLDER_NAME_ONLY, FOLDER_READ, NAMELESS_FILE, NAME_ONLY_NO_FOLLOW, NEW_FILE } from "./flags.js";
import { errnoName, native } from "./native.js";
import { ioDenial } from "./read.js";
import type { PathTarget } from "./target.js";

const writeAsync = promisify(write);
const fsyncAsync = promisify(fsync);

const NEW_FILE_MODE = 0o600;
const NEW_FOLDER_MODE = 0o700;

export interface Written {
  readonly path: string;
  readonly created: boolean;
}

/** INVARIANT: on any failure the old file is as it was and nothing new is left in the folder. Closes the target. */
export async function writeTarget(
  target: PathTarget,
  data: Uint8Array,
  path: string,
  field: string,
  signal?: AbortSignal,
): Promise<Written | Denial> {
  const made: MadeFolder[] = [];
  let done = false;
  try {
    checkWritable(target);
    makeFolders(target, made);
    const folder = made.at(-1)?.fd ?? target.folder;
    const refused = await writeInto(folder, target, data, path, field, signal);
    if (refused !== undefined) return refused;
    done = true;
    return {
      path: [target.folderPath, ...target.missingFolders, target.name].join("/"),
      created: target.old === undefined,
    };
  } catch (error) {
    return signal?.aborted === true ? cancelled(field) : ioDenial(error, path, field);
  } finally {
    if (!done) removeFolders(made);
    for (const folder of made) closeSync(folder.fd);
    closeSync(target.folder);
  }
}

function cancelled(field: string): Denial {
  return denial("IO_ERROR", "cancelled", "the call was cancelled before the file was written; nothing changed", {
    field,
  });
}

/** Replacing a name needs no right to the file itself, so a read-only file would be lost without asking. */
function checkWritable(target: PathTarget): void {
  if (target.old === undefined) return;
  const fd = openSync(`/proc/self/fd/${target.folder}/${target.name}`, NAME_ONLY_NO_FOLLOW);
  try {
    accessSync(`/proc/self/fd/${fd}`, constants.W_OK);
  } finally {
    closeSync(fd);
  }
}

interface MadeFolder {
  readonly fd: number;
  readonly parent: number;
  readonly name: string;
}

function makeFolders(target: PathTarget, made: MadeFolder[]): void {
  let parent = target.folder;
  for (const name of target.missingFolders) {
    const at = `/proc/self/fd/${parent}/${name}`;
    mkdirSync(at, NEW_FOLDER_MODE);
    const fd = openSync(at, FOLDER_NAME_ONLY | (constants.O_NOFOLLOW ?? 0));
    made.push({ fd, parent, name });
    giveToFolderOwner(parent, openSync(`/proc/self/fd/${fd}`, FOLDER_READ));
    parent = fd;
  }
}

function removeFolders(made: readonly MadeFolder[]): void {
  for (const folder of [...made].reverse()) {
    try {
      rmdirSync(`/proc/self/fd/${folder.parent}/${folder.name}`);
    } catch {
      // Somebody else put something into it meanwhile: then it is theirs.
    }
  }
}

async function writeInto(
  folder: number,
  target: PathTarget,
  data: Uint8Array,
  path: string,
  field: string,
  signal: AbortSignal | undefined,
): Promise<Denial | undefined> {
  clearDrafts(`/proc/self/fd/${folder}`, fstatSync(folder));
  const draft = openDraft(folder);
  let published = false;
  try {
    holdDraft(draft.fd);
    await writeAll(draft.fd, data, signal);
    setOwnerAndMode(draft.fd, folder, target.old);
    await fsyncAsync(draft.fd);
    signal?.throwIfAborted();
    const refused = publish(draft, folder, target, path, field);
    if (refused !== undefined) return refused;
    published = true;
    await syncFolder(folder);
    return undefined;
  } finally {
    if (!published && draft.name !== undefined) unlinkQuietly(folder, draft.name);
    closeSync(draft.fd);
  }
}

interface Draft {
  readonly fd: number;
  /** Undefined while the file has no name at all. */
  readonly name: string | undefined;
}

function openDraft(folder: number): Draft {
  if (native() !== undefined) {
    try {
      return { fd: openSync(`/proc/self/fd/${folder}`, NAMELESS_FILE, NEW_FILE_MODE), name: undefined };
    } catch (error) {
      // NFS, some FUSE and old kernels have no nameless files.
      const code = (error as NodeJS.ErrnoException).code ?? "";
      if (!["EOPNOTSUPP", "ENOTSUP", "EISDIR", "EINVAL", "ENOENT"].includes(code)) throw error;
    }
  }
  const name = draftName();
  return { fd: openSync(`/proc/self/fd/${folder}/${name}`, NEW_FILE, NEW_FILE_MODE), name };
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

/** The old file's owner and mode; where the owner cannot be kept, nobody but the new owner gets in. */
function setOwnerAndMode(fd: number, folder: number, old: BigIntStats | undefined): void {
  if (old === undefined) {
    giveToFolderOwner(folder, fd, false);
    return;
  }
  const mode = Number(old.mode) & 0o777;
  const now = fstatSync(fd, { bigint: true });
  const sameOwner = now.uid === old.uid && now.gid === old.gid;
  const kept = sameOwner || tryChown(fd, Number(old.uid), Number(old.gid));
  fchmodSync(fd, kept ? mode : mode & 0o700);
}

/** Run by root, a new file in somebody's folder is theirs, or they could not read what was written for them. */
function giveToFolderOwner(folder: number, fd: number, close = true): void {
  try {
    const owner = fstatSync(folder);
    if (process.getuid?.() === 0 && owner.uid !== 0) tryChown(fd, owner.uid, owner.gid);
  } finally {
    if (close) closeSync(fd);
  }
}

function tryChown(fd: number, uid: number, gid: number): boolean {
  try {
    fchownSync(fd, uid, gid);
    return true;
  } catch {
    return false;
  }
}

function publish(draft: Draft, folder: number, target: PathTarget, path: string, field: string): Denial | undefined {
  const taken =
    target.old === undefined ? takeFreeName(draft, folder, target.name) : replaceName(draft, folder, target.name);
  if (taken === undefined) return undefined;
  if (taken !== "EEXIST") return denial("IO_ERROR", "io", `${field} ${quoteValue(path)}: ${taken}`, { field });
  return denial(
    "POLICY_DENY",
    "exists",
    `${field} ${quoteValue(path)} came into being meanwhile and was left as it is`,
    {
      field,
    },
  );
}

/** Atomic, and refuses a name that is taken. */
function takeFreeName(draft: Draft, folder: number, name: string): string | undefined {
  const calls = native();
  if (draft.name === undefined) {
    const result = calls?.linkFile(draft.fd, folder, name) ?? -1;
    return result < 0 ? errnoName(result) : undefined;
  }
  const renamed = calls?.renameNoReplace(folder, draft.name, name) ?? -osConstants.errno.ENOSYS;
  if (renamed >= 0) return undefined;
  if (!["ENOSYS", "EINVAL"].includes(errnoName(renamed))) return errnoName(renamed);
  const failed = systemError(() =>
    linkSync(`/proc/self/fd/${folder}/${draft.name}`, `/proc/self/fd/${folder}/${name}`),
  );
  if (failed === undefined) unlinkQuietly(folder, draft.name);
  return failed;
}

function replaceName(draft: Draft, folder: number, name: string): string | undefined {
  let from = draft.name;
  if (from === undefined) {
    from = draftName();
    const linked = native()?.linkFile(draft.fd, folder, from) ?? -1;
    if (linked < 0) return errnoName(linked);
  }
  const failed = systemError(() => renameSync(`/proc/self/fd/${folder}/${from}`, `/proc/self/fd/${folder}/${name}`));
  if (failed !== undefined) unlinkQuietly(folder, from);
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

function unlinkQuietly(folder: number, name: string): void {
  systemError(() => unlinkSync(`/proc/self/fd/${folder}/${name}`));
}

/** The name is on the disk, too, only when the folder is. */
async function syncFolder(folder: number): Promise<void> {
  const fd = openSync(`/proc/self/fd/${folder}`, FOLDER_READ);
  try {
    await fsyncAsync(fd);
  } finally {
    closeSync(fd);
  }
}
