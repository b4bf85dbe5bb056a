// What the operating system says of the volume and the file behind a path, by system calls that Node does not offer: the
// name of the file system, whether it is on this machine, whether names differ by case, whether a file is a reparse point.
// One interface for three systems. The Linux one shows that its callers work; the other two cannot be run here.

import { statfsSync } from "node:fs";
import { win32 } from "node:path";
import { type Koffi, loadKoffi } from "../../lib/index.js";

export interface SystemFacts {
  /** `apfs`, `NTFS`, `ext4`. */
  readonly typeName: string;
  /** Unknown where the system cannot be called; callers decide what that permits. */
  readonly volume: "local" | "remote" | "unknown";
  readonly isCaseSensitive: boolean;
  /** A link, a junction or a placeholder that was not followed. */
  readonly isReparsePoint: boolean;
}

export type AskSystem = (path: string) => SystemFacts;

let asked: AskSystem | undefined;

export function systemFacts(path: string): SystemFacts {
  asked ??= asking(process.platform, loadKoffi());
  return asked(path);
}

/** How this platform is called; without koffi macOS is asked by the type number that Node knows. */
export function asking(platform: NodeJS.Platform, ffi: Koffi | undefined): AskSystem {
  if (platform === "win32") return ffi === undefined ? () => UNKNOWN : windowsFacts(ffi);
  if (platform === "darwin") return ffi === undefined ? macFactsByNumber : macFacts(ffi);
  return ffi === undefined ? () => UNKNOWN : linuxFacts(ffi);
}

const UNKNOWN: SystemFacts = { typeName: "unknown", volume: "unknown", isCaseSensitive: true, isReparsePoint: false };

/** From linux/magic.h; the remote ones are those of `isNetworkType`. */
const LINUX_TYPES: Readonly<Record<number, readonly [name: string, volume: "local" | "remote"]>> = {
  0xef53: ["ext4", "local"],
  0x01021994: ["tmpfs", "local"],
  0x58465342: ["xfs", "local"],
  0x9123683e: ["btrfs", "local"],
  0x794c7630: ["overlay", "local"],
  0x9fa0: ["proc", "local"],
  0x6969: ["nfs", "remote"],
  0xff534d42: ["cifs", "remote"],
  0xfe534d42: ["smb2", "remote"],
  0x01021997: ["9p", "remote"],
  0x65735546: ["fuse", "remote"],
  0x00c36400: ["ceph", "remote"],
};

/** The largest `struct statfs` of any of these systems is smaller. */
const STATFS_BYTES = 4_096;

function linuxFacts(ffi: Koffi): AskSystem {
  const statfs = ffi.load(null).func("statfs", "int", ["str", "void*"]);
  return (path) => {
    const found = Buffer.alloc(STATFS_BYTES);
    if (statfs(path, found) !== 0) return UNKNOWN;
    const type = found.readUInt32LE(0);
    const [typeName, volume] = LINUX_TYPES[type] ?? [`type 0x${type.toString(16)}`, "unknown"];
    return { typeName, volume, isCaseSensitive: true, isReparsePoint: false };
  };
}

/** Offsets in `struct statfs` with 64-bit inodes, and constants of sys/mount.h and unistd.h. */
const MAC = { flags: 64, typeName: 72, typeNameBytes: 16, MNT_LOCAL: 0x1000, PC_CASE_SENSITIVE: 11 } as const;

function macFacts(ffi: Koffi): AskSystem {
  const libc = ffi.load(null);
  // On Intel the plain name is the call with 32-bit inodes.
  const statfs = libc.func(process.arch === "x64" ? "statfs$INODE64" : "statfs", "int", ["str", "void*"]);
  const pathconf = libc.func("pathconf", "long", ["str", "int"]);
  return (path) => {
    const found = Buffer.alloc(STATFS_BYTES);
    if (statfs(path, found) !== 0) return UNKNOWN;
    const name = found.subarray(MAC.typeName, MAC.typeName + MAC.typeNameBytes);
    return {
      typeName: name.toString("latin1").replace(/\0.*$/s, ""),
      volume: (found.readUInt32LE(MAC.flags) & MAC.MNT_LOCAL) === 0 ? "remote" : "local",
      // An error counts as sensitive: then two spellings are two files, and only one of them is in a root.
      isCaseSensitive: pathconf(path, MAC.PC_CASE_SENSITIVE) !== 0,
      isReparsePoint: false,
    };
  };
}

/** Numbers of macOS' network file systems vary by version, so what is not known to be local counts as remote. */
const LOCAL_MAC_TYPES: ReadonlySet<number> = new Set([0x1a /* apfs */, 0x17 /* hfs */, 0x11]);

function macFactsByNumber(path: string): SystemFacts {
  const type = Number(statfsSync(path).type);
  const volume = LOCAL_MAC_TYPES.has(type) ? "local" : "remote";
  return { typeName: `type 0x${type.toString(16)}`, volume, isCaseSensitive: true, isReparsePoint: false };
}

/** Constants of fileapi.h and winnt.h. */
const WINDOWS = { NO_ROOT: 1, REMOTE: 4, INVALID_ATTRIBUTES: 0xffffffff, REPARSE_POINT: 0x400 } as const;
/** Characters; a longer answer is an error of the call. */
const MAX_WINDOWS_PATH = 1_024;

function windowsFacts(ffi: Koffi): AskSystem {
  const kernel = ffi.load("kernel32.dll");
  const volumePath = kernel.func("GetVolumePathNameW", "int", ["str16", "void*", "uint"]);
  const driveType = kernel.func("GetDriveTypeW", "uint", ["str16"]);
  const attributes = kernel.func("GetFileAttributesW", "uint", ["str16"]);
  const information = kernel.func("GetVolumeInformationW", "int", [
    "str16",
    "void*",
    "uint",
    "void*",
    "void*",
    "void*",
    "void*",
    "uint",
  ]);
  return (path) => {
    // A volume can be mounted in a directory: then its drive says nothing about it.
    const root = wide((text) => volumePath(path, text, MAX_WINDOWS_PATH)) ?? win32.parse(path).root;
    const type = driveType(root);
    const name = wide((text) => information(root, null, 0, null, null, null, text, MAX_WINDOWS_PATH));
    const found = attributes(path);
    return {
      typeName: name ?? "unknown",
      volume: type === WINDOWS.REMOTE || type === WINDOWS.NO_ROOT ? "remote" : type === 0 ? "unknown" : "local",
      isCaseSensitive: false,
      isReparsePoint: found !== WINDOWS.INVALID_ATTRIBUTES && (found & WINDOWS.REPARSE_POINT) !== 0,
    };
  };
}

/** The text that a call writes as UTF-16; undefined when it fails. */
function wide(call: (text: Buffer) => number): string | undefined {
  const text = Buffer.alloc(2 * MAX_WINDOWS_PATH);
  return call(text) === 0 ? undefined : text.toString("utf16le").replace(/\0.*$/s, "");
}
