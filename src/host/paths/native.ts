// The few system calls that Node does not offer, with the open flags they take. They come through koffi (prebuilt, no
// install script); where it cannot load, paths are opened by way of /proc, which is slower, and the report says so.

import { constants } from "node:fs";
import { constants as osConstants } from "node:os";
import { loadKoffi } from "../../lib/index.js";

// Node's own table lacks O_PATH and O_TMPFILE. None of these differs between x64 and arm64 except O_DIRECTORY and
// O_NOFOLLOW, which Node knows.
const O_PATH = 0o10000000;
export const O_CLOEXEC = 0o2000000;
const O_TMPFILE_BIT = 0o20000000;
const O_DIRECTORY = constants.O_DIRECTORY ?? 0;
export const O_NOFOLLOW = constants.O_NOFOLLOW ?? 0;

const NAME_ONLY = O_PATH | O_CLOEXEC;

export const OPEN_FLAGS = {
  /** A handle that names a file without opening it: no side effect on a device, no waiting on a FIFO. */
  NAME_ONLY,
  NAME_ONLY_NO_FOLLOW: NAME_ONLY | O_NOFOLLOW,
  DIRECTORY_NAME_ONLY: NAME_ONLY | O_DIRECTORY,
  /** A nameless file in a directory: it disappears when the process ends before it got a name. */
  NAMELESS_FILE: O_TMPFILE_BIT | O_DIRECTORY | constants.O_WRONLY | O_CLOEXEC,
  READ: constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOCTTY ?? 0) | O_CLOEXEC,
  DIRECTORY_READ: constants.O_RDONLY | O_DIRECTORY | O_CLOEXEC,
  NEW_FILE: constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | O_NOFOLLOW | O_CLOEXEC,
} as const;

const NO_MAGICLINKS = 0x02;
const NO_SYMLINKS = 0x04;

export const RESOLVE = {
  NO_XDEV: 0x01,
  BENEATH: 0x08,
  /** Relative links may be followed. */
  LINKS: NO_MAGICLINKS,
  /** No link is followed anywhere on the way. */
  NO_LINKS: NO_MAGICLINKS | NO_SYMLINKS,
} as const;

const AT_FDCWD = -100;
const AT_SYMLINK_FOLLOW = 0x400;
const RENAME_NOREPLACE = 1;
const LOCK_EX_OR_FAIL = 2 | 4;

const SYSCALL_OPENAT2 = 437; // the same number on every architecture since it was added
const SYSCALL_RENAMEAT2: Readonly<Record<string, number>> = { x64: 316, arm64: 276 };

/** Calls return a descriptor or 0, or the negative errno. An undefined directory is the current one. */
export interface Native {
  openat2(directory: number | undefined, path: string, flags: number, resolve: number): number;
  openat(directory: number | undefined, path: string, flags: number): number;
  /** Gives the nameless file behind `/proc/self/fd/<fd>` a name; fails for an existing one. */
  linkFile(fd: number, directory: number, name: string): number;
  /** Fails with ENOSYS or EINVAL where the kernel or the file system cannot do it. */
  renameNoReplace(from: number, fromName: string, to: number, toName: string): number;
  changeDirectory(fd: number): number;
  /** Takes the file's lock for this process; fails when another process holds it. */
  lockFile(fd: number): number;
  /** A pipe whose ends are closed in children. Throws when there is none. */
  pipe(): [read: number, write: number];
}

let bound: Native | null | undefined;

export function native(): Native | undefined {
  if (bound === undefined) bound = process.platform === "linux" ? bind() : null;
  return bound ?? undefined;
}

function bind(): Native | null {
  const ffi = loadKoffi();
  if (ffi === undefined) return null;
  try {
    const libc = ffi.load(null);
    const openCall = libc.func("syscall", "long", ["long", "int", "str", "void*", "size_t"]);
    const renameCall = libc.func("syscall", "long", ["long", "int", "str", "int", "str", "uint"]);
    const openat = libc.func("openat", "int", ["int", "str", "int", "int"]);
    const linkat = libc.func("linkat", "int", ["int", "str", "int", "str", "int"]);
    const fchdir = libc.func("fchdir", "int", ["int"]);
    const flock = libc.func("flock", "int", ["int", "int"]);
    const pipe2 = libc.func("pipe2", "int", ["void*", "int"]);
    const how = Buffer.alloc(24);
    const orErrno = (result: number): number => (result < 0 ? -ffi.errno() : result);
    return {
      openat2(directory, path, flags, resolve) {
        how.fill(0);
        how.writeBigUInt64LE(BigInt(flags), 0);
        how.writeBigUInt64LE(BigInt(resolve), 16);
        return orErrno(openCall(SYSCALL_OPENAT2, directory ?? AT_FDCWD, path, how, how.length));
      },
      openat: (directory, path, flags) => orErrno(openat(directory ?? AT_FDCWD, path, flags, 0)),
      linkFile: (fd, to, name) => orErrno(linkat(AT_FDCWD, `/proc/self/fd/${fd}`, to, name, AT_SYMLINK_FOLLOW)),
      renameNoReplace(from, fromName, to, toName) {
        const number = SYSCALL_RENAMEAT2[process.arch];
        if (number === undefined) return -osConstants.errno.ENOSYS;
        return orErrno(renameCall(number, from, fromName, to, toName, RENAME_NOREPLACE));
      },
      changeDirectory: (fd) => orErrno(fchdir(fd)),
      lockFile: (fd) => orErrno(flock(fd, LOCK_EX_OR_FAIL)),
      pipe() {
        const ends = Buffer.alloc(8);
        const made = orErrno(pipe2(ends, O_CLOEXEC));
        if (made < 0) throw new Error(`pipe: ${errnoName(made)}`);
        return [ends.readInt32LE(0), ends.readInt32LE(4)];
      },
    };
  } catch {
    return null;
  }
}

// Of two names for one number (EAGAIN and EWOULDBLOCK) the first counts, hence the reverse: a map keeps the last.
const names = new Map<number, string>(
  Object.entries(osConstants.errno)
    .sort(([a], [b]) => (a < b ? 1 : -1))
    .map(([name, number]) => [number, name]),
);

/** `ENOENT` for -2. */
export function errnoName(result: number): string {
  return names.get(-result) ?? `errno ${-result}`;
}

/** The path by which an open descriptor, or a name in an open directory, is reached. */
export function descriptorName(fd: number, name?: string): string {
  return name === undefined ? `/proc/self/fd/${fd}` : `/proc/self/fd/${fd}/${name}`;
}
