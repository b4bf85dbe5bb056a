// Numbers of the system calls that the filter knows, for each architecture (arch/x86/entry/syscalls/syscall_64.tbl,
// include/uapi/asm-generic/unistd.h).

export interface CallNumbers {
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
  readonly socketpair: number;
  readonly prlimit: number;
  readonly openat2: number;
  /** System V and POSIX message queues, shared memory and semaphores: they outlive the process that made them. */
  readonly lasting: readonly number[];
  /** Calls that set a file's mode, and which argument it is. */
  readonly modes: readonly (readonly [call: number, argument: number])[];
  /** Calls that open a file and may make it: the flags' argument; the mode is the next. */
  readonly opens: readonly (readonly [call: number, argument: number])[];
  readonly truncate: number;
  /** Mode, owner or times of a file by its name. */
  readonly metadataByName: readonly number[];
  /** The same for extended attributes, ACLs among them. */
  readonly attributesByName: readonly number[];
  readonly fchown: number;
  readonly fcntl: number;
  /** Calls that send a signal, and which argument it is. */
  readonly signals: readonly (readonly [call: number, argument: number])[];
  readonly utimensat: number;
  /** Making a ring and registering with one; entering is harmless without, and Node's own loop may have one already. */
  readonly ioUring: readonly number[];
}

/**
 * Other processes' memory, mounts, kernel modules and keys, clocks, and handles that bypass paths: name, x64, arm64. The
 * newer ones have the same number everywhere; those with `-` do not exist on arm64.
 */
const DENIED = `
  ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, mount 165 40, umount2 166 39,
  pivot_root 155 41, chroot 161 51, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262,
  kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106,
  add_key 248 217, request_key 249 218, keyctl 250 219, name_to_handle_at 303 264, open_by_handle_at 304 265,
  swapon 167 224, swapoff 168 225, reboot 169 142, acct 163 89, quotactl 179 60, settimeofday 164 170,
  clock_settime 227 112, sethostname 170 161, setdomainname 171 162, syslog 103 116, personality 135 92, vhangup 153 58,
  iopl 172 -, ioperm 173 -, modify_ldt 154 -,
  open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
  pidfd_getfd 438 438, mount_setattr 442 442, open_tree_attr 467 467`;

function denied(column: 1 | 2): number[] {
  const rows = DENIED.split(",").map((row) => row.trim().split(" "));
  return rows.map((row) => Number(row[column])).filter((number) => !Number.isNaN(number));
}

const X64: CallNumbers = {
  audit: 0xc000003e,
  tooHigh: 0x40000000,
  denied: denied(1),
  clone: 56,
  clone3: 435,
  unshare: 272,
  setns: 308,
  ioctl: 16,
  socket: 41,
  socketpair: 53,
  prlimit: 302,
  openat2: 437,
  lasting: [29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, 240, 241],
  modes: [
    [90, 1], // chmod
    [91, 1], // fchmod
    [268, 2], // fchmodat
    [452, 2], // fchmodat2
    [85, 1], // creat
    [83, 1], // mkdir
    [258, 2], // mkdirat
    [133, 1], // mknod
    [259, 2], // mknodat
  ],
  opens: [
    [2, 1], // open
    [257, 2], // openat
  ],
  truncate: 76,
  // chmod, fchmodat, fchmodat2, chown, lchown, fchownat, utime, utimes, futimesat, file_setattr
  metadataByName: [90, 268, 452, 92, 94, 260, 132, 235, 261, 469],
  // setxattr, lsetxattr, removexattr, lremovexattr, setxattrat, removexattrat
  attributesByName: [188, 189, 197, 198, 463, 466],
  fchown: 93,
  fcntl: 72,
  signals: [
    [62, 1], // kill
    [200, 1], // tkill
    [234, 2], // tgkill
    [129, 1], // rt_sigqueueinfo
    [297, 2], // rt_tgsigqueueinfo
    [424, 1], // pidfd_send_signal
  ],
  utimensat: 280,
  ioUring: [425, 427],
};

/** Calls in the same order as above. */
const ARM64: CallNumbers = {
  audit: 0xc00000b7,
  tooHigh: undefined,
  denied: denied(2),
  clone: 220,
  clone3: 435,
  unshare: 97,
  setns: 268,
  ioctl: 29,
  socket: 198,
  socketpair: 199,
  prlimit: 261,
  openat2: 437,
  lasting: [194, 196, 195, 190, 193, 191, 197, 186, 189, 188, 187, 192, 180, 181],
  modes: [
    [52, 1], // fchmod
    [53, 2], // fchmodat
    [452, 2], // fchmodat2
    [34, 2], // mkdirat
    [33, 2], // mknodat
  ],
  opens: [[56, 2]], // openat
  truncate: 45,
  // fchmodat, fchmodat2, fchownat, file_setattr
  metadataByName: [53, 452, 54, 469],
  attributesByName: [5, 6, 14, 15, 463, 466],
  fchown: 55,
  fcntl: 25,
  signals: [
    [129, 1],
    [130, 1],
    [131, 2],
    [138, 1],
    [240, 2],
    [424, 1],
  ],
  utimensat: 88,
  ioUring: [425, 427],
};

export const ARCHITECTURES: Readonly<Record<string, CallNumbers>> = { x64: X64, arm64: ARM64 };
