// The machine's own tree, with some of it covered: what a server must not see is empty, what it must not change is
// read-only. In contrast to a view (view.ts) everything else stays where it is, because a server's needs are not known.

import {
  closeSync,
  existsSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { isWithin, type MountInfo, mountOf, parseMountInfo } from "../../paths/mounts.js";
import { errnoName, OPEN_FLAGS } from "../../paths/native.js";
import type { LaunchMessage } from "../server/types.js";
import type { Ids } from "./privileges.js";
import { useOwnProcessTable } from "./proc.js";
import { ATTR, type Kernel, MS, ok } from "./syscalls.js";
import { copyOf } from "./view.js";

/** With a user, that of a root gateway's server, it gets a name, and no device but the harmless ones. */
type Cover = Pick<LaunchMessage, "hidden" | "readOnly" | "own" | "splitHome" | "user" | "inPidNamespace"> & {
  readonly home: string;
};

/** File systems by which the kernel is set up. */
const KERNEL_TYPES = new Set(
  "sysfs cgroup cgroup2 debugfs tracefs configfs securityfs pstore bpf efivarfs binfmt_misc".split(" "),
);

/** Devices that lead nowhere but to the process itself, its terminal, or the screen. */
const DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "dri", "fuse"];

/** INVARIANT: the calling thread is alone in a new mount namespace. Throws when anything is refused. */
export function coverTree(calls: Kernel, cover: Cover, notes: string[]): { readonly hasProc: boolean } {
  ok("private mounts", calls.mount(null, "/", null, MS.REC | MS.PRIVATE, null));
  const hasProc = cover.inPidNamespace && useOwnProcessTable(calls, notes);
  const procFlags = ATTR.RDONLY | ATTR.NOSUID | ATTR.NODEV | ATTR.NOEXEC;
  if (hasProc) ok("/proc", calls.setMountFlags("/proc", procFlags, false));
  const mounts = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
  const own = cover.own.map((path) => ({ path, fd: openSync(path, OPEN_FLAGS.NAME_ONLY) }));
  const store = cover.splitHome === undefined ? undefined : openHomeStore(cover.splitHome);
  if (cover.user !== undefined) closeDevices(calls, mounts);
  closeTerminals(calls, notes);
  for (const mount of mounts) coverKernel(calls, mount, hasProc);
  const hidden = [...new Set(cover.hidden.flatMap((path) => [path, ...otherNames(path, mounts)]))];
  const readOnly = [...new Set(cover.readOnly.flatMap((path) => [path, ...otherNames(path, mounts)]))];
  place(calls, hidden, readOnly);
  for (const { path, fd } of own) {
    keep(calls, path, fd);
    for (const inside of readOnly) if (inside !== path && isWithin(inside, path)) freeze(calls, inside);
    for (const inside of hidden) if (inside !== path && isWithin(inside, path)) hide(calls, inside);
  }
  for (const path of hidden) seal(calls, path);
  if (cover.splitHome !== undefined && store !== undefined) splitHome(calls, cover.splitHome, store);
  if (cover.user !== undefined) nameUser(calls, cover.user, cover.home);
  return { hasProc };
}

/** Block devices and the like: a user who passes over file modes could read the disk itself. */
function closeDevices(calls: Kernel, mounts: readonly MountInfo[]): void {
  const trees = DEVICES.flatMap((name) => {
    const path = `/dev/${name}`;
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats === undefined || stats.isSymbolicLink()) return [];
    const fd = openSync(path, OPEN_FLAGS.NAME_ONLY);
    const tree = calls.cloneMount(fd);
    closeSync(fd);
    ok(path, tree);
    return [{ path, tree }];
  });
  ok("devices", calls.setMountFlags("/", ATTR.NODEV | ATTR.NOSUID, true));
  for (const { path, tree } of trees) {
    ok(path, calls.moveMount(tree, path));
    closeSync(tree);
  }
  // Such a user could make files beside the devices. Shared memory is a mount of its own, and stays writable.
  if (mounts.some(({ path }) => path === "/dev")) ok("/dev", calls.setMountFlags("/dev", ATTR.RDONLY, false));
}

/** Where pseudo-terminals are. */
export const TERMINALS = "/dev/pts";
const OPENS_TERMINALS = "/dev/ptmx";
/** A login makes its user the owner of the terminal. */
const LOGIN_TERMINAL = /^(?:tty.+|console|hvc\d+)$/;

/**
 * `closeTerminals` leaves the server only terminals that it opens itself. From those of the gateway's user it could read
 * what the user types, an operator's credential included, and write what the user then believes.
 */
function closeTerminals(calls: Kernel, notes: string[]): void {
  for (const name of existsSync("/dev") ? readdirSync("/dev") : []) {
    const path = `/dev/${name}`;
    if (LOGIN_TERMINAL.test(name) && name !== "tty" && statSync(path).uid === process.getuid?.()) hide(calls, path);
  }
  if (!existsSync(TERMINALS)) return;
  const options = "newinstance,ptmxmode=0666,mode=0620";
  const mounted = calls.mount("devpts", TERMINALS, "devpts", MS.NOSUID | MS.NOEXEC, options);
  if (mounted < 0) {
    notes.push(`pseudo-terminals: ${errnoName(mounted)}`);
    return ok(TERMINALS, coverWithNothing(calls, TERMINALS));
  }
  if (lstatSync(OPENS_TERMINALS, { throwIfNoEntry: false })?.isCharacterDevice() !== true) return;
  ok(OPENS_TERMINALS, calls.mount(`${TERMINALS}/ptmx`, OPENS_TERMINALS, null, MS.BIND, null));
}

/** Another /proc shows the processes outside, wherever it is mounted. */
function coverKernel(calls: Kernel, { path, type }: MountInfo, hasProc: boolean): void {
  if (isWithin(path, "/proc")) return;
  if (KERNEL_TYPES.has(type)) ok(path, calls.setMountFlags(path, ATTR.RDONLY, false));
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

/**
 * Outer ones first. The directories above are mounted on themselves: a mount point cannot be renamed, so no other tree can
 * take the place of a covered one, not even by a process that may write to its parent.
 */
function place(calls: Kernel, hidden: readonly string[], readOnly: readonly string[]): void {
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
    if (kind === "hidden") hide(calls, path);
    else if (kind === "read-only") freeze(calls, path);
    else ok(path, calls.mount(path, path, null, MS.BIND | MS.REC, null));
    if (kind !== "above") done.push(path);
  }
}

function freeze(calls: Kernel, path: string): void {
  ok(path, calls.mount(path, path, null, MS.BIND | MS.REC, null));
  ok(path, calls.setMountFlags(path, ATTR.RDONLY, true));
}

function hide(calls: Kernel, path: string): void {
  const isDirectory = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
  if (isDirectory === undefined) return;
  ok(`hide ${path}`, isDirectory ? coverWithNothing(calls, path) : calls.mount("/dev/null", path, null, MS.BIND, null));
}

function coverWithNothing(calls: Kernel, path: string): number {
  return calls.mount("tmpfs", path, "tmpfs", MS.NOSUID | MS.NODEV | MS.NOEXEC, "size=64k,nr_inodes=256,mode=755");
}

function keep(calls: Kernel, path: string, fd: number): void {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
    const isDirectory = fstatSync(fd).isDirectory();
    mkdirSync(isDirectory ? path : dirname(path), { recursive: true, mode: 0o755 });
    if (!isDirectory) writeFileSync(path, "", { mode: 0o444 });
  }
  ok(`keep ${path}`, calls.mount(`/proc/self/fd/${fd}`, path, null, MS.BIND | MS.REC, null));
  closeSync(fd);
}

function seal(calls: Kernel, path: string): void {
  const isDirectory = lstatSync(path, { throwIfNoEntry: false })?.isDirectory();
  if (isDirectory === true) ok(path, calls.setMountFlags(path, ATTR.RDONLY, false));
}

/** Programs fail that find no entry for their own user. */
function nameUser(calls: Kernel, user: Ids, home: string): void {
  const base = ["/mnt", "/media", "/srv", "/run"].find((path) =>
    statSync(path, { throwIfNoEntry: false })?.isDirectory(),
  );
  if (base === undefined) return;
  ok(base, calls.mount("tmpfs", base, "tmpfs", MS.NOSUID | MS.NODEV, "size=8m,mode=755"));
  for (const { path, text } of ["/etc/passwd", "/etc/group"].flatMap((file) => copyOf(file, user, home))) {
    const copy = `${base}/${basename(path)}`;
    writeFileSync(copy, text, { mode: 0o644 });
    ok(path, calls.mount(copy, path, null, MS.BIND, null));
    ok(path, calls.setMountFlags(path, ATTR.RDONLY, false));
  }
  ok(base, calls.unmountLazily(base));
}

// The user's home directory as a stdio server sees it: what exists is there, what the server adds is kept apart. A start-up
// file or a program that a server plants is seen by that server alone.

export interface HomePlan {
  readonly path: string;
  /** The gateway's directory for this server: new entries of `path` are kept in it. */
  readonly store: string;
  /** Directories below `path` whose existing content is not shown: package caches, from which other programs run code. */
  readonly apart: readonly string[];
}

/** New entries are kept apart in these as well: programs look for start-up files and settings in them. */
const SPLIT = ["", ".config", ".local", ".local/share", ".cache"];
/** Entries of one directory that are shown. */
const MAX_ENTRIES = 4096;

/** Opened before the gateway's directories are hidden: the store lies inside one of them. */
export function openHomeStore({ store }: HomePlan): number {
  mkdirSync(store, { recursive: true, mode: 0o700 });
  return openSync(store, OPEN_FLAGS.NAME_ONLY);
}

/** INVARIANT: everything else is covered already; mounts below the home directory move with its entries. */
export function splitHome(calls: Kernel, plan: HomePlan, storeFd: number): void {
  // The user's own, before anything of the server's is in sight. A link leads to a directory outside, which is as it was.
  const there = SPLIT.filter((name) => lstatSync(join(plan.path, name), { throwIfNoEntry: false })?.isDirectory());
  for (const name of there) {
    const path = join(plan.path, name);
    // Side by side, never one inside the other: a server that runs already cannot put a link in the place of one.
    const kept = `/proc/self/fd/${storeFd}/${name === "" ? "home" : name.replaceAll("/", "-")}`;
    mkdirSync(kept, { recursive: true, mode: 0o700 });
    split(calls, path, kept, plan.apart);
  }
  closeSync(storeFd);
}

function split(calls: Kernel, directory: string, kept: string, apart: readonly string[]): void {
  const entries = readdirSync(directory)
    .slice(0, MAX_ENTRIES)
    .filter((name) => !apart.includes(join(directory, name)))
    .flatMap((name) => opened(join(directory, name)));
  ok(directory, calls.mount(kept, directory, null, MS.BIND, null));
  for (const entry of entries) {
    show(calls, entry);
    closeSync(entry.fd);
  }
}

interface Entry {
  readonly path: string;
  readonly fd: number;
  /** Where it leads, for a symbolic link. */
  readonly target: string | undefined;
}

/** Nothing for what is gone, or closed to this user. */
function opened(path: string): Entry[] {
  try {
    const target = lstatSync(path).isSymbolicLink() ? readlinkSync(path) : undefined;
    return [{ path, fd: openSync(path, OPEN_FLAGS.NAME_ONLY_NO_FOLLOW), target }];
  } catch {
    return [];
  }
}

/** An entry that cannot be shown stays out of sight. */
function show(calls: Kernel, { path, fd, target }: Entry): void {
  if (target !== undefined) return made(() => symlinkSync(target, path));
  const stats = fstatSync(fd);
  const from = `/proc/self/fd/${fd}`;
  if (!stats.isDirectory() && !stats.isFile()) return;
  if (stats.isDirectory()) made(() => mkdirSync(path, { mode: 0o700 }));
  else made(() => writeFileSync(path, "", { mode: 0o600, flag: "wx" }));
  const there = lstatSync(path, { throwIfNoEntry: false });
  // The server has made an entry of this name and of another kind: it keeps that one.
  if (there?.isDirectory() !== stats.isDirectory() || there.isSymbolicLink()) return;
  if (calls.mount(from, path, null, MS.BIND | MS.REC, null) < 0) return;
  if (stats.isFile() && basename(path).startsWith(".")) ok(path, calls.setMountFlags(path, ATTR.RDONLY, false));
}

/** Another instance of the server may have made it just now. */
function made(make: () => void): void {
  try {
    make();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
