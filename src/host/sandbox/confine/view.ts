// A file system of its own: an empty tree in which only the policy's folders and the system's programs appear, at their
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
import { FOLDER_NAME_ONLY, NAME_ONLY, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "../../paths/flags.js";
import { isWithin, parseMountInfo } from "../../paths/mounts.js";
import { native } from "../../paths/native.js";
import {
  ATTR_NODEV,
  ATTR_NOEXEC,
  ATTR_NOSUID,
  ATTR_RDONLY,
  MS_BIND,
  MS_NODEV,
  MS_NOSUID,
  MS_PRIVATE,
  MS_REC,
} from "./mount-flags.js";
import { exchangeNamespace, type Ids } from "./idmap.js";
import { placeProc, useOwnProcessTable } from "./proc.js";
import { syscallErrorName, type Kernel } from "./syscalls.js";
import { placeTemporary, type Temporary } from "./temporary.js";

export interface View {
  /** Roots: read-only, without what is mounted below them. */
  readonly folders: readonly string[];
  /** Programs and libraries: read-only, with everything below. */
  readonly system: readonly string[];
  /** Small settings files, copied. */
  readonly copies: readonly string[];
  readonly writable: readonly string[];
  readonly devices: readonly string[];
  readonly scratch: { readonly path: string; readonly bytes: number; readonly files: number };
  /** A line for the copied /etc/passwd, so that programs find their own user. */
  readonly user: Ids | undefined;
  /** In the folders the user shall act as their owner. */
  readonly actsAsOwner: boolean;
  readonly mayExecute: boolean;
  /** The supervisor is the first process of a PID namespace of its own, so that /proc shows nothing but its commands. */
  readonly hasOwnProcesses: boolean;
}

export interface Entered {
  /** False: some file systems have no such mapping. */
  readonly actsAsOwner: boolean;
  readonly hasProc: boolean;
  readonly temporary: Omit<Temporary, "seal">;
}

const MAX_COPY_BYTES = 4_000_000;

export type ViewCheck = (what: string, result: number) => void;

/** INVARIANT: the calling thread is alone in a new mount namespace. Throws when anything is refused. */
export function enterView(calls: Kernel, view: View, notes: string[]): Entered {
  const ok: ViewCheck = (what, result) => {
    if (result < 0) throw new Error(`${what}: ${syscallErrorName(result)}`);
  };
  ok("private mounts", calls.mount(null, "/", null, MS_REC | MS_PRIVATE, null));
  const hasOwnTable = view.hasOwnProcesses && useOwnProcessTable(calls, notes);
  // The mapping needs a process table; outside a PID namespace of its own the supervisor has one.
  if (view.hasOwnProcesses && !hasOwnTable && view.actsAsOwner) throw new Error("no process table of its own");
  const sources = openSources(view);
  const owners = view.actsAsOwner && view.user !== undefined ? mapOwners(calls, sources, view.user, notes) : undefined;
  const base = ["/tmp", "/var/tmp", "/mnt", "/run"].find((path) =>
    statSync(path, { throwIfNoEntry: false })?.isDirectory(),
  );
  if (base === undefined) throw new Error("no folder to build the view in");
  ok("view", calls.mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "size=32m,mode=755"));
  const copies = view.copies.flatMap((path) => copyOf(path, view.user));
  for (const { path, text } of copies) {
    mkdirSync(base + dirname(path), { recursive: true, mode: 0o755 });
    writeFileSync(base + path, text, { mode: 0o644 });
  }
  const temporary = placeTemporary(calls, base, view, sources, ok);
  for (const source of sources) place(calls, base, source, view.mayExecute, owners?.get(source), ok);
  temporary.seal();
  const hasProc = hasOwnTable && placeProc(calls, base, notes, ok);
  process.chdir(base);
  ok("pivot_root", calls.pivotRootHere());
  ok("old root", calls.unmountLazily("."));
  process.chdir("/");
  ok("read-only view", calls.setMountFlags("/", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, false));
  return { actsAsOwner: owners !== undefined, hasProc, temporary };
}

/** A detached copy of each folder's mount, with owner and user exchanged. Undefined when one of them cannot have it. */
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
      if (source.kind !== "folder" && source.kind !== "writable") continue;
      const { uid, gid } = fstatSync(source.fd);
      const key = `${uid}:${gid}`;
      const table = tables.get(key) ?? exchangeNamespace({ uid, gid }, user);
      tables.set(key, table);
      const tree = calls.cloneMount(source.fd);
      if (tree >= 0) trees.set(source, tree);
      const mapped = tree < 0 ? tree : calls.mapMountIds(tree, table);
      if (mapped < 0) throw new Error(syscallErrorName(mapped));
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

type Kind = "folder" | "system" | "writable" | "device" | "link";

export interface Placed {
  readonly path: string;
  readonly isFolder: boolean;
}

interface Source extends Placed {
  readonly kind: Kind;
  readonly fd: number;
}

/** Held open before the new tree covers anything, so that what is shown is what was opened. Outer folders first. */
function openSources(view: View): Source[] {
  const wanted: [readonly string[], Kind][] = [
    [view.system, "system"],
    [view.folders, "folder"],
    [view.devices, "device"],
    [view.writable, "writable"],
  ];
  const sources = wanted.flatMap(([paths, kind]) => paths.flatMap((path) => openSource(path, kind) ?? []));
  const rank = (source: Source): number => source.path.length * 2 + (source.kind === "writable" ? 1 : 0);
  return sources.sort((a, b) => rank(a) - rank(b));
}

function openSource(path: string, kind: Kind): Source | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return undefined;
  if (stats.isSymbolicLink()) return kind === "system" ? { path, kind: "link", fd: -1, isFolder: false } : undefined;
  const isFolder = stats.isDirectory();
  // A policy's folder is named without links; one that turned into a link since is not shown.
  const fd =
    native()?.openat2(
      undefined,
      path,
      isFolder ? FOLDER_NAME_ONLY : NAME_ONLY,
      RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    ) ?? -1;
  if (fd >= 0) return { path, kind, fd, isFolder };
  return kind === "system" ? { path, kind, fd: openSync(path, NAME_ONLY), isFolder } : undefined;
}

function place(
  calls: Kernel,
  base: string,
  source: Source,
  mayExecute: boolean,
  ownerTree: number | undefined,
  ok: ViewCheck,
): void {
  const at = base + source.path;
  if (source.kind === "link") {
    mkdirSync(dirname(at), { recursive: true, mode: 0o755 });
    if (lstatSync(at, { throwIfNoEntry: false }) === undefined) symlinkSync(readlinkSync(source.path), at);
    return;
  }
  makeMountPoint(at, source.isFolder);
  const isRecursive = ownerTree === undefined ? bind(calls, source, at, ok) : false;
  if (ownerTree !== undefined) {
    ok(`mount ${source.path}`, calls.moveMount(ownerTree, at));
    closeSync(ownerTree);
  }
  ok(`flags of ${source.path}`, calls.setMountFlags(at, flagsOf(source.kind, mayExecute), isRecursive));
  closeSync(source.fd);
}

/** True when what is mounted below came along. */
function bind(calls: Kernel, source: Source, at: string, ok: ViewCheck): boolean {
  const from = `/proc/self/fd/${source.fd}`;
  if (source.kind !== "system" && calls.mount(from, at, null, MS_BIND, null) >= 0) return false;
  ok(`bind ${source.path}`, calls.mount(from, at, null, MS_BIND | MS_REC, null));
  // In a user namespace, mounts below a folder cannot be left out; they are shown and then covered.
  if (source.kind !== "system") coverMounts(calls, at, ok);
  return true;
}

function flagsOf(kind: Kind, mayExecute: boolean): number {
  switch (kind) {
    case "device":
      return ATTR_NOSUID;
    case "system":
    case "link":
      return ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV;
    case "folder":
    case "writable": {
      const readOnly = kind === "folder" ? ATTR_RDONLY : 0;
      return readOnly | ATTR_NOSUID | ATTR_NODEV | (mayExecute ? 0 : ATTR_NOEXEC);
    }
  }
}

function makeMountPoint(at: string, isFolder: boolean): void {
  if (lstatSync(at, { throwIfNoEntry: false }) !== undefined) return;
  mkdirSync(isFolder ? at : dirname(at), { recursive: true, mode: 0o755 });
  if (!isFolder) writeFileSync(at, "", { mode: 0o444 });
}

function coverMounts(calls: Kernel, at: string, ok: ViewCheck): void {
  const below = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")).filter(
    (m) => m.path !== at && isWithin(m.path, at),
  );
  for (const mount of below) {
    ok(`cover ${mount.path}`, calls.mount("tmpfs", mount.path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=555"));
  }
}

export function copyOf(path: string, user: View["user"], home = "/"): { path: string; text: Buffer | string }[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !stats.isFile() || stats.size > MAX_COPY_BYTES) return [];
  const text = readFileSync(path);
  if (user === undefined) return [{ path, text }];
  if (path === "/etc/passwd")
    return [{ path, text: `${text.toString()}sandbox:x:${user.uid}:${user.gid}::${home}:/bin/false\n` }];
  if (path === "/etc/group") return [{ path, text: `${text.toString()}sandbox:x:${user.gid}:\n` }];
  return [{ path, text }];
}
