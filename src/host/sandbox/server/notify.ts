// Seccomp user notification: a filter that holds each call which names a path until the gateway has read it
// (include/uapi/linux/seccomp.h).

import { closeSync, openSync, readSync } from "node:fs";
import { loadKoffi } from "../../../lib/index.js";

const RETURN_NOTIFY = 0x7fc00000;
const RETURN_ALLOW = 0x7fff0000;
const LOAD = 0x20;
const IF_EQUAL = 0x15;
const RETURN = 0x06;

type Kind = "look" | "open" | "change";

/** Number, position of the path, position of the directory it is relative to. */
type Watched = readonly [number: number, path: number, directory: number | undefined, kind: Kind];

const X64: readonly Watched[] = [
  [2, 0, undefined, "open"], // open
  [257, 1, 0, "open"], // openat
  [4, 0, undefined, "look"], // stat
  [6, 0, undefined, "look"], // lstat
  [21, 0, undefined, "look"], // access
  [59, 0, undefined, "look"], // execve
  [262, 1, 0, "look"], // newfstatat
  [269, 1, 0, "look"], // faccessat
  [332, 1, 0, "look"], // statx
  [439, 1, 0, "look"], // faccessat2
  [82, 0, undefined, "change"], // rename
  [83, 0, undefined, "change"], // mkdir
  [87, 0, undefined, "change"], // unlink
  [258, 1, 0, "change"], // mkdirat
  [263, 1, 0, "change"], // unlinkat
  [264, 1, 0, "change"], // renameat
  [316, 1, 0, "change"], // renameat2
];

const ARM64: readonly Watched[] = [
  [56, 1, 0, "open"],
  [79, 1, 0, "look"],
  [48, 1, 0, "look"],
  [221, 0, undefined, "look"],
  [291, 1, 0, "look"],
  [439, 1, 0, "look"],
  [34, 1, 0, "change"],
  [35, 1, 0, "change"],
  [276, 1, 0, "change"],
];

const WATCHED: Readonly<Record<string, readonly Watched[]>> = { x64: X64, arm64: ARM64 };

/** Undefined where the architecture's call numbers are not known. */
export function observingProgram(architecture: string): Buffer | undefined {
  const watched = WATCHED[architecture];
  if (watched === undefined) return undefined;
  const numbers = watched.map(([number]) => number);
  const instructions = [
    [LOAD, 0, 0, 0],
    ...numbers.map((number, i) => [IF_EQUAL, numbers.length - i, 0, number] as const),
    [RETURN, 0, 0, RETURN_ALLOW],
    [RETURN, 0, 0, RETURN_NOTIFY],
  ] as const;
  const bytes = Buffer.alloc(instructions.length * 8);
  for (const [i, [code, ifTrue, ifFalse, value]] of instructions.entries()) {
    bytes.writeUInt16LE(code, i * 8);
    bytes.writeUInt8(ifTrue, i * 8 + 2);
    bytes.writeUInt8(ifFalse, i * 8 + 3);
    bytes.writeUInt32LE(value, i * 8 + 4);
  }
  return bytes;
}

/** A call that waits until it may proceed. */
export interface HeldCall {
  readonly id: bigint;
  readonly pid: number;
  /** Undefined: the path is relative to the working directory. */
  readonly directory: number | undefined;
  readonly path: string;
  readonly isWrite: boolean;
}

export interface NotificationReader {
  /** The next call that waits. Throws when no process is left. */
  next(): HeldCall | undefined;
  proceed(call: HeldCall): void;
  close(): void;
}

const PIDFD_OPEN = 434;
const PIDFD_GETFD = 438;
const NOTIF_RECV = 0xc0502100;
const NOTIF_SEND = 0xc0182101;
const CONTINUE = 1;
const NOTIFICATION_BYTES = 80;
const RESPONSE_BYTES = 24;
const POLLIN = 1;
const POLLHUP = 16;
const MAX_PATH = 4_096;
const PAGE = 4_096;
/** O_WRONLY, O_RDWR, O_CREAT, O_TRUNC. */
const WRITES = 0o1 | 0o2 | 0o100 | 0o1000;

/** Takes the listener `fd` out of process `pid`; undefined where the kernel does not allow it. */
export function notificationReader(pid: number, fd: number): NotificationReader | undefined {
  const ffi = loadKoffi();
  const watched = WATCHED[process.arch];
  if (ffi === undefined || watched === undefined) return undefined;
  const libc = ffi.load(null);
  const syscall = libc.func("syscall", "long", ["long", "long", "long", "long"]);
  const ioctl = libc.func("ioctl", "int", ["int", "ulong", "void*"]);
  const poll = libc.func("poll", "int", ["void*", "ulong", "int"]);
  const handle = syscall(PIDFD_OPEN, pid, 0, 0);
  if (handle < 0) return undefined;
  const listener = syscall(PIDFD_GETFD, handle, fd, 0);
  closeSync(handle);
  if (listener < 0) return undefined;
  const byNumber = new Map(watched.map((each) => [each[0], each]));
  const state = Buffer.alloc(8);
  return {
    next() {
      state.writeInt32LE(listener, 0);
      state.writeInt16LE(POLLIN, 4);
      state.writeInt16LE(0, 6);
      if (poll(state, 1, 0) <= 0) return undefined;
      const events = state.readInt16LE(6);
      if ((events & POLLIN) === 0) {
        if ((events & POLLHUP) !== 0) throw new Error("no process is left");
        return undefined;
      }
      const notification = Buffer.alloc(NOTIFICATION_BYTES);
      if (ioctl(listener, NOTIF_RECV, notification) < 0) return undefined;
      return callOf(notification, byNumber.get(notification.readInt32LE(16)));
    },
    proceed({ id }) {
      const response = Buffer.alloc(RESPONSE_BYTES);
      response.writeBigUInt64LE(id, 0);
      response.writeUInt32LE(CONTINUE, 20);
      // The process may have ended meanwhile.
      ioctl(listener, NOTIF_SEND, response);
    },
    close: () => closeSync(listener),
  };
}

function callOf(notification: Buffer, watched: Watched | undefined): HeldCall {
  const id = notification.readBigUInt64LE(0);
  const pid = notification.readUInt32LE(8);
  const argument = (index: number): bigint => notification.readBigUInt64LE(32 + 8 * index);
  if (watched === undefined) return { id, pid, directory: undefined, path: "", isWrite: false };
  const [, at, directory, kind] = watched;
  const handle = directory === undefined ? -1 : Number(BigInt.asIntN(32, argument(directory)));
  const isWrite = kind === "change" || (kind === "open" && (Number(argument(at + 1) & 0xffffn) & WRITES) !== 0);
  return { id, pid, directory: handle < 0 ? undefined : handle, path: textAt(pid, argument(at)), isWrite };
}

/** A path in the memory of a process; it may end at the end of a page. */
function textAt(pid: number, address: bigint): string {
  const bytes: Buffer[] = [];
  let memory: number | undefined;
  try {
    memory = openSync(`/proc/${pid}/mem`, "r");
    let from = address;
    for (let length = 0; length < MAX_PATH; ) {
      const chunk = Buffer.alloc(PAGE - Number(from % BigInt(PAGE)));
      const read = readSync(memory, chunk, 0, chunk.length, from);
      if (read === 0) return "";
      const end = chunk.subarray(0, read).indexOf(0);
      bytes.push(chunk.subarray(0, end < 0 ? read : end));
      if (end >= 0) return Buffer.concat(bytes).toString("utf8");
      from += BigInt(read);
      length += read;
    }
    return "";
  } catch {
    return "";
  } finally {
    if (memory !== undefined) closeSync(memory);
  }
}
