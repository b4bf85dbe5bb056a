// macOS: names are compared without regard to case and normal form on most volumes, `/tmp` and `/var` are links, and a
// file has names that are not paths of its own (`/.vol`, named forks, `/dev/fd`).

import { isNetworkType } from "./mounts.js";

interface Refused {
  readonly rule: string;
  readonly reason: string;
}

/** Refuses every component link at the moment of opening (macOS 11 and later), so nothing can be swapped in between. */
export const O_NOFOLLOW_ANY = 0x20000000;

export function checkMacPath(path: string): Refused | undefined {
  if (/(^|\/)\.\.namedfork(\/|$)/i.test(path) || /\/rsrc$/i.test(path)) {
    return { rule: "namedFork", reason: "named forks are second contents of another file" };
  }
  if (/^\/\.(vol|nofollow|resolve)(\/|$)/i.test(path)) {
    return { rule: "volumePath", reason: "paths below /.vol, /.nofollow and /.resolve name files by other means" };
  }
  if (/^\/dev(\/|$)/i.test(path)) return { rule: "specialFile", reason: "devices cannot be read or written" };
  return undefined;
}

/** `f_fstypename` and `f_flags` of statfs(2), and what fcntl(F_GETPATH) says of the opened file. */
export interface MacFacts {
  readonly realPath: string;
  readonly typeName: string;
  readonly isLocal: boolean;
  readonly caseSensitive: boolean;
  readonly isFile: boolean;
}

export function macFileSystem(facts: MacFacts, roots: readonly string[], denyNetworkFS: boolean): Refused | undefined {
  if (denyNetworkFS && (!facts.isLocal || isNetworkType(facts.typeName))) {
    return { rule: "denyNetworkFS", reason: `the file lies on a network file system (${facts.typeName})` };
  }
  if (!roots.some((root) => isWithinMac(facts.realPath, root, facts.caseSensitive))) {
    return { rule: "outsideAllowedRoots", reason: "the file lies outside every allowed root" };
  }
  if (!facts.isFile) return { rule: "specialFile", reason: "only regular files can be read or written" };
  return undefined;
}

/** Firmlinks show the data volume twice: `/System/Volumes/Data/Users` is `/Users`. */
function foldMac(path: string, caseSensitive: boolean): string {
  const one = path.replace(/^\/System\/Volumes\/Data(?=\/)/i, "").normalize("NFD");
  // ASCII only: folding one character more than the volume does would make two directories one.
  return caseSensitive ? one : one.replace(/[A-Z]/g, (upper) => upper.toLowerCase());
}

export function isWithinMac(path: string, root: string, caseSensitive: boolean): boolean {
  const p = foldMac(path, caseSensitive);
  const r = foldMac(root, caseSensitive);
  return p === r || p.startsWith(`${r}/`);
}

// Windows names files in more ways than one. Each spelling that could name something other than it shows is refused;
// what remains is `C:\directory\name` and `C:/directory/name`.

interface Refused {
  readonly rule: string;
  readonly reason: string;
}

const RESERVED = /^(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?$/i;

export function checkWindowsPath(text: string): Refused | undefined {
  const path = text.replaceAll("/", "\\");
  if (/^\\\\[?.]\\/.test(path) || path.startsWith("\\??\\")) {
    return { rule: "deviceNamespace", reason: "paths that begin with \\\\?\\ or \\\\.\\ skip Windows' own checks" };
  }
  if (path.startsWith("\\\\")) return { rule: "denyNetworkFS", reason: "UNC paths name another machine" };
  if (/^[A-Za-z]:(?!\\)/.test(path)) {
    return { rule: "driveRelative", reason: "a drive without a following \\ means that drive's current directory" };
  }
  if (path.startsWith("\\")) return { rule: "driveRelative", reason: "a path without a drive means the current drive" };
  const withoutDrive = path.replace(/^[A-Za-z]:\\/, "");
  for (const name of withoutDrive.split("\\")) {
    const refused = checkWindowsName(name);
    if (refused !== undefined) return refused;
  }
  return undefined;
}

function checkWindowsName(name: string): Refused | undefined {
  if (name === "" || name === "." || name === "..") return undefined;
  if (name.includes(":"))
    return { rule: "alternateStream", reason: "a colon in a name opens an alternate data stream" };
  if (/[<>"|?*]/.test(name)) return { rule: "badName", reason: "the name contains a character Windows does not allow" };
  if (/[. ]$/.test(name)) {
    return {
      rule: "trailingDotOrSpace",
      reason: "Windows drops trailing dots and spaces, so the name means another file",
    };
  }
  if (RESERVED.test(name)) return { rule: "deviceName", reason: `${name} is a device name` };
  if (/~[0-9]+(\.|$)/.test(name)) {
    return { rule: "shortName", reason: "8.3 short names are second names of other files; use the long name" };
  }
  return undefined;
}

/** What Windows says of the volume and the file behind an opened handle (GetDriveTypeW, reparse tag, final path). */
export interface WindowsFacts {
  readonly finalPath: string;
  readonly driveType: "unknown" | "noRoot" | "removable" | "fixed" | "remote" | "cdrom" | "ramdisk";
  readonly isReparsePoint: boolean;
  readonly isFile: boolean;
}

export function windowsFileSystem(
  facts: WindowsFacts,
  roots: readonly string[],
  denyNetworkFS: boolean,
): Refused | undefined {
  const final = facts.finalPath.replace(/^\\\\\?\\(?!UNC\\)/, "");
  if (denyNetworkFS && (facts.driveType === "remote" || facts.driveType === "noRoot" || final.startsWith("\\\\"))) {
    return { rule: "denyNetworkFS", reason: "the file lies on a network volume" };
  }
  if (!roots.some((root) => isWithinWindows(final, root))) {
    return { rule: "outsideAllowedRoots", reason: "the file lies outside every allowed root" };
  }
  // The final path is where the link led; a handle that is still a reparse point was not followed.
  if (facts.isReparsePoint)
    return { rule: "reparsePoint", reason: "the file is a reparse point that was not resolved" };
  if (!facts.isFile) return { rule: "specialFile", reason: "only regular files can be read or written" };
  return undefined;
}

/**
 * Both sides are spelled by the system, so they agree but for the case of what the operator typed. Only A to Z
 * are folded: folding one character more than the volume does would make two directories one.
 */
function foldWindows(text: string): string {
  const slashes = text.replaceAll("/", "\\").replace(/\\+$/, "");
  return slashes.replace(/[a-z]/g, (lower) => lower.toUpperCase());
}

export function isWithinWindows(path: string, root: string): boolean {
  const p = foldWindows(path);
  const r = foldWindows(root);
  return p === r || p.startsWith(`${r}\\`);
}
