// The machine's own tree, with some of it covered: what a server must not see is empty, what it must not change is
// read-only. In contrast to a view (view.ts) everything else stays where it is, because a server's needs are not known.

import { closeSync, fstatSync, lstatSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { NAME_ONLY } from "../../paths/flags.js";
import { isWithin, type MountInfo, mountOf, parseMountInfo } from "../../paths/mounts.js";
import { type HomePlan, openHomeStore, splitHome } from "./home.js";
import type { Ids } from "./idmap.js";
import {
  ATTR_NODEV,
  ATTR_NOEXEC,
  ATTR_NOSUID,
  ATTR_RDONLY,
  MS_BIND,
  MS_NODEV,
  MS_NOEXEC,
  MS_NOSUID,
  MS_PRIVATE,
  MS_REC,
} from "./mount-flags.js";
import { useOwnProcessTable } from "./proc.js";
import { syscallErrorName, type Kernel } from "./syscalls.js";
import { type ViewCheck, copyOf } from "./view.js";

export interface Cover {
  readonly hidden: readonly string[];
  readonly readOnly: readonly string[];
  /** Inside one of those, and yet as it was. */
  readonly own: readonly string[];
  /** A root gateway's server becomes this user: it gets a name, and no device but the harmless ones. */
  readonly user: Ids | undefined;
  readonly home: string;
  /** Undefined: the home directory is as it is, but for what is read-only in it. */
  readonly splitHome?: HomePlan | undefined;
  /** The calling process is the first of a PID namespace, so that /proc can be one's own. */
  readonly inPidNamespace: boolean;
}

/** File systems by which the kernel is set up. */
const KERNEL_TYPES = new Set(
  "sysfs cgroup cgroup2 debugfs tracefs configfs securityfs pstore bpf efivarfs binfmt_misc".split(" "),
);

/** Devices that lead nowhere but to the process itself, its terminal, or the screen. */
const DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "dri", "fuse"];

/** INVARIANT: the calling thread is alone in a new mount namespace. Throws when anything is refused. */
export function coverTree(calls: Kernel, cover: Cover, notes: string[]): { readonly hasProc: boolean } {
  const ok: ViewCheck = (what, result) => {
    if (result < 0) throw new Error(`${what}: ${syscallErrorName(result)}`);
  };
  ok("private mounts", calls.mount(null, "/", null, MS_REC | MS_PRIVATE, null));
  const hasProc = cover.inPidNamespace && useOwnProcessTable(calls, notes);
  const procFlags = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
  if (hasProc) ok("/proc", calls.setMountFlags("/proc", procFlags, false));
  const mounts = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
  const own = cover.own.map((path) => ({ path, fd: openSync(path, NAME_ONLY) }));
  const store = cover.splitHome === undefined ? undefined : openHomeStore(cover.splitHome);
  if (cover.user !== undefined) closeDevices(calls, ok);
  for (const mount of mounts) coverKernel(calls, mount, hasProc, ok);
  const hidden = [...new Set(cover.hidden.flatMap((path) => [path, ...otherNames(path, mounts)]))];
  const readOnly = [...new Set(cover.readOnly.flatMap((path) => [path, ...otherNames(path, mounts)]))];
  place(calls, hidden, readOnly, ok);
  for (const { path, fd } of own) {
    keep(calls, path, fd, ok);
    for (const inside of readOnly) if (inside !== path && isWithin(inside, path)) freeze(calls, inside, ok);
    for (const inside of hidden) if (inside !== path && isWithin(inside, path)) hide(calls, inside, ok);
  }
  for (const path of hidden) seal(calls, path, ok);
  if (cover.splitHome !== undefined && store !== undefined) splitHome(calls, cover.splitHome, store, ok);
  if (cover.user !== undefined) nameUser(calls, cover.user, cover.home, ok);
  return { hasProc };
}

/** Block devices and the like: a user who passes over file modes could read the disk itself. */
function closeDevices(calls: Kernel, ok: ViewCheck): void {
  const trees = DEVICES.flatMap((name) => {
    const path = `/dev/${name}`;
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats === undefined || stats.isSymbolicLink()) return [];
    const fd = openSync(path, NAME_ONLY);
    const tree = calls.cloneMount(fd);
    closeSync(fd);
    ok(path, tree);
    return [{ path, tree }];
  });
  ok("devices", calls.setMountFlags("/", ATTR_NODEV | ATTR_NOSUID, true));
  for (const { path, tree } of trees) {
    ok(path, calls.moveMount(tree, path));
    closeSync(tree);
  }
}

/** Another /proc shows the processes outside, wherever it is mounted. */
function coverKernel(calls: Kernel, { path, type }: MountInfo, hasProc: boolean, ok: ViewCheck): void {
  if (isWithin(path, "/proc")) return;
  if (KERNEL_TYPES.has(type)) ok(path, calls.setMountFlags(path, ATTR_RDONLY, false));
  if (type === "proc" && hasProc) ok(path, coverWithNothing(calls, path));
}

/** The same directory or file under another mount of its file system. */
function otherNames(path: string, mounts: readonly MountInfo[]): string[] {
  const at = mountOf(path, mounts);
  if (at === undefined) return [];
  const inFileSystem = join(at.root, path.slice(at.path === "/" ? 0 : at.path.length));
  return mounts.flatMap((mount) => {
    if (mount === at || mount.device !== at.device) return [];
    if (isWithin(mount.root, inFileSystem)) return [mount.path];
    if (!isWithin(inFileSystem, mount.root)) return [];
    const name = join(mount.path, inFileSystem.slice(mount.root === "/" ? 0 : mount.root.length));
    return lstatSync(name, { throwIfNoEntry: false }) === undefined ? [] : [name];
  });
}

function join(folder: string, rest: string): string {
  return `${folder === "/" ? "" : folder}${rest}` || "/";
}

/**
 * Outer ones first. The directories above are mounted on themselves: a mount point cannot be renamed, so no other tree can
 * take the place of a covered one, whoever may write to its parent.
 */
function place(calls: Kernel, hidden: readonly string[], readOnly: readonly string[], ok: ViewCheck): void {
  const kinds = new Map<string, "above" | "read-only" | "hidden">();
  for (const path of [...hidden, ...readOnly]) {
    for (let above = dirname(path); above !== "/"; above = dirname(above)) kinds.set(above, "above");
  }
  for (const path of readOnly) kinds.set(path, "read-only");
  for (const path of hidden) kinds.set(path, "hidden");
  const done: string[] = [];
  for (const [path, kind] of [...kinds].sort(([a], [b]) => a.length - b.length)) {
    const around = done.filter((outer) => isWithin(path, outer)).at(-1);
    if (around !== undefined && (kinds.get(around) === "hidden" || kind !== "hidden")) continue;
    if (kind === "hidden") hide(calls, path, ok);
    else if (kind === "read-only") freeze(calls, path, ok);
    else ok(path, calls.mount(path, path, null, MS_BIND | MS_REC, null));
    if (kind !== "above") done.push(path);
  }
}

function freeze(calls: Kernel, path: string, ok: ViewCheck): void {
  ok(path, calls.mount(path, path, null, MS_BIND | MS_REC, null));
  ok(path, calls.setMountFlags(path, ATTR_RDONLY, true));
}

function hide(calls: Kernel, path: string, ok: ViewCheck): void {
  const isFolder = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
  if (isFolder === undefined) return;
  ok(`hide ${path}`, isFolder ? coverWithNothing(calls, path) : calls.mount("/dev/null", path, null, MS_BIND, null));
}

function coverWithNothing(calls: Kernel, path: string): number {
  return calls.mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,nr_inodes=256,mode=755");
}

function keep(calls: Kernel, path: string, fd: number, ok: ViewCheck): void {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
    const isFolder = fstatSync(fd).isDirectory();
    mkdirSync(isFolder ? path : dirname(path), { recursive: true, mode: 0o755 });
    if (!isFolder) writeFileSync(path, "", { mode: 0o444 });
  }
  ok(`keep ${path}`, calls.mount(`/proc/self/fd/${fd}`, path, null, MS_BIND | MS_REC, null));
  closeSync(fd);
}

function seal(calls: Kernel, path: string, ok: ViewCheck): void {
  const isFolder = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
  if (isFolder === true) ok(path, calls.setMountFlags(path, ATTR_RDONLY, false));
}

/** Programs fail that find no entry for their own user. */
function nameUser(calls: Kernel, user: Ids, home: string, ok: ViewCheck): void {
  const base = ["/mnt", "/media", "/srv", "/run"].find((path) =>
    statSync(path, { throwIfNoEntry: false })?.isDirectory(),
  );
  if (base === undefined) return;
  ok(base, calls.mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=755"));
  for (const { path, text } of ["/etc/passwd", "/etc/group"].flatMap((file) => copyOf(file, user, home))) {
    const copy = `${base}/${basename(path)}`;
    writeFileSync(copy, text, { mode: 0o644 });
    ok(path, calls.mount(copy, path, null, MS_BIND, null));
    ok(path, calls.setMountFlags(path, ATTR_RDONLY, false));
  }
  ok(base, calls.unmountLazily(base));
}
