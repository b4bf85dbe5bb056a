import { closeSync, constants, openSync } from "node:fs";
import { constants as os } from "node:os";
import { loadKoffi } from "./koffi.js";

const LOCK_EX_OR_FAIL = 2 | 4;

/** `unsupported`: no koffi, Windows, or a file system without locks. */
export type KernelLock = { release(): void } | "held" | "unsupported";

/**
 * Takes the kernel's lock (flock) on a file, which is created when it is absent. The kernel releases it when the process
 * ends, however it ends, and it holds between containers that share the file on one machine.
 */
export function takeKernelLock(path: string, mode = 0o600): KernelLock {
  const ffi = process.platform === "win32" ? undefined : loadKoffi();
  if (ffi === undefined) return "unsupported";
  // For reading only, so that a disk in trouble can still be remounted read-only.
  const fd = openSync(path, constants.O_RDONLY | constants.O_CREAT, mode);
  let result = -1;
  let errno = 0;
  try {
    result = flock(ffi)(fd, LOCK_EX_OR_FAIL);
    errno = ffi.errno();
  } catch {
    errno = os.errno.ENOSYS;
  }
  if (result === 0) return { release: () => closeSync(fd) };
  closeSync(fd);
  return errno === os.errno.EWOULDBLOCK || errno === os.errno.EAGAIN ? "held" : "unsupported";
}

let bound: ((...args: unknown[]) => number) | undefined;

function flock(ffi: NonNullable<ReturnType<typeof loadKoffi>>): (...args: unknown[]) => number {
  bound ??= ffi.load(null).func("flock", "int", ["int", "int"]);
  return bound;
}
