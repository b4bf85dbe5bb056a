// A file system of its own: an empty tree in which only the policy's folders and the system's programs appear, at their
// usual paths. Needs the right to mount (root, or a user namespace); everything happens in a private mount namespace.

import {
  closeSync,
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
import { FOLDER_NAME_ONLY, NAME_ONLY, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "../../jail/flags.js";
import { isWithin, parseMountInfo } from "../../jail/mounts.js";
import { native } from "../../jail/native.js";
import { errorName, type Kernel } from "./syscalls.js";

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
  readonly user: { readonly uid: number; readonly gid: number } | undefined;
}

const MS_NOSUID = 2;
const MS_NODEV = 4;
const MS_BIND = 4096;
const MS_REC = 16384;
const MS_PRIVATE = 1 << 18;

const ATTR_RDONLY = 1;
const ATTR_NOSUID = 2;
const ATTR_NODEV = 4;

const MAX_COPY_BYTES = 4_000_000;

/** INVARIANT: the calling thread is alone in a new mount namespace. Throws when anything is refused. */
export function enterView(calls: Kernel, view: View): void {
  const ok = (what: string, result: number): void => {
    if (result < 0) throw new Error(`${what}: ${errorName(result)}`);
  };
  ok("private mounts", calls.mount(null, "/", null, MS_REC | MS_PRIVATE, null));
  const sources = openSources(view);
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
  for (const source of sources) place(calls, base, source, ok);
  mkdirSync(base + view.scratch.path, { recursive: true });
  const scratchOptions = `size=${view.scratch.bytes},nr_inodes=${view.scratch.files},mode=1777`;
  ok("scratch", calls.mount("tmpfs", base + view.scratch.path, "tmpfs", MS_NOSUID | MS_NODEV, scratchOptions));
  process.chdir(base);
  ok("pivot_root", calls.pivotRootHere());
  ok("old root", calls.unmountLazily("."));
  process.chdir("/");
  ok("read-only view", calls.setMountFlags("/", ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, false));
}

type Kind = "folder" | "system" | "writable" | "device" | "link";

interface Source {
  readonly path: string;
  readonly kind: Kind;
  readonly fd: number;
  readonly isFolder: boolean;
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

function place(calls: Kernel, base: string, source: Source, ok: (what: string, result: number) => void): void {
  const at = base + source.path;
  if (source.kind === "link") {
    mkdirSync(dirname(at), { recursive: true, mode: 0o755 });
    if (lstatSync(at, { throwIfNoEntry: false }) === undefined) symlinkSync(readlinkSync(source.path), at);
    return;
  }
  makeMountPoint(at, source.isFolder);
  const from = `/proc/self/fd/${source.fd}`;
  let flags = source.kind === "system" ? MS_BIND | MS_REC : MS_BIND;
  let bound = calls.mount(from, at, null, flags, null);
  if (bound < 0 && source.kind !== "system") {
    // In a user namespace, mounts below a folder cannot be left out; they are shown and then covered.
    flags = MS_BIND | MS_REC;
    bound = calls.mount(from, at, null, flags, null);
    if (bound >= 0) coverMounts(calls, at, ok);
  }
  ok(`bind ${source.path}`, bound);
  const readOnly = source.kind === "writable" || source.kind === "device" ? 0 : ATTR_RDONLY;
  const noDevices = source.kind === "device" ? 0 : ATTR_NODEV;
  ok(`flags of ${source.path}`, calls.setMountFlags(at, readOnly | noDevices | ATTR_NOSUID, (flags & MS_REC) !== 0));
  closeSync(source.fd);
}

function makeMountPoint(at: string, isFolder: boolean): void {
  if (lstatSync(at, { throwIfNoEntry: false }) !== undefined) return;
  mkdirSync(isFolder ? at : dirname(at), { recursive: true, mode: 0o755 });
  if (!isFolder) writeFileSync(at, "", { mode: 0o444 });
}

function coverMounts(calls: Kernel, at: string, ok: (what: string, result: number) => void): void {
  const below = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")).filter(
    (m) => m.path !== at && isWithin(m.path, at),
  );
  for (const mount of below) {
    ok(`cover ${mount.path}`, calls.mount("tmpfs", mount.path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=555"));
  }
}

function copyOf(path: string, user: View["user"]): { path: string; text: Buffer | string }[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !stats.isFile() || stats.size > MAX_COPY_BYTES) return [];
  const text = readFileSync(path);
  if (user === undefined) return [{ path, text }];
  if (path === "/etc/passwd") return [{ path, text: `${text}sandbox:x:${user.uid}:${user.gid}::/:/bin/false\n` }];
  if (path === "/etc/group") return [{ path, text: `${text}sandbox:x:${user.gid}:\n` }];
  return [{ path, text }];
}
