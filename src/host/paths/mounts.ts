// What is mounted where, from text alone. A hung network or FUSE mount blocks every call that touches it, so the table
// is asked before the file system is.

import { openSync, readSync } from "node:fs";

export interface Mount {
  readonly path: string;
  readonly type: string;
}

export interface MountInfo extends Mount {
  /** Which file system, and which directory of it is mounted. */
  readonly device: string;
  readonly root: string;
}

/** Types whose data comes from another machine, or from a user's own process. `autofs` mounts something else when touched. */
const NETWORK_TYPES =
  /^(nfs\d?|cifs|smb\d?|smbfs|sshfs|afpfs|afs|ncpfs|ncp|9p|ceph|glusterfs|lustre|pvfs2|orangefs|beegfs|davfs2?|webdav|coda|curlftpfs|s3fs|autofs|ftp|macfuse|osxfuse|fuseblk|fuse(\..*)?)$/i;

export function isNetworkType(type: string): boolean {
  return NETWORK_TYPES.test(type);
}

/** Kernel views: a link below them can lead anywhere. */
const KERNEL_TYPES = new Set(["proc", "sysfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "nsfs"]);

/** Mount points that a walk must not step on. Those in `opened` are the operator's own choice. */
export function closedMounts(mounts: readonly Mount[], opened: ReadonlySet<Mount>): Set<string> {
  const closed = mounts.filter((m) => KERNEL_TYPES.has(m.type) || (isNetworkType(m.type) && !opened.has(m)));
  return new Set(closed.map((m) => m.path));
}

/** Lines of /proc/self/mountinfo; fields before ` - ` are positional, the type follows it (proc(5)). */
export function parseMountInfo(text: string): MountInfo[] {
  const mounts: MountInfo[] = [];
  for (const line of text.split("\n")) {
    const [left, right] = line.split(" - ", 2);
    const [, , device, root, path] = left?.split(" ") ?? [];
    const type = right?.split(" ")[0];
    if (device === undefined || root === undefined || path === undefined || type === undefined) continue;
    mounts.push({ path: unescapeMountPath(path), type, device, root: unescapeMountPath(root) });
  }
  return mounts;
}

/** Space, tab, newline and backslash stand as octal escapes of their bytes. */
function unescapeMountPath(path: string): string {
  if (!path.includes("\\")) return path;
  return path.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

// The table is asked before every call, so the file stays open and text that did not change is not parsed again.
let table: { readonly fd: number; text: Buffer; mounts: readonly Mount[] } | undefined;
let buffer = Buffer.alloc(16_384);

const MAX_TABLE_BYTES = 64_000_000;

export function readMounts(): readonly Mount[] {
  table ??= { fd: openSync("/proc/self/mountinfo", "r"), text: Buffer.alloc(0), mounts: [] };
  let length = 0;
  for (;;) {
    const read = readSync(table.fd, buffer, length, buffer.length - length, length);
    if (read === 0) break;
    length += read;
    if (length < buffer.length) continue;
    if (length >= MAX_TABLE_BYTES) throw new Error("the mount table is too long");
    buffer = Buffer.concat([buffer, Buffer.alloc(buffer.length)]);
  }
  if (length !== table.text.length || buffer.compare(table.text, 0, length, 0, length) !== 0) {
    table.text = Buffer.from(buffer.subarray(0, length));
    table.mounts = parseMountInfo(table.text.toString("utf8"));
  }
  return table.mounts;
}

/** The mount that holds `path`: the longest mount point above it, the latest among equals. */
export function mountOf<M extends Mount>(path: string, mounts: readonly M[]): M | undefined {
  let best: M | undefined;
  for (const mount of mounts) {
    if (isWithin(path, mount.path) && (best === undefined || mount.path.length >= best.path.length)) best = mount;
  }
  return best;
}

/** Mount points strictly below `directory` and at or above `path`. */
export function mountsBetween(directory: string, path: string, mounts: readonly Mount[]): Mount[] {
  return mounts.filter((m) => m.path !== directory && isWithin(m.path, directory) && isWithin(path, m.path));
}

/** INVARIANT: both are absolute and normal; a sibling that merely begins alike is not within. */
export function isWithin(path: string, directory: string): boolean {
  if (path === directory || directory === "/") return true;
  return path.startsWith(directory) && path[directory.length] === "/";
}
