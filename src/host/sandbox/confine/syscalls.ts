// System calls by number, for the calls that libc does not wrap or would apply to all threads at once. Numbers from the
// kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).

import { type Koffi, loadKoffi } from "../../../lib/index.js";
import { errnoName, O_CLOEXEC } from "../../paths/native.js";

const TABLES = {
  x64: { setgroups: 116, setresuid: 117, setresgid: 119, capset: 126, pivotRoot: 155, seccomp: 317 },
  arm64: { setgroups: 159, setresuid: 147, setresgid: 149, capset: 91, pivotRoot: 41, seccomp: 277 },
} as const;

/** Added after the numbers became the same on every architecture. */
const LANDLOCK_CREATE = 444;
const LANDLOCK_ADD = 445;
const LANDLOCK_RESTRICT = 446;
const MOUNT_SETATTR = 442;
const OPEN_TREE = 428;
const MOVE_MOUNT = 429;

/** Flags of mount(2). */
export const MS = {
  RDONLY: 1,
  NOSUID: 2,
  NODEV: 4,
  NOEXEC: 8,
  BIND: 4096,
  REC: 16384,
  PRIVATE: 1 << 18,
} as const;

/** Flags of mount_setattr(2). */
export const ATTR = { RDONLY: 1, NOSUID: 2, NODEV: 4, NOEXEC: 8 } as const;

/** Namespaces for unshare(2) and setns(2). */
export const CLONE = {
  NEWNS: 0x00020000,
  NEWUTS: 0x04000000,
  NEWIPC: 0x08000000,
  NEWPID: 0x20000000,
  NEWNET: 0x40000000,
} as const;

const OPEN_TREE_CLONE = 1;
const AT_FDCWD = -100;
const AT_EMPTY_PATH = 0x1000;
const AT_RECURSIVE = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH = 0x4;
const MOUNT_ATTR_IDMAP = 0x00100000;
const MNT_DETACH = 2;
const WNOHANG = 1;
const SECCOMP_SET_MODE_FILTER = 1;
const SECCOMP_NEW_LISTENER = 8;
const F_SETFD = 2;
const LAST_SIGNAL = 31;
const AF_INET = 2;
const SOCK_DGRAM = 2;
const SIOCSIFFLAGS = 0x8914;
const IFF_UP_RUNNING = 0x41;

/** Resources of setrlimit(2). */
export const LIMIT = { FSIZE: 1, DATA: 2, CORE: 4, NPROC: 6 } as const;

/** Each returns a value ≥ 0 or the negative errno. They act on the calling thread, or on the process where stated. */
export interface Kernel {
  unshare(flags: number): number;
  setns(fd: number, type: number): number;
  mount(source: string | null, target: string, type: string | null, flags: number, data: string | null): number;
  unmountLazily(target: string): number;
  setMountFlags(path: string, set: number, recursive: boolean): number;
  /** A detached copy of the mount behind a descriptor, that directory and below. */
  cloneMount(fd: number): number;
  mapMountIds(tree: number, userNamespace: number): number;
  moveMount(tree: number, target: string): number;
  pivotRootHere(): number;
  prctl(option: number, a: number, b?: number): number;
  setUser(uid: number, gid: number): number;
  setCapabilities(effective: bigint, inheritable: bigint): number;
  landlockVersion(): number;
  landlockCreate(attributes: Buffer): number;
  landlockAddPath(ruleset: number, rule: Buffer): number;
  landlockRestrict(ruleset: number): number;
  seccompFilter(program: Buffer): number;
  /** The same, and returns the descriptor by which another process reads the calls that the filter holds. */
  seccompListener(program: Buffer): number;
  /** Becomes another program, with default signal actions and the first three descriptors. Returns only on failure. */
  execute(path: string, argv: readonly string[], env: Readonly<Record<string, string>>): number;
  /** Reaps one dead child; 0 when there is none, negative when there are no children. */
  reapOne(): number;
  /** Makes the loopback device of a new network namespace usable. */
  startLoopback(): number;
  /** Soft and hard limit of this process and what it becomes. */
  setLimit(resource: number, value: number): number;
}

export function kernel(): Kernel | undefined {
  const { arch, platform } = process;
  const ffi = platform === "linux" && (arch === "x64" || arch === "arm64") ? loadKoffi() : undefined;
  if (ffi === undefined) return undefined;
  try {
    return bind(ffi, TABLES[arch as keyof typeof TABLES]);
  } catch {
    return undefined;
  }
}

function bind(ffi: Koffi, numbers: (typeof TABLES)[keyof typeof TABLES]): Kernel {
  const libc = ffi.load(null);
  const call = (result: number): number => (result < 0 ? -ffi.errno() : result);
  const long3 = libc.func("syscall", "long", ["long", "long", "long", "long"]);
  const withBuffers = libc.func("syscall", "long", ["long", "void*", "void*"]);
  const pivot = libc.func("syscall", "long", ["long", "str", "str"]);
  const create = libc.func("syscall", "long", ["long", "void*", "size_t", "uint"]);
  const addRule = libc.func("syscall", "long", ["long", "int", "int", "void*", "uint"]);
  const setAttr = libc.func("syscall", "long", ["long", "int", "str", "uint", "void*", "size_t"]);
  const openTree = libc.func("syscall", "long", ["long", "int", "str", "uint"]);
  const moveMount = libc.func("syscall", "long", ["long", "int", "str", "int", "str", "uint"]);
  const seccomp = libc.func("syscall", "long", ["long", "uint", "uint", "void*"]);
  const unshare = libc.func("unshare", "int", ["int"]);
  const setns = libc.func("setns", "int", ["int", "int"]);
  const mount = libc.func("mount", "int", ["str", "str", "str", "ulong", "str"]);
  const umount2 = libc.func("umount2", "int", ["str", "int"]);
  const prctl = libc.func("prctl", "int", ["int", "ulong", "ulong", "ulong", "ulong"]);
  const execve = libc.func("execve", "int", ["str", "void*", "void*"]);
  const signal = libc.func("signal", "void*", ["int", "void*"]);
  const fcntl = libc.func("fcntl", "int", ["int", "int", "long"]);
  const socket = libc.func("socket", "int", ["int", "int", "int"]);
  const ioctl = libc.func("ioctl", "int", ["int", "ulong", "void*"]);
  const close = libc.func("close", "int", ["int"]);
  const setrlimit = libc.func("setrlimit", "int", ["int", "void*"]);
  const waitpid = libc.func("waitpid", "int", ["int", "void*", "int"]);
  // struct sock_fprog { unsigned short len; struct sock_filter *filter; }
  const filterOf = (program: Buffer): Buffer => {
    const fprog = Buffer.alloc(16);
    fprog.writeUInt16LE(program.length / 8, 0);
    fprog.writeBigUInt64LE(ffi.address(program), 8);
    return fprog;
  };
  return {
    unshare: (flags) => call(unshare(flags)),
    setns: (fd, type) => call(setns(fd, type)),
    mount: (source, target, type, flags, data) => call(mount(source, target, type, flags, data)),
    unmountLazily: (target) => call(umount2(target, MNT_DETACH)),
    setMountFlags(path, set, recursive) {
      const attributes = Buffer.alloc(32);
      attributes.writeBigUInt64LE(BigInt(set), 0);
      return call(setAttr(MOUNT_SETATTR, AT_FDCWD, path, recursive ? AT_RECURSIVE : 0, attributes, attributes.length));
    },
    cloneMount: (fd) => call(openTree(OPEN_TREE, fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | O_CLOEXEC)),
    mapMountIds(tree, userNamespace) {
      const attributes = Buffer.alloc(32);
      attributes.writeBigUInt64LE(BigInt(MOUNT_ATTR_IDMAP), 0);
      attributes.writeBigUInt64LE(BigInt(userNamespace), 24);
      return call(setAttr(MOUNT_SETATTR, tree, "", AT_EMPTY_PATH, attributes, attributes.length));
    },
    moveMount: (tree, target) => call(moveMount(MOVE_MOUNT, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)),
    pivotRootHere: () => call(pivot(numbers.pivotRoot, ".", ".")),
    prctl: (option, a, b = 0) => call(prctl(option, a, b, 0, 0)),
    setUser(uid, gid) {
      const groups = call(long3(numbers.setgroups, 0, 0, 0));
      if (groups < 0) return groups;
      const group = call(long3(numbers.setresgid, gid, gid, gid));
      return group < 0 ? group : call(long3(numbers.setresuid, uid, uid, uid));
    },
    setCapabilities(effective, inheritable) {
      const header = Buffer.alloc(8);
      header.writeUInt32LE(0x20080522, 0);
      const data = Buffer.alloc(24);
      for (const half of [0, 1]) {
        const part = (set: bigint): number => Number((set >> BigInt(32 * half)) & 0xffffffffn);
        data.writeUInt32LE(part(effective), half * 12);
        data.writeUInt32LE(part(effective), half * 12 + 4);
        data.writeUInt32LE(part(inheritable), half * 12 + 8);
      }
      return call(withBuffers(numbers.capset, header, data));
    },
    landlockVersion: () => call(create(LANDLOCK_CREATE, null, 0, 1)),
    landlockCreate: (attributes) => call(create(LANDLOCK_CREATE, attributes, attributes.length, 0)),
    landlockAddPath: (ruleset, rule) => call(addRule(LANDLOCK_ADD, ruleset, 1, rule, 0)),
    landlockRestrict: (ruleset) => call(long3(LANDLOCK_RESTRICT, ruleset, 0, 0)),
    seccompFilter: (program) => call(seccomp(numbers.seccomp, SECCOMP_SET_MODE_FILTER, 0, filterOf(program))),
    seccompListener: (program) =>
      call(seccomp(numbers.seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_NEW_LISTENER, filterOf(program))),
    execute(path, argv, env) {
      // Node ignores some signals and closes its standard streams to what it executes; both would be inherited.
      for (let number = 1; number <= LAST_SIGNAL; number++) signal(number, null);
      for (const fd of [0, 1, 2]) fcntl(fd, F_SETFD, 0);
      const texts = (list: readonly string[]): readonly Buffer[] => list.map((text) => Buffer.from(`${text}\0`));
      const [args, variables] = [texts(argv), texts(Object.entries(env).map((entry) => entry.join("=")))];
      const pointers = (list: readonly Buffer[]): Buffer => {
        const table = Buffer.alloc(8 * (list.length + 1));
        for (const [i, text] of list.entries()) table.writeBigUInt64LE(ffi.address(text), 8 * i);
        return table;
      };
      return call(execve(path, pointers(args), pointers(variables)));
    },
    startLoopback() {
      const fd = call(socket(AF_INET, SOCK_DGRAM | O_CLOEXEC, 0));
      if (fd < 0) return fd;
      // struct ifreq: the name, then its flags.
      const request = Buffer.alloc(40);
      request.write("lo", "latin1");
      request.writeInt16LE(IFF_UP_RUNNING, 16);
      const done = call(ioctl(fd, SIOCSIFFLAGS, request));
      close(fd);
      return done;
    },
    setLimit(resource, value) {
      const limits = Buffer.alloc(16);
      limits.writeBigUInt64LE(BigInt(value), 0);
      limits.writeBigUInt64LE(BigInt(value), 8);
      return call(setrlimit(resource, limits));
    },
    reapOne: () => call(waitpid(-1, null, WNOHANG)),
  };
}

/** Throws when a call failed: `what` names it. */
export function ok(what: string, result: number): void {
  if (result < 0) throw new Error(`${what}: ${errnoName(result)}`);
}

/** True when the call succeeded; otherwise its failure is added to `notes`. */
export function noted(notes: string[], what: string, result: number): boolean {
  if (result < 0) notes.push(`${what}: ${errnoName(result)}`);
  return result >= 0;
}
