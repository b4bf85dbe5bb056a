// A seccomp program: everything is allowed but the calls that reach past files and one's own processes. Built here as
// classic BPF; the kernel runs it on every system call of the command and of all its children.

interface CallNumbers {
  readonly audit: number;
  /** Numbers at or above this belong to another calling convention (x32) and would slip past the list. */
  readonly tooHigh: number | undefined;
  readonly denied: readonly number[];
  readonly clone: number;
  readonly clone3: number;
  readonly unshare: number;
  readonly setns: number;
  readonly ioctl: number;
  readonly socket: number;
  /** Making a ring and registering with one; entering is harmless without, and Node's own loop may have one already. */
  readonly ioUring: readonly number[];
}

/** mount's modern relatives and a way to take another process's descriptors; the same everywhere. */
const SHARED_DENIED = {
  open_tree: 428,
  move_mount: 429,
  fsopen: 430,
  fsconfig: 431,
  fsmount: 432,
  fspick: 433,
  pidfd_getfd: 438,
  mount_setattr: 442,
};

/** Other processes' memory, mounts, kernel modules and keys, clocks, and handles that bypass paths. */
const X64_DENIED = {
  ptrace: 101,
  process_vm_readv: 310,
  process_vm_writev: 311,
  kcmp: 312,
  mount: 165,
  umount2: 166,
  pivot_root: 155,
  chroot: 161,
  bpf: 321,
  perf_event_open: 298,
  userfaultfd: 323,
  fanotify_init: 300,
  kexec_load: 246,
  kexec_file_load: 320,
  init_module: 175,
  finit_module: 313,
  delete_module: 176,
  add_key: 248,
  request_key: 249,
  keyctl: 250,
  name_to_handle_at: 303,
  open_by_handle_at: 304,
  swapon: 167,
  swapoff: 168,
  reboot: 169,
  acct: 163,
  quotactl: 179,
  settimeofday: 164,
  clock_settime: 227,
  sethostname: 170,
  setdomainname: 171,
  syslog: 103,
  personality: 135,
  vhangup: 153,
  iopl: 172,
  ioperm: 173,
  modify_ldt: 154,
};

const ARM64_DENIED: Readonly<Record<string, number>> = {
  ptrace: 117,
  process_vm_readv: 270,
  process_vm_writev: 271,
  kcmp: 272,
  mount: 40,
  umount2: 39,
  pivot_root: 41,
  chroot: 51,
  bpf: 280,
  perf_event_open: 241,
  userfaultfd: 282,
  fanotify_init: 262,
  kexec_load: 104,
  kexec_file_load: 294,
  init_module: 105,
  finit_module: 273,
  delete_module: 106,
  add_key: 217,
  request_key: 218,
  keyctl: 219,
  name_to_handle_at: 264,
  open_by_handle_at: 265,
  swapon: 224,
  swapoff: 225,
  reboot: 142,
  acct: 89,
  quotactl: 60,
  settimeofday: 170,
  clock_settime: 112,
  sethostname: 161,
  setdomainname: 162,
  syslog: 116,
  personality: 92,
  vhangup: 58,
};

const X64: CallNumbers = {
  audit: 0xc000003e,
  tooHigh: 0x40000000,
  denied: Object.values({ ...SHARED_DENIED, ...X64_DENIED }),
  clone: 56,
  clone3: 435,
  unshare: 272,
  setns: 308,
  ioctl: 16,
  socket: 41,
  ioUring: [425, 427],
};

const ARM64: CallNumbers = {
  audit: 0xc00000b7,
  tooHigh: undefined,
  denied: Object.values({ ...SHARED_DENIED, ...ARM64_DENIED }),
  clone: 220,
  clone3: 435,
  unshare: 97,
  setns: 268,
  ioctl: 29,
  socket: 198,
  ioUring: [425, 427],
};

const ARCHITECTURES: Readonly<Record<string, CallNumbers>> = { x64: X64, arm64: ARM64 };

const LOAD = 0x20;
const IF_EQUAL = 0x15;
const IF_AT_LEAST = 0x35;
const IF_ANY_BIT = 0x45;
const RETURN = 0x06;

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const fail = (errno: number): number => 0x00050000 | errno;
const EPERM = 1;
const EACCES = 13;
const ENOSYS = 38;

/** Offsets in struct seccomp_data; arguments are 64 bits wide and little-endian on both architectures. */
const NUMBER = 0;
const ARCH = 4;
const argument = (index: number): number => 16 + 8 * index;

const CLONE_NEWPID = 0x20000000;
/** Every namespace flag of clone(2). */
const ANY_NAMESPACE = 0x7e020080;

const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;
const AF_NETLINK = 16;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

/** Undefined where the architecture's call numbers are not known: then there is no filter, and the report says so. */
export function seccompProgram(architecture: string, network: boolean): Buffer | undefined {
  const calls = ARCHITECTURES[architecture];
  if (calls === undefined) return undefined;
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [IF_EQUAL, 1, 0, calls.audit],
    [RETURN, 0, 0, KILL],
    [LOAD, 0, 0, NUMBER],
  ];
  if (calls.tooHigh !== undefined) program.push([IF_AT_LEAST, 0, 1, calls.tooHigh], [RETURN, 0, 0, fail(ENOSYS)]);
  for (const number of calls.denied) program.push(...whenCall(number, [[RETURN, 0, 0, fail(EPERM)]]));
  // Their arguments lie in memory, where a filter cannot look; callers fall back to the older calls.
  for (const number of [calls.clone3, ...calls.ioUring])
    program.push(...whenCall(number, [[RETURN, 0, 0, fail(ENOSYS)]]));
  program.push(
    ...whenCall(calls.clone, [
      [LOAD, 0, 0, argument(0)],
      [IF_ANY_BIT, 0, 1, ANY_NAMESPACE],
      [RETURN, 0, 0, fail(EPERM)],
      [RETURN, 0, 0, ALLOW],
    ]),
    // The warden makes a PID namespace for each command; a command has no privilege to do the same.
    ...whenCall(calls.unshare, onlyWhen(0, [CLONE_NEWPID], EPERM)),
    ...whenCall(calls.setns, onlyWhen(1, [CLONE_NEWPID], EPERM)),
    ...whenCall(calls.ioctl, [
      [LOAD, 0, 0, argument(1)],
      [IF_EQUAL, 1, 0, TIOCSTI],
      [IF_EQUAL, 0, 1, TIOCLINUX],
      [RETURN, 0, 0, fail(EPERM)],
      [RETURN, 0, 0, ALLOW],
    ]),
    ...whenCall(calls.socket, onlyWhen(0, network ? [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] : [], EACCES)),
    [RETURN, 0, 0, ALLOW],
  );
  return assemble(program);
}

/** Runs `body` for this call, else skips it. INVARIANT: a body ends in RETURN, so the loaded number stays for the next. */
function whenCall(number: number, body: readonly Instruction[]): Instruction[] {
  return [[IF_EQUAL, 0, body.length, number], ...body];
}

function onlyWhen(argumentIndex: number, values: readonly number[], errno: number): Instruction[] {
  const checks = values.flatMap((value): Instruction[] => [
    [IF_EQUAL, 0, 1, value],
    [RETURN, 0, 0, ALLOW],
  ]);
  return [[LOAD, 0, 0, argument(argumentIndex)], ...checks, [RETURN, 0, 0, fail(errno)]];
}

function assemble(program: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(program.length * 8);
  for (const [i, [code, ifTrue, ifFalse, value]] of program.entries()) {
    bytes.writeUInt16LE(code, i * 8);
    bytes.writeUInt8(ifTrue, i * 8 + 2);
    bytes.writeUInt8(ifFalse, i * 8 + 3);
    bytes.writeUInt32LE(value >>> 0, i * 8 + 4);
  }
  return bytes;
}
