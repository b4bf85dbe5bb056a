// A seccomp program: everything is allowed but the calls that reach past files and one's own processes. Built here as
// classic BPF; the kernel runs it on every system call of the command and of all its children.

import { ARCHITECTURES, type CallNumbers } from "./call-numbers.js";

const LOAD = 0x20;
const IF_EQUAL = 0x15;
const IF_AT_LEAST = 0x35;
const IF_ANY_BIT = 0x45;
const KEEP_BITS = 0x54;
const RETURN = 0x06;

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const fail = (errno: number): number => 0x00050000 | errno;
const EPERM = 1;
const EACCES = 13;
const ENOSYS = 38;
const EOPNOTSUPP = 95;

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
const SOCK_STREAM = 1;
const SOCK_SEQPACKET = 5;
const SOCKET_TYPE = 0xf;

/** Of a file's mode: run as its owner, or as its group. */
const SET_ID_BITS = 0o6000;
const O_ACCMODE = 0o3;
const O_TRUNC = 0o1000;
/** O_CREAT and the bit of O_TMPFILE: only then does a mode count. */
const MAKES_FILE = 0o100 | 0o20000000;

const SIGUSR1 = 10;
const F_SETSIG = 10;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

const REFUSE: Instruction = [RETURN, 0, 0, fail(EPERM)];
const PASS: Instruction = [RETURN, 0, 0, ALLOW];

export interface FilterRules {
  readonly network: boolean;
  /** Sockets with a path or a name lead nowhere outside. Without, only unnamed pairs are left. */
  readonly hasOwnSocketNames: boolean;
  /** Mode, owner and times of files: harmless by name where names lead only to what the policy opens. */
  readonly changesMetadataByName: boolean;
  /** Signals stay inside: a PID namespace, or Landlock (version 6). */
  readonly holdsSignals: boolean;
  /** Landlock covers truncation (version 3), or a view does. */
  readonly guardsTruncation: boolean;
}

/** Undefined where the architecture's call numbers are not known: then there is no filter, and the report says so. */
export function seccompProgram(architecture: string, rules: FilterRules): Buffer | undefined {
  const calls = ARCHITECTURES[architecture];
  if (calls === undefined) return undefined;
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCH],
    [IF_EQUAL, 1, 0, calls.audit],
    [RETURN, 0, 0, KILL],
    [LOAD, 0, 0, NUMBER],
  ];
  if (calls.tooHigh !== undefined) program.push([IF_AT_LEAST, 0, 1, calls.tooHigh], [RETURN, 0, 0, fail(ENOSYS)]);
  for (const number of calls.denied) program.push(...whenCall(number, [REFUSE]));
  // Their arguments lie in memory, where a filter cannot look; callers fall back to the older calls.
  for (const number of [calls.clone3, calls.openat2, ...calls.ioUring, ...calls.lasting])
    program.push(...whenCall(number, [[RETURN, 0, 0, fail(ENOSYS)]]));
  program.push(
    ...whenCall(calls.clone, refuseAnyBit(0, ANY_NAMESPACE)),
    // The supervisor makes a PID namespace for each command; a command has no privilege to do the same.
    ...whenCall(calls.unshare, onlyWhen(0, [CLONE_NEWPID], EPERM)),
    ...whenCall(calls.setns, onlyWhen(1, [CLONE_NEWPID], EPERM)),
    ...whenCall(calls.ioctl, [
      [LOAD, 0, 0, argument(1)],
      [IF_EQUAL, 1, 0, TIOCSTI],
      [IF_EQUAL, 0, 1, TIOCLINUX],
      REFUSE,
      PASS,
    ]),
    // The limits of other processes, the supervisor's among them.
    ...whenCall(calls.prlimit, onlyWhen(0, [0], EPERM)),
    ...socketRules(calls, rules),
    ...(rules.holdsSignals ? [] : signalRules(calls)),
    ...(rules.changesMetadataByName ? [] : metadataRules(calls)),
    ...fileRules(calls, rules),
    PASS,
  );
  return assemble(program);
}

function socketRules(calls: CallNumbers, { network, hasOwnSocketNames }: FilterRules): Instruction[] {
  const named = network && hasOwnSocketNames;
  const families = network ? [...(named ? [AF_UNIX] : []), AF_INET, AF_INET6, AF_NETLINK] : [];
  const socket = whenCall(calls.socket, onlyWhen(0, families, EACCES));
  // One of a pair of datagram sockets can still be sent to any name; the other types cannot be connected again.
  const pairs: Instruction[] = [
    [LOAD, 0, 0, argument(1)],
    [KEEP_BITS, 0, 0, SOCKET_TYPE],
    [IF_EQUAL, 2, 0, SOCK_STREAM],
    [IF_EQUAL, 1, 0, SOCK_SEQPACKET],
    [RETURN, 0, 0, fail(EACCES)],
    PASS,
  ];
  return named ? socket : [...socket, ...whenCall(calls.socketpair, pairs)];
}

/** To any Node process of the same user this one says: open a debugger. With network, that would be a way out. */
function signalRules(calls: CallNumbers): Instruction[] {
  return [
    ...calls.signals.flatMap(([number, signal]) => whenCall(number, refuseWhen(signal, SIGUSR1))),
    // Chooses the signal that is sent to whom a descriptor belongs.
    ...whenCall(calls.fcntl, refuseWhen(1, F_SETSIG)),
  ];
}

/** Landlock does not look at these. By descriptor they stay: what can be opened for that, the policy opens. */
function metadataRules(calls: CallNumbers): Instruction[] {
  const unsupported: Instruction[] = [[RETURN, 0, 0, fail(EOPNOTSUPP)]];
  return [
    ...[...calls.metadataByName, calls.fchown].flatMap((number) => whenCall(number, [REFUSE])),
    // As on a file system that has none, which every program expects.
    ...calls.attributesByName.flatMap((number) => whenCall(number, unsupported)),
    ...whenCall(calls.utimensat, [
      [LOAD, 0, 0, argument(1)],
      [IF_EQUAL, 0, 2, 0],
      [LOAD, 0, 0, argument(1) + 4],
      [IF_EQUAL, 1, 0, 0],
      REFUSE,
      PASS,
    ]),
  ];
}

/**
 * No file gets a mode by which it runs as its owner or group: in the policy's directories a command's files belong to their
 * owner, who may be root.
 */
function fileRules(calls: CallNumbers, { guardsTruncation }: FilterRules): Instruction[] {
  // Opened for reading and yet emptied: a question of truncation alone.
  const emptied: Instruction[] = [[IF_ANY_BIT, 0, 2, O_TRUNC], [IF_ANY_BIT, 1, 0, O_ACCMODE], REFUSE];
  const opening = (flags: number): Instruction[] => [
    [LOAD, 0, 0, argument(flags)],
    ...(guardsTruncation ? [] : emptied),
    [IF_ANY_BIT, 0, 3, MAKES_FILE],
    [LOAD, 0, 0, argument(flags + 1)],
    [IF_ANY_BIT, 0, 1, SET_ID_BITS],
    REFUSE,
    PASS,
  ];
  return [
    ...calls.modes.flatMap(([number, mode]) => whenCall(number, refuseAnyBit(mode, SET_ID_BITS))),
    ...calls.opens.flatMap(([number, flags]) => whenCall(number, opening(flags))),
    ...(guardsTruncation ? [] : whenCall(calls.truncate, [REFUSE])),
  ];
}

function refuseWhen(argumentIndex: number, value: number): Instruction[] {
  return [[LOAD, 0, 0, argument(argumentIndex)], [IF_EQUAL, 0, 1, value], REFUSE, PASS];
}

function refuseAnyBit(argumentIndex: number, bits: number): Instruction[] {
  return [[LOAD, 0, 0, argument(argumentIndex)], [IF_ANY_BIT, 0, 1, bits], REFUSE, PASS];
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
