// A file system of its own: an empty tree in which only the policy's directories and the system's programs appear, at their
// usual paths. Needs the right to mount (root, or a user namespace); everything happens in a private mount namespace.

import {
  closeSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { isWithin, parseMountInfo } from "../../paths/mounts.js";
import { errnoName, native, OPEN_FLAGS, RESOLVE } from "../../paths/native.js";
import { type Confinement, SCRATCH } from "../confinement.js";
import { exchangeNamespace, type Ids } from "./privileges.js";
import { placeProc, useOwnProcessTable } from "./proc.js";
import { ATTR, type Kernel, MS, ok } from "./syscalls.js";

/** `View` says what of a confinement can be had on this machine. */
export interface View {
  readonly confinement: Confinement;
  /** In the policy's directories the user shall act as their owner. */
  readonly actsAsOwner: boolean;
  /** The supervisor is the first process of a PID namespace of its own, so that /proc shows nothing but its commands. */
  readonly hasOwnProcesses: boolean;
  /** Files with another text than the machine's. */
  readonly texts?: readonly (readonly [path: string, text: string])[];
  /** Symbolic links on the way to what is shown. */
  readonly links?: readonly (readonly [path: string, target: string])[];
  /** In the user's entry of /etc/passwd. */
  readonly home?: string;
}

export interface Entered {
  /** False: some file systems have no such mapping. */
  readonly actsAsOwner: boolean;
  readonly hasProc: boolean;
  readonly temporary: Omit<Temporary, "seal">;
}

const MAX_COPY_BYTES = 4_000_000;
const SCRATCH_FILES = 20_000;

/** INVARIANT: the calling thread is alone in a new mount namespace. Throws when anything is refused. */
export function enterView(calls: Kernel, view: View, notes: string[]): Entered {
  const { files, user, execFromRoots } = view.confinement;
  ok("private mounts", calls.mount(null, "/", null, MS.REC | MS.PRIVATE, null));
  const hasOwnTable = view.hasOwnProcesses && useOwnProcessTable(calls, notes);
  // The mapping needs a process table; outside a PID namespace of its own the supervisor has one.
  if (view.hasOwnProcesses && !hasOwnTable && view.actsAsOwner) throw new Error("no process table of its own");
  const sources = openSources(view.confinement);
  const owners = view.actsAsOwner && user !== undefined ? mapOwners(calls, sources, user, notes) : undefined;
  const base = ["/tmp", "/var/tmp", "/mnt", "/run"].find((path) =>
    statSync(path, { throwIfNoEntry: false })?.isDirectory(),
  );
  if (base === undefined) throw new Error("no directory to build the view in");
  ok("view", calls.mount("tmpfs", base, "tmpfs", MS.NOSUID | MS.NODEV, "size=32m,mode=755"));
  const own = (view.texts ?? []).map(([path, text]) => ({ path, text }));
  const copies = [...files.flatMap((path) => copyOf(path, user, view.home)), ...own];
  for (const { path, text } of copies) {
    mkdirSync(base + dirname(path), { recursive: true, mode: 0o755 });
    writeFileSync(base + path, text, { mode: 0o644 });
  }
  const temporary = placeTemporary(calls, base, view.confinement, sources);
  for (const source of sources) place(calls, base, source, execFromRoots, owners?.get(source));
  for (const [path, target] of view.links ?? []) placeLink(base, path, target);
  temporary.seal();
  const hasProc = hasOwnTable && placeProc(calls, base, notes);
  process.chdir(base);
  ok("pivot_root", calls.pivotRootHere());
  ok("old root", calls.unmountLazily("."));
  process.chdir("/");
  ok("read-only view", calls.setMountFlags("/", ATTR.RDONLY | ATTR.NOSUID | ATTR.NODEV, false));
  return { actsAsOwner: owners !== undefined, hasProc, temporary };
}

/** A detached copy of each directory's mount, with owner and user exchanged. Undefined when one of them cannot have it. */
function mapOwners(
  calls: Kernel,
  sources: readonly Source[],
  user: Ids,
  notes: string[],
): Map<Source, number> | undefined {
  const trees = new Map<Source, number>();
  const tables = new Map<string, number>();
  try {
    for (const source of sources) {
      if (source.kind !== "readable" && source.kind !== "writable") continue;
      const { uid, gid } = fstatSync(source.fd);
      const key = `${uid}:${gid}`;
      const table = tables.get(key) ?? exchangeNamespace({ uid, gid }, user);
      tables.set(key, table);
      const tree = calls.cloneMount(source.fd);
      if (tree >= 0) trees.set(source, tree);
      const mapped = tree < 0 ? tree : calls.mapMountIds(tree, table);
      if (mapped < 0) throw new Error(errnoName(mapped));
    }
    return trees;
  } catch (error) {
    for (const tree of trees.values()) closeSync(tree);
    notes.push(`owner mapping: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  } finally {
    for (const table of tables.values()) closeSync(table);
  }
}

type Kind = "readable" | "system" | "writable" | "device" | "link";

export interface Placed {
  readonly path: string;
  readonly isDirectory: boolean;
}

interface Source extends Placed {
  readonly kind: Kind;
  readonly fd: number;
}

/** Held open before the new tree covers anything, so that what is shown is what was opened. Outer directories first. */
function openSources(confinement: Confinement): Source[] {
  const { readableRoots, closed, repositories, system, devices, writableRoots, pinned } = confinement;
  const wanted: [readonly string[], Kind][] = [
    [system, "system"],
    [[...readableRoots, ...closed, ...repositories], "readable"],
    [devices, "device"],
    [[...writableRoots, ...pinned], "writable"],
  ];
  const sources = wanted.flatMap(([paths, kind]) => paths.flatMap((path) => openSource(path, kind) ?? []));
  const rank = (source: Source): number => source.path.length * 2 + (source.kind === "writable" ? 1 : 0);
  return sources.sort((a, b) => rank(a) - rank(b));
}

function openSource(path: string, kind: Kind): Source | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (stats.isSymbolicLink()) return kind === "system" ? { path, kind: "link", fd: -1, isDirectory: false } : undefined;
  const isDirectory = stats.isDirectory();
  // A policy's directory is named without links; one that turned into a link since is not shown.
  const fd =
    native()?.openat2(
      undefined,
      path,
      isDirectory ? OPEN_FLAGS.DIRECTORY_NAME_ONLY : OPEN_FLAGS.NAME_ONLY,
      RESOLVE.NO_LINKS,
    ) ?? -1;
  if (fd >= 0) return { path, kind, fd, isDirectory };
  return kind === "system" ? { path, kind, fd: openSync(path, OPEN_FLAGS.NAME_ONLY), isDirectory } : undefined;
}

function place(calls: Kernel, base: string, source: Source, mayExecute: boolean, ownerTree: number | undefined): void {
  const at = base + source.path;
  if (source.kind === "link") return placeLink(base, source.path, readlinkSync(source.path));
  makeMountPoint(at, source.isDirectory);
  const isRecursive = ownerTree === undefined ? bind(calls, source, at) : false;
  if (ownerTree !== undefined) {
    ok(`mount ${source.path}`, calls.moveMount(ownerTree, at));
    closeSync(ownerTree);
  }
  ok(`flags of ${source.path}`, calls.setMountFlags(at, flagsOf(source.kind, mayExecute), isRecursive));
  closeSync(source.fd);
}

function placeLink(base: string, path: string, target: string): void {
  const at = base + path;
  if (lstatSync(at, { throwIfNoEntry: false }) !== undefined) return;
  mkdirSync(dirname(at), { recursive: true, mode: 0o755 });
  symlinkSync(target, at);
}

/** True when what is mounted below came along. */
function bind(calls: Kernel, source: Source, at: string): boolean {
  const from = `/proc/self/fd/${source.fd}`;
  if (source.kind !== "system" && calls.mount(from, at, null, MS.BIND, null) >= 0) return false;
  ok(`bind ${source.path}`, calls.mount(from, at, null, MS.BIND | MS.REC, null));
  // In a user namespace, mounts below a directory cannot be left out; they are shown and then covered.
  if (source.kind !== "system") coverMounts(calls, at);
  return true;
}

function flagsOf(kind: Kind, mayExecute: boolean): number {
  switch (kind) {
    case "device":
      return ATTR.NOSUID;
    case "system":
    case "link":
      return ATTR.RDONLY | ATTR.NOSUID | ATTR.NODEV;
    case "readable":
    case "writable": {
      const readOnly = kind === "readable" ? ATTR.RDONLY : 0;
      return readOnly | ATTR.NOSUID | ATTR.NODEV | (mayExecute ? 0 : ATTR.NOEXEC);
    }
  }
}

function makeMountPoint(at: string, isDirectory: boolean): void {
  if (lstatSync(at, { throwIfNoEntry: false }) !== undefined) return;
  mkdirSync(isDirectory ? at : dirname(at), { recursive: true, mode: 0o755 });
  if (!isDirectory) writeFileSync(at, "", { mode: 0o444 });
}

function coverMounts(calls: Kernel, at: string): void {
  const below = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")).filter(
    (m) => m.path !== at && isWithin(m.path, at),
  );
  for (const mount of below) {
    ok(`cover ${mount.path}`, calls.mount("tmpfs", mount.path, "tmpfs", MS.NOSUID | MS.NODEV, "size=4k,mode=555"));
  }
}

export function copyOf(path: string, user: Ids | undefined, home = "/"): { path: string; text: Buffer | string }[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !stats.isFile() || stats.size > MAX_COPY_BYTES) return [];
  const text = readFileSync(path);
  if (user === undefined) return [{ path, text }];
  if (path === "/etc/passwd")
    return [{ path, text: `${text.toString()}sandbox:x:${user.uid}:${user.gid}::${home}:/bin/false\n` }];
  if (path === "/etc/group") return [{ path, text: `${text.toString()}sandbox:x:${user.gid}:\n` }];
  return [{ path, text }];
}

// Temporary directories of a command's own, in memory, at the places where programs look for them: /tmp and /dev/shm.

const SECOND_NAME = "/portcullis-tmp";
const SHARED_MEMORY = "/dev/shm";
const SHARED_MEMORY_LIMITS = "size=64m,nr_inodes=1000,mode=1777";
const COVER_LIMITS = "size=1m,mode=755";

export interface Temporary {
  /** Written by commands, and emptied after each. INVARIANT: nothing is mounted below them by these names. */
  readonly emptied: readonly string[];
  /** Directories right below them that stay, because something is mounted on them by the name /tmp. */
  readonly kept: readonly string[];
  readonly hasTmp: boolean;
  /** Called when everything is in its place. */
  seal(): void;
}

/**
 * What is /tmp to a command has a second name. What the policy opens below /tmp is mounted by the first name and only
 * there, so that emptying the directory by its second never leads into it.
 */
export function placeTemporary(
  calls: Kernel,
  base: string,
  { scratchBytes, execFromRoots }: Confinement,
  sources: readonly Placed[],
): Temporary {
  const flags = MS.NOSUID | MS.NODEV | (execFromRoots ? 0 : MS.NOEXEC);
  const make = (what: string, how: number, limits: string): void => {
    mkdirSync(base + what, { recursive: true });
    ok(what, calls.mount("tmpfs", base + what, "tmpfs", how, limits));
  };
  const limits = `size=${scratchBytes},nr_inodes=${SCRATCH_FILES},mode=1777`;
  make(SCRATCH, flags, limits);
  const below = sources.filter((source) => isWithin(source.path, "/tmp"));
  // A file or a link right there would have to lie among what every command may change.
  const hasTmp = below.every(({ path: at, isDirectory }) => at !== "/tmp" && (isDirectory || at.split("/").length > 3));
  const kept = hasTmp ? [...new Set(below.map((source) => source.path.split("/")[2] ?? ""))] : [];
  const covers = kept.filter((name) => !below.some((source) => source.path === `/tmp/${name}`));
  if (hasTmp) {
    make(SECOND_NAME, flags, limits);
    mkdirSync(`${base}/tmp`, { recursive: true });
    ok("/tmp", calls.mount(base + SECOND_NAME, `${base}/tmp`, null, MS.BIND, null));
    for (const name of kept) mkdirSync(`${base}/tmp/${name}`, { mode: 0o755 });
    for (const name of covers) make(`/tmp/${name}`, MS.NOSUID | MS.NODEV, COVER_LIMITS);
  }
  const hasShared = !sources.some((source) => isWithin(source.path, SHARED_MEMORY));
  if (hasShared) make(SHARED_MEMORY, MS.NOSUID | MS.NODEV | MS.NOEXEC, SHARED_MEMORY_LIMITS);
  return {
    emptied: [SCRATCH, ...(hasTmp ? [SECOND_NAME] : []), ...(hasShared ? [SHARED_MEMORY] : [])],
    kept,
    hasTmp,
    seal() {
      for (const name of covers) {
        const flagsOfCover = ATTR.RDONLY | ATTR.NOSUID | ATTR.NODEV;
        ok(`/tmp/${name}`, calls.setMountFlags(`${base}/tmp/${name}`, flagsOfCover, false));
      }
    },
  };
}
