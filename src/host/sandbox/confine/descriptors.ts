// Descriptors of the supervisor: those it inherited, those it gives a command, and those it keeps because what they name
// can no longer be opened under its own confinement.

import { closeSync, openSync, readdirSync, readFileSync, readSync } from "node:fs";
import { Socket } from "node:net";
import { constants } from "node:os";
import { openBelow } from "../../paths/locate.js";
import { native, O_CLOEXEC, O_NOFOLLOW, OPEN_FLAGS, RESOLVE } from "../../paths/native.js";

const FIRST_INHERITED = 3;

/**
 * Closes descriptors that the host's starter left open: commands would inherit them, because Node closes only the first
 * few to its children. Descriptors that this process opened itself are closed to children and stay.
 */
export function closeInherited(except: readonly number[] = []): void {
  if (process.platform !== "linux") return;
  for (const fd of openDescriptors()) {
    if (fd >= FIRST_INHERITED && !except.includes(fd) && isInheritable(fd)) closeSync(fd);
  }
}

function openDescriptors(): number[] {
  try {
    return readdirSync("/proc/self/fd").map(Number);
  } catch {
    return []; // No /proc, no list.
  }
}

/** False for the descriptor that listed the others, which is closed by now. */
function isInheritable(fd: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    return false;
  }
}

const MAX_CHILDREN_BYTES = 65_536;

/**
 * A reader of the list of this process's children, opened while /proc can still be reached. The list is empty where the
 * kernel keeps none.
 */
export function openChildren(): () => number[] {
  let fd: number;
  try {
    fd = openSync("/proc/thread-self/children", "r");
  } catch {
    return () => [];
  }
  return () => {
    const bytes = Buffer.alloc(MAX_CHILDREN_BYTES);
    const text = bytes.toString("latin1", 0, readSync(fd, bytes, 0, MAX_CHILDREN_BYTES, 0));
    return text.split(" ").filter(Boolean).map(Number);
  };
}

/**
 * Real pipes for a command's input and output. Node would give it sockets, which cannot be opened again by name, so
 * neither /dev/stdin nor /dev/stdout would work.
 */
export interface Pipes {
  /** For the command. */
  readonly stdio: ["ignore" | number, number, number];
  readonly stdin: Socket | undefined;
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** Called when the command has its own. */
  closeTheirs(): void;
  /** Called when the command could not be started. */
  destroy(): void;
}

/** Undefined where the platform has no way to make them. */
export function makePipes(withInput: boolean): Pipes | undefined {
  const calls = native();
  if (calls === undefined) return undefined;
  const input = withInput ? calls.pipe() : undefined;
  const output = calls.pipe();
  const errors = calls.pipe();
  const theirs = [...(input === undefined ? [] : [input[0]]), output[1], errors[1]];
  const stdin = input === undefined ? undefined : new Socket({ fd: input[1], readable: false, writable: true });
  const stdout = new Socket({ fd: output[0], readable: true, writable: false });
  const stderr = new Socket({ fd: errors[0], readable: true, writable: false });
  const closeTheirs = (): void => theirs.splice(0).forEach((fd) => closeSync(fd));
  return {
    stdio: [input?.[0] ?? "ignore", output[1], errors[1]],
    stdin,
    stdout,
    stderr,
    closeTheirs,
    destroy() {
      closeTheirs();
      for (const own of [stdin, stdout, stderr]) own?.destroy();
    },
  };
}

const { errno } = constants;

/**
 * Opens a directory with no link followed anywhere on the way, step by step where the supervisor's own filter closes
 * openat2, of which a filter cannot see the mode that a new file would get. Returns a descriptor or a negative errno.
 * INVARIANT: `rest` has no `..`.
 */
export function openDirectory(place: string, rest: string): number {
  const opened = openBelow(
    { path: place, written: place },
    rest.replace(/^\/+/, "") || ".",
    OPEN_FLAGS.DIRECTORY_NAME_ONLY,
    RESOLVE.NO_LINKS,
  );
  return opened === -errno.ENOSYS ? walkDown(`${place}/${rest}`) : opened;
}

function walkDown(path: string): number {
  const calls = native();
  if (calls === undefined) return -errno.ENOSYS;
  let fd = calls.openat(undefined, "/", OPEN_FLAGS.DIRECTORY_NAME_ONLY | O_NOFOLLOW);
  // The dot at the end asks whether the directory itself may be entered.
  for (const name of [...path.split("/").filter((part) => part !== "" && part !== "."), "."]) {
    if (fd < 0) return fd;
    const next = name === ".." ? -errno.EXDEV : calls.openat(fd, name, OPEN_FLAGS.DIRECTORY_NAME_ONLY | O_NOFOLLOW);
    closeSync(fd);
    fd = next;
  }
  return fd;
}
