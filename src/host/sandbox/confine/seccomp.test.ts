import { describe, expect, test } from "vitest";
import { type FilterRules, seccompProgram } from "./seccomp.js";

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const EACCES = 0x0005000d;
const ENOSYS = 0x00050026;
const EOPNOTSUPP = 0x0005005f;
const X64 = 0xc000003e;

/** Classic BPF, as far as our programs use it; refuses anything else, and anything that does not end. */
function run(program: Buffer, nr: number, args: readonly number[] = [], arch = X64): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(nr >>> 0, 0);
  data.writeUInt32LE(arch >>> 0, 4);
  for (const [i, value] of args.entries()) data.writeBigInt64LE(BigInt(value), 16 + 8 * i);
  let accumulator = 0;
  for (let pc = 0; pc < program.length / 8; pc++) {
    const code = program.readUInt16LE(pc * 8);
    const value = program.readUInt32LE(pc * 8 + 4);
    const jump = (condition: boolean): void => {
      pc += program.readUInt8(pc * 8 + (condition ? 2 : 3));
    };
    if (code === 0x20) accumulator = data.readUInt32LE(value);
    else if (code === 0x15) jump(accumulator === value);
    else if (code === 0x35) jump(accumulator >= value);
    else if (code === 0x45) jump((accumulator & value) !== 0);
    else if (code === 0x54) accumulator &= value;
    else if (code === 0x06) return value;
    else throw new Error(`unknown instruction ${code}`);
  }
  throw new Error("ran off the end");
}

const VIEW: FilterRules = {
  network: false,
  hasOwnSocketNames: true,
  changesMetadataByName: true,
  holdsSignals: true,
  guardsTruncation: true,
};
/** Landlock alone, first version. */
const NO_VIEW: FilterRules = {
  network: false,
  hasOwnSocketNames: false,
  changesMetadataByName: false,
  holdsSignals: false,
  guardsTruncation: false,
};

function program(rules: FilterRules, arch = "x64"): Buffer {
  const built = seccompProgram(arch, rules);
  if (built === undefined) throw new Error("no program");
  return built;
}

describe("the filter", () => {
  const closed = program(VIEW);
  const open = program({ ...VIEW, network: true });

  test.each([
    ["read", 0, [], ALLOW],
    ["openat2, whose mode lies in memory", 437, [], ENOSYS],
    ["execve", 59, [], ALLOW],
    ["socketpair", 53, [1, 0x80001], ALLOW],
    ["ptrace", 101, [], EPERM],
    ["mount", 165, [], EPERM],
    ["open_by_handle_at", 304, [], EPERM],
    ["bpf", 321, [], EPERM],
    ["clone3", 435, [], ENOSYS],
    ["io_uring_setup", 425, [], ENOSYS],
    ["io_uring_register", 427, [], ENOSYS],
    ["clone of a thread", 56, [0x3d0f00], ALLOW],
    ["clone of a process", 56, [0x1200011], ALLOW],
    ["clone with a user namespace", 56, [0x10000011], EPERM],
    ["clone with a mount namespace", 56, [0x20011], EPERM],
    ["unshare of processes alone", 272, [0x20000000], ALLOW],
    ["unshare of a user namespace", 272, [0x10000000], EPERM],
    ["unshare of both", 272, [0x30000000], EPERM],
    ["setns to processes", 308, [3, 0x20000000], ALLOW],
    ["setns to anything", 308, [3, 0], EPERM],
    ["an ioctl", 16, [1, 0x5413], ALLOW],
    ["pushing input into a terminal", 16, [0, 0x5412], EPERM],
    ["TIOCLINUX", 16, [0, 0x541c], EPERM],
    ["limits of one's own", 302, [0, 7], ALLOW],
    ["limits of another process", 302, [1, 7], EPERM],
    ["shared memory that lasts", 29, [], ENOSYS],
    ["shared memory of another process", 30, [], ENOSYS],
    ["a message queue", 240, [], ENOSYS],
    ["an x32 call", 0x40000000 + 101, [], ENOSYS],
  ])("%s", (_, nr, args, expected) => {
    expect(run(closed, nr, args)).toBe(expected);
    expect(run(open, nr, args)).toBe(expected);
  });

  test.each([
    ["internet", 2, ALLOW],
    ["internet 6", 10, ALLOW],
    ["local", 1, ALLOW],
    ["netlink", 16, ALLOW],
    ["packets", 17, EACCES],
    ["virtual machine", 40, EACCES],
    ["bluetooth", 31, EACCES],
    ["kernel crypto", 38, EACCES],
  ])("a %s socket is refused without network; with it, only the usual ones are allowed", (_, family, withNetwork) => {
    expect(run(closed, 41, [family])).toBe(EACCES);
    expect(run(open, 41, [family])).toBe(withNetwork);
  });

  test("another architecture's calls end the process", () => {
    expect(run(closed, 0, [], 0x40000003)).toBe(KILL);
  });

  test("arm64 has its own numbers", () => {
    const arm = program(VIEW, "arm64");
    expect(run(arm, 198, [2], 0xc00000b7)).toBe(EACCES);
    expect(run(arm, 117, [], 0xc00000b7)).toBe(EPERM);
    expect(run(arm, 63, [], 0xc00000b7)).toBe(ALLOW);
  });

  test("every number of every architecture comes to an end", () => {
    for (const [arch, audit] of [
      ["x64", X64],
      ["arm64", 0xc00000b7],
    ] as const) {
      for (const rules of [VIEW, NO_VIEW]) {
        const filter = program(rules, arch);
        for (let nr = 0; nr < 600; nr++)
          expect([ALLOW, EPERM, EACCES, ENOSYS, EOPNOTSUPP]).toContain(run(filter, nr, [0, 0], audit));
      }
    }
  });
});

describe("no file is made to run as its owner or group", () => {
  const [O_CREAT, O_TMPFILE, O_WRONLY] = [0o100, 0o20200000, 1];
  test.each([
    ["chmod", 90, (mode: number) => [0, mode]],
    ["fchmod", 91, (mode: number) => [3, mode]],
    ["fchmodat", 268, (mode: number) => [0, 0, mode]],
    ["fchmodat2", 452, (mode: number) => [0, 0, mode]],
    ["creat", 85, (mode: number) => [0, mode]],
    ["mkdir", 83, (mode: number) => [0, mode]],
    ["mkdirat", 258, (mode: number) => [0, 0, mode]],
    ["mknod", 133, (mode: number) => [0, 0o100000 | mode]],
    ["mknodat", 259, (mode: number) => [0, 0, 0o100000 | mode]],
    ["open", 2, (mode: number) => [0, O_WRONLY | O_CREAT, mode]],
    ["openat", 257, (mode: number) => [0, 0, O_WRONLY | O_CREAT, mode]],
    ["openat of a nameless file", 257, (mode: number) => [0, 0, O_WRONLY | O_TMPFILE, mode]],
  ])("%s", (_, nr, args) => {
    const filter = program(VIEW);
    for (const mode of [0, 0o644, 0o1777]) expect(run(filter, nr, args(mode))).toBe(ALLOW);
    for (const mode of [0o4755, 0o2755, 0o6000, 0o7777]) expect(run(filter, nr, args(mode))).toBe(EPERM);
  });

  test.each([
    ["fchmod", 52, (mode: number) => [3, mode]],
    ["fchmodat", 53, (mode: number) => [0, 0, mode]],
    ["fchmodat2", 452, (mode: number) => [0, 0, mode]],
    ["mkdirat", 34, (mode: number) => [0, 0, mode]],
    ["mknodat", 33, (mode: number) => [0, 0, 0o100000 | mode]],
    ["openat", 56, (mode: number) => [0, 0, O_WRONLY | O_CREAT, mode]],
  ])("%s on arm64", (_, nr, args) => {
    const filter = program(VIEW, "arm64");
    expect(run(filter, nr, args(0o755), 0xc00000b7)).toBe(ALLOW);
    expect(run(filter, nr, args(0o4755), 0xc00000b7)).toBe(EPERM);
  });

  test("a mode that does not count does not matter", () => {
    expect(run(program(VIEW), 257, [0, 0, 0, 0o7777])).toBe(ALLOW);
    expect(run(program(NO_VIEW), 257, [0, 0, 0, 0o7777])).toBe(ALLOW);
  });
});

describe("without a view", () => {
  const filter = program(NO_VIEW);
  const withNetwork = program({ ...NO_VIEW, network: true });

  test("sockets with names are closed, unnamed pairs that stay unnamed are not", () => {
    expect(run(withNetwork, 41, [1, 1])).toBe(EACCES);
    expect(run(withNetwork, 41, [2, 1])).toBe(ALLOW);
    for (const each of [filter, withNetwork]) {
      expect([1, 5, 0x80801].map((type) => run(each, 53, [1, type]))).toEqual([ALLOW, ALLOW, ALLOW]);
      expect([2, 3, 0x80002].map((type) => run(each, 53, [1, type]))).toEqual([EACCES, EACCES, EACCES]);
    }
    expect(run(program({ ...VIEW, network: true }), 53, [1, 2])).toBe(ALLOW);
  });

  test.each([
    ["chmod", 90, [0, 0o644], EPERM],
    ["fchmodat", 268, [0, 0, 0o644], EPERM],
    ["chown", 92, [], EPERM],
    ["fchown", 93, [], EPERM],
    ["utimes", 235, [], EPERM],
    ["utimensat by name", 280, [0, 1], EPERM],
    ["utimensat by a name in high memory", 280, [0, 0x7f00_0000_0000], EPERM],
    ["utimensat by descriptor", 280, [3, 0], ALLOW],
    ["fchmod", 91, [3, 0o644], ALLOW],
    ["fchmod to run as owner", 91, [3, 0o4755], EPERM],
    ["setxattr", 188, [], EOPNOTSUPP],
    ["fsetxattr", 190, [], ALLOW],
    ["file_setattr", 469, [], EPERM],
    ["a signal", 62, [1, 15], ALLOW],
    ["the signal that opens a debugger", 62, [-1, 10], EPERM],
    ["the same to a thread", 234, [1, 1, 10], EPERM],
    ["the same by descriptor", 424, [3, 10], EPERM],
    ["the same by what a descriptor's owner is sent", 72, [3, 10, 10], EPERM],
    ["fcntl", 72, [3, 2, 1], ALLOW],
    ["truncate, where Landlock does not know it", 76, [], EPERM],
    ["opened for reading and emptied", 257, [0, 0, 0o1000], EPERM],
    ["opened for writing and emptied", 257, [0, 0, 0o1101, 0o644], ALLOW],
  ])("%s", (_, nr, args, expected) => expect(run(filter, nr, args)).toBe(expected));

  test("without a view with one, or with a newer Landlock, they are let through", () => {
    for (const [nr, args] of [
      [90, [0, 0o644]],
      [280, [0, 1]],
      [188, []],
      [76, []],
      [257, [0, 0, 0o1000]],
    ] as const)
      expect(run(program(VIEW), nr, args)).toBe(ALLOW);
  });
});

test("an architecture without a table has no filter, rather than a wrong one", () => {
  expect(seccompProgram("riscv64", VIEW)).toBeUndefined();
});
