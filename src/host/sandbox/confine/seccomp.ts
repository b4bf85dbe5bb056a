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
  readonly ioUring: readonly number[];
}

/** mount and its modern relatives, kernel modules, keys, tracing, clocks, handles that bypass paths. */
const SHARED_DENIED = [428, 429, 430, 431, 432, 433, 438, 442];

const X64: CallNumbers = {
  audit: 0xc000003e,
  tooHigh: 0x40000000,
  denied: [
    ...SHARED_DENIED,
    ...[101, 310, 311, 312], // ptrace, process_vm_readv, process_vm_writev, kcmp
    ...[165, 166, 155, 161], // mount, umount2, pivot_root, chroot
    ...[321, 298, 323, 300], // bpf, perf_event_open, userfaultfd, fanotify_init
    ...[246, 320, 175, 313, 176], // kexec_load, kexec_file_load, init_module, finit_module, delete_module
    ...[248, 249, 250], // add_key, request_key, keyctl
    ...[303, 304], // name_to_handle_at, open_by_handle_at
    ...[167, 168, 169, 163, 179], // swapon, swapoff, reboot, acct, quotactl
    ...[164, 227, 170, 171, 103], // settimeofday, clock_settime, sethostname, setdomainname, syslog
    ...[172, 173, 154, 135, 153], // iopl, ioperm, modify_ldt, personality, vhangup
  ],
  clone: 56,
  clone3: 435,
  unshare: 272,
  setns: 308,
  ioctl: 16,
  socket: 41,
  ioUring: [425, 426, 427],
};

const ARM64: CallNumbers = {
  audit: 0xc00000b7,
  tooHigh: undefined,
  denied: [
    ...SHARED_DENIED,
    ...[117, 270, 271, 272],
    ...[40, 39, 41, 51],
    ...[280, 241, 282, 262],
    ...[104, 294, 105, 273, 106],
    ...[217, 218, 219],
    ...[264, 265],
    ...[224, 225, 142, 89, 60],
    ...[170, 112, 161, 162, 116],
    ...[92, 58],
  ],
  clone: 220,
  clone3: 435,
  unshare: 97,
  setns: 268,
  ioctl: 29,
  socket: 198,
  ioUring: [425, 426, 427],
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
