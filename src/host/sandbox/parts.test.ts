import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { limitFiles, ownCgroupDirectory } from "./cgroup.js";
import { exchangeMap } from "./confine/privileges.js";
import { missingProtections, type Protections } from "./confinement.js";
import { launchPrefix, shellPrefix } from "./launchers.js";
import { FRAME, FrameReader, frame } from "./messages.js";
import { livingDescendants, parseStat } from "./processes.js";

describe("frames", () => {
  test("frames come out as they went in, however the bytes were cut", () => {
    const types = fc.constantFrom(...Object.values(FRAME));
    fc.assert(
      fc.property(
        fc.array(fc.tuple(types, fc.uint8Array({ maxLength: 50 }))),
        fc.integer({ min: 1, max: 7 }),
        (messages, step) => {
          const bytes = Buffer.concat(messages.map(([type, body]) => frame(type, body)));
          const seen: [number, number[]][] = [];
          const reader = new FrameReader();
          for (let i = 0; i < bytes.length; i += step) {
            reader.push(bytes.subarray(i, i + step), (type, body) => seen.push([type, [...body]]));
          }
          expect(seen).toEqual(messages.map(([type, body]) => [type, [...body]]));
        },
      ),
    );
  });

  test("a length beyond reason is refused before memory is taken", () => {
    expect(() => new FrameReader().push(Buffer.from([1, 255, 255, 255, 255]), () => undefined)).toThrow("frame of");
  });
});

describe("owner and user change places", () => {
  /** What a table makes of one id. */
  const look = (map: string, id: number): number[] =>
    map
      .trim()
      .split("\n")
      .map((line) => line.split(" ").map(Number))
      .flatMap(([inside = 0, outside = 0, count = 0]) =>
        id >= inside && id < inside + count ? [outside + id - inside] : [],
      );

  test("owner and user change places and every other id stays itself, each exactly once", () => {
    const id = fc.oneof(fc.integer({ min: 0, max: 70_000 }), fc.constant(4_294_967_294));
    fc.assert(
      fc.property(id, id, id, (a, b, c) => {
        const map = exchangeMap(a, b);
        expect(look(map, a)).toEqual([b]);
        expect(look(map, b)).toEqual([a]);
        if (c !== a && c !== b) expect(look(map, c)).toEqual([c]);
      }),
    );
  });
});

describe("the process table", () => {
  test("a name with parentheses does not confuse the fields", () => {
    expect(parseStat("12 (a) S) R 3 12 12 0")).toEqual({ pid: 12, parent: 3, isZombie: false });
    expect(parseStat("12 (x) Z 3 12")).toEqual({ pid: 12, parent: 3, isZombie: true });
    expect(parseStat("")).toBeUndefined();
  });

  test("descendants are found through the dead, and the dead are not counted", () => {
    const row = (pid: number, parent: number, isZombie = false) => ({ pid, parent, isZombie });
    const table = [row(1, 0), row(10, 1), row(11, 10), row(12, 11, true), row(13, 12), row(20, 1)];
    expect(new Set(livingDescendants(10, table))).toEqual(new Set([11, 13]));
  });
});

describe("cgroups", () => {
  test("the own directory is where version 2 is mounted, also beside version 1", () => {
    const mounts =
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    expect(ownCgroupDirectory(mounts, "4:memory:/x\n0::/user.slice/a\n")).toBe("/sys/fs/cgroup/unified/user.slice/a");
    expect(ownCgroupDirectory("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw\n", "1:cpu:/\n")).toBeUndefined();
  });

  test("only controllers that are there are written to; the supervisor's own needs come on top", () => {
    const limits = { memoryBytes: 1_000_000_000, processes: 10, processors: 2 };
    expect(limitFiles(["memory", "pids", "cpu"], limits)).toEqual([
      ["memory.max", "1256000000"],
      ["memory.swap.max", "0"],
      ["pids.max", "42"],
      ["cpu.max", "200000 100000"],
    ]);
    expect(limitFiles(["pids"], limits)).toEqual([["pids.max", "42"]]);
    expect(limitFiles([], limits)).toEqual([]);
  });
});

test("what stands before the program sets every limit, and ends options before it", () => {
  const tools = {
    prlimit: "/usr/bin/prlimit",
    setpriv: "/usr/bin/setpriv",
    unshare: undefined,
    bubblewrap: undefined,
    bubblewrapProc: false,
  };
  const limits = {
    maxMemoryBytes: 5,
    maxProcesses: 1,
    maxOpenFiles: 6,
    maxCpuSeconds: 7,
    maxFileBytes: 8,
    cpuSeconds: 7,
    limitAddressSpace: true,
    processes: 9,
  };
  const prefix = launchPrefix(tools, limits);
  expect(prefix.slice(0, 4)).toEqual(["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]);
  expect(prefix).toEqual(
    expect.arrayContaining(["--core=0", "--data=5", "--as=5", "--nofile=6", "--fsize=8", "--cpu=7", "--nproc=9"]),
  );
  expect(prefix.at(-1)).toBe("--");
  expect(launchPrefix({ ...tools, prlimit: undefined, setpriv: undefined }, limits)).toEqual([]);
  expect(launchPrefix(tools, { ...limits, limitAddressSpace: false, processes: undefined }).join(" ")).not.toMatch(
    /--as|--nproc/,
  );
});

describe("sandbox: required", () => {
  const all: Protections = {
    files: "landlock",
    network: "seccomp",
    processTree: "subreaper",
    seccomp: true,
    noNewPrivileges: true,
    user: "same",
    userNamespace: false,
    rlimits: true,
    cgroup: [],
    parentDeathSignal: true,
    notes: [],
    gaps: [],
    openMounts: [],
  };

  test("sandbox: required is content with any way of each kind", () => {
    expect(missingProtections(all, false)).toEqual([]);
    expect(missingProtections({ ...all, network: "open" }, true)).toEqual([]);
  });

  test("sandbox: required asks for a user or a user namespace of the command's own only where the caller says so", () => {
    expect(missingProtections(all, false, true)).toEqual([
      expect.stringContaining("a low-privilege user for commands"),
    ]);
    expect(missingProtections({ ...all, user: 61_953 }, false, true)).toEqual([]);
    expect(missingProtections({ ...all, userNamespace: true }, false, true)).toEqual([]);
  });

  test.each([
    ["files", { ...all, files: "none" } as const],
    ["network", { ...all, network: "not restricted" } as const],
    ["processes", { ...all, processTree: "process-group" } as const],
    ["mounts", { ...all, openMounts: ["/srv/p/mnt"] }],
    ["system calls", { ...all, network: "namespace", seccomp: false } as const],
    ["privileges", { ...all, noNewPrivileges: false }],
  ])("names what is missing for %s", (_, have) => expect(missingProtections(have, false)).toHaveLength(1));
});

describe.skipIf(process.platform === "win32")("limits by a shell, where there is no prlimit", () => {
  const limits = {
    maxMemoryBytes: 1,
    maxProcesses: 1,
    maxCpuSeconds: 7,
    maxOpenFiles: 40,
    maxFileBytes: 8_192,
    cpuSeconds: 7,
    limitAddressSpace: true,
    processes: undefined,
  };

  test("a shell sets the limits of a process as prlimit does, and becomes the command [M10]", () => {
    const script = 'ulimit -c; ulimit -t; ulimit -n; ulimit -f; ulimit -H -n; printf "%s|" "$@"';
    const [shell = "", ...args] = [...shellPrefix("/bin/sh", limits), "/bin/sh", "-c", script, "x", "a b", "$HOME"];
    expect(execFileSync(shell, args, { encoding: "utf8" })).toBe("0\n7\n40\n16\n40\na b|$HOME|");
  });

  test("a command does not start when a limit cannot be set [M10]", () => {
    const [shell = "", ...args] = [
      ...shellPrefix("/bin/sh", { ...limits, cpuSeconds: Number.NaN }),
      "/bin/echo",
      "ran",
    ];
    expect(() => execFileSync(shell, args, { stdio: "pipe" })).toThrow();
  });

  test("launchPrefix uses the shell only where prlimit is missing [M10]", () => {
    const tools = {
      prlimit: undefined,
      setpriv: undefined,
      unshare: undefined,
      bubblewrap: undefined,
      bubblewrapProc: false,
    };
    expect(launchPrefix({ ...tools, shell: "/bin/sh" }, limits).slice(-4)).toEqual(["7", "40", "16", ""]);
    expect(launchPrefix({ ...tools, prlimit: "/usr/bin/prlimit", shell: "/bin/sh" }, limits)).not.toContain("/bin/sh");
  });
});
