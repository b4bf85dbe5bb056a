// Windows names files in more ways than one. Each spelling that could name something other than it shows is refused;
// what remains is `C:\folder\name` and `C:/folder/name`.

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
    return { rule: "driveRelative", reason: "a drive without a following \\ means that drive's current folder" };
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
 * Both sides are spelled by the system, so they agree but for the case of what the operator typed. Only ASCII letters
 * are folded: folding one letter more than the volume does would make two folders one.
 */
function foldWindows(text: string): string {
  const slashes = text.replaceAll("/", "\\").replace(/\\+$/, "");
  return slashes.replace(/[a-z]/g, (letter) => letter.toUpperCase());
}

export function isWithinWindows(path: string, root: string): boolean {
  const p = foldWindows(path);
  const r = foldWindows(root);
  return p === r || p.startsWith(`${r}\\`);
}
