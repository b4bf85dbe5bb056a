import { describe, expect, test } from "vitest";
import { seccompProgram } from "./seccomp.js";

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const EACCES = 0x0005000d;
const ENOSYS = 0x00050026;
const X64 = 0xc000003e;

/** Classic BPF, as far as our programs use it; refuses anything else, and anything that does not end. */
function run(program: Buffer, nr: number, args: readonly number[] = [], arch = X64): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(nr >>> 0, 0);
  data.writeUInt32LE(arch >>> 0, 4);
  for (const [i, value] of args.entries()) data.writeBigUInt64LE(BigInt(value), 16 + 8 * i);
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
    else if (code === 0x06) return value;
    else throw new Error(`unknown instruction ${code}`);
  }
  throw new Error("ran off the end");
}

function program(network: boolean, arch = "x64"): Buffer {
  const built = seccompProgram(arch, network);
  if (built === undefined) throw new Error("no program");
  return built;
}

describe("the filter", () => {
  const closed = program(false);
  const open = program(true);

  test.each([
    ["read", 0, [], ALLOW],
    ["openat2", 437, [], ALLOW],
    ["execve", 59, [], ALLOW],
    ["socketpair", 53, [1], ALLOW],
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
    const arm = program(false, "arm64");
    expect(run(arm, 198, [2], 0xc00000b7)).toBe(EACCES);
    expect(run(arm, 117, [], 0xc00000b7)).toBe(EPERM);
    expect(run(arm, 63, [], 0xc00000b7)).toBe(ALLOW);
  });

  test("every number of every architecture comes to an end", () => {
    for (const [arch, audit] of [
      ["x64", X64],
      ["arm64", 0xc00000b7],
    ] as const) {
      const filter = program(false, arch);
      for (let nr = 0; nr < 600; nr++) expect([ALLOW, EPERM, EACCES, ENOSYS]).toContain(run(filter, nr, [0, 0], audit));
    }
  });
});

test("an architecture without a table has no filter, rather than a wrong one", () => {
  expect(seccompProgram("riscv64", false)).toBeUndefined();
});
