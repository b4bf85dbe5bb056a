// Inside the policy's folders a command acts as their owner, outside it is nobody. The kernel does this per mount: a user
// namespace serves as a table in which the owner and the sandbox's user change places (mount_setattr(2), ID mapping).

import { spawn } from "node:child_process";
import { openSync, readlinkSync, writeFileSync } from "node:fs";

const ALL_IDS = 4_294_967_295;
const WAIT_MS = 2;
const MAX_WAITS = 500;

/** Lines for /proc/<pid>/uid_map: every id is itself, but `a` and `b` are exchanged. */
export function exchangeMap(a: number, b: number): string {
  if (a === b) return `0 0 ${ALL_IDS}\n`;
  const [low, high] = a < b ? [a, b] : [b, a];
  const ranges: [inside: number, outside: number, count: number][] = [
    [0, 0, low],
    [low, high, 1],
    [low + 1, low + 1, high - low - 1],
    [high, low, 1],
    [high + 1, high + 1, ALL_IDS - high - 1],
  ];
  return ranges
    .filter(([, , count]) => count > 0)
    .map((range) => `${range.join(" ")}\n`)
    .join("");
}

export interface Ids {
  readonly uid: number;
  readonly gid: number;
}

/** A descriptor of a namespace with that table; the process that made it is gone again. Throws when refused. */
export function exchangeNamespace(owner: Ids, user: Ids): number {
  // By another namespace's numbers, the process found would be somebody else's.
  if (readlinkSync("/proc/self") !== String(process.pid)) throw new Error("/proc is another PID namespace's");
  const own = readlinkSync("/proc/self/ns/user");
  const helper = spawn("unshare", ["--user", "--", "sleep", "60"], { stdio: "ignore", env: { PATH: "/usr/bin:/bin" } });
  // A missing program is reported later, by an event; there is no process id then.
  helper.on("error", () => undefined);
  const { pid } = helper;
  if (pid === undefined) throw new Error("unshare is not available");
  try {
    const folder = `/proc/${pid}`;
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (let waits = 0; readlinkSync(`${folder}/ns/user`) === own; waits++) {
      if (waits === MAX_WAITS) throw new Error("no user namespace came into being");
      Atomics.wait(pause, 0, 0, WAIT_MS);
    }
    writeFileSync(`${folder}/uid_map`, exchangeMap(owner.uid, user.uid));
    writeFileSync(`${folder}/gid_map`, exchangeMap(owner.gid, user.gid));
    return openSync(`${folder}/ns/user`, "r");
  } finally {
    helper.kill("SIGKILL");
  }
}
