// /proc for commands: that of the supervisor's own PID namespace, read-only, with the processes that a command may not look into
// left out and everything about the machine covered but what ordinary programs read.

import { lstatSync, mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { ATTR, type Kernel, MS, noted, ok } from "./syscalls.js";

/** Only processes that the reader could trace are there (5.8); before that, only those of its own user. */
const HIDING = ["hidepid=4", "hidepid=2"];

const SHOWN = new Set(
  "cgroups cpuinfo filesystems loadavg meminfo mounts net pressure self stat swaps sys thread-self uptime version vmstat".split(
    " ",
  ),
);

const LINKS = { fd: "self/fd", stdin: "self/fd/0", stdout: "self/fd/1", stderr: "self/fd/2" };

/**
 * From here on /proc shows the supervisor's own PID namespace, of which it is the first process. False when the kernel
 * refuses: where /proc is partly covered (most containers), no user namespace gets a fresh one.
 */
export function useOwnProcessTable(calls: Kernel, notes: string[]): boolean {
  const mounted = calls.mount("proc", "/proc", "proc", MS.NOSUID | MS.NODEV | MS.NOEXEC, null);
  return noted(notes, "/proc", mounted);
}

/** INVARIANT: /proc is the supervisor's own, and `base` holds /dev/null. */
export function placeProc(calls: Kernel, base: string, notes: string[]): boolean {
  const at = `${base}/proc`;
  mkdirSync(at, { recursive: true, mode: 0o555 });
  const flags = MS.NOSUID | MS.NODEV | MS.NOEXEC;
  let mounted = -1;
  for (const hiding of HIDING) if (mounted < 0) mounted = calls.mount("proc", at, "proc", flags, hiding);
  if (!noted(notes, "/proc", mounted)) return false;
  for (const name of readdirSync(at)) {
    if (SHOWN.has(name) || /^[0-9]+$/.test(name)) continue;
    cover(calls, `${at}/${name}`, `${base}/dev/null`);
  }
  ok("/proc", calls.setMountFlags(at, ATTR.RDONLY | ATTR.NOSUID | ATTR.NODEV | ATTR.NOEXEC, false));
  for (const [name, target] of Object.entries(LINKS)) symlinkSync(`/proc/${target}`, `${base}/dev/${name}`);
  return true;
}

function cover(calls: Kernel, path: string, nothing: string): void {
  const result = lstatSync(path).isDirectory()
    ? calls.mount("tmpfs", path, "tmpfs", MS.RDONLY | MS.NOSUID | MS.NODEV | MS.NOEXEC, "size=4k,mode=555")
    : calls.mount(nothing, path, null, MS.BIND, null);
  ok(`cover ${path}`, result);
}
