// The few system calls that Node does not offer. They come through koffi (prebuilt, no install script); where it cannot
// load, everything still works by way of /proc, only slower, and the report says so.

import { constants as osConstants } from "node:os";
import { loadKoffi } from "../../lib/index.js";

const AT_FDCWD = -100;
const AT_SYMLINK_FOLLOW = 0x400;
const RENAME_NOREPLACE = 1;
const LOCK_EX_OR_FAIL = 2 | 4;

const SYSCALL_OPENAT2 = 437; // the same number on every architecture since it was added
const SYSCALL_RENAMEAT2: Readonly<Record<string, number>> = { x64: 316, arm64: 276 };

/** Calls give a descriptor or 0, or the negative errno. */
export interface Native {
  openat2(folder: number | undefined, path: string, flags: number, resolve: number): number;
  /** Gives the nameless file behind `/proc/self/fd/<fd>` a name; refuses an existing one. */
  linkFile(fd: number, folder: number, name: string): number;
  renameNoReplace(folder: number, from: string, to: string): number;
  changeFolder(fd: number): number;
  /** Takes the file's lock for this process, or says that another has it. */
  lockFile(fd: number): number;
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
    const linkat = libc.func("linkat", "int", ["int", "str", "int", "str", "int"]);
    const fchdir = libc.func("fchdir", "int", ["int"]);
    const flock = libc.func("flock", "int", ["int", "int"]);
    const how = Buffer.alloc(24);
    const orErrno = (result: number): number => (result < 0 ? -ffi.errno() : result);
    return {
      openat2(folder, path, flags, resolve) {
        how.fill(0);
        how.writeBigUInt64LE(BigInt(flags), 0);
        how.writeBigUInt64LE(BigInt(resolve), 16);
        return orErrno(openCall(SYSCALL_OPENAT2, folder ?? AT_FDCWD, path, how, how.length));
      },
      linkFile: (fd, folder, name) => orErrno(linkat(AT_FDCWD, `/proc/self/fd/${fd}`, folder, name, AT_SYMLINK_FOLLOW)),
      renameNoReplace(folder, from, to) {
        const number = SYSCALL_RENAMEAT2[process.arch];
        if (number === undefined) return -osConstants.errno.ENOSYS;
        return orErrno(renameCall(number, folder, from, folder, to, RENAME_NOREPLACE));
      },
      changeFolder: (fd) => orErrno(fchdir(fd)),
      lockFile: (fd) => orErrno(flock(fd, LOCK_EX_OR_FAIL)),
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
