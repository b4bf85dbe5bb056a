// macOS and Windows, where there is no openat2. Resolve, judge, open, and look again at what was opened. On macOS the
// open itself refuses every link on the way; on Windows a swap between the two looks is noticed, not prevented
// (docs/platforms.md says so).

import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  realpathSync,
  statfsSync,
} from "node:fs";
import { type Denial, denial, quoteValue } from "../denial.js";
import type { LocatedPlace } from "./locate.js";
import { checkMacPath, macFileSystem, O_NOFOLLOW_ANY } from "./macos.js";
import { checkFile, ioDenial, type OpenFile, type ReadRules } from "./read.js";
import { windowsFileSystem } from "./windows.js";

export function openForReadPortable(
  path: string,
  roots: readonly LocatedPlace[],
  rules: ReadRules,
  field: string,
): OpenFile | Denial {
  const real = resolvePortable(path, roots, rules, field);
  if (typeof real !== "string") return real;
  let fd: number | undefined;
  try {
    const noLinks = process.platform === "darwin" ? O_NOFOLLOW_ANY : 0;
    fd = openSync(real, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | noLinks);
    const stats = fstatSync(fd, { bigint: true });
    const refused = checkFile(stats, rules, path, field) ?? checkUnchanged(stats, real, path, field);
    if (refused === undefined) return { fd, path: real, size: Number(stats.size) };
    closeSync(fd);
    return refused;
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    return ioDenial(error, path, field);
  }
}

/** The canonical path of an existing file or folder, judged by the platform's rules. */
export function resolvePortable(
  path: string,
  roots: readonly LocatedPlace[],
  rules: ReadRules,
  field: string,
): string | Denial {
  const onMac = process.platform === "darwin";
  const bad = onMac ? checkMacPath(path) : undefined;
  if (bad !== undefined) return denial("POLICY_DENY", bad.rule, bad.reason, { field });
  let real: string;
  try {
    real = realpathSync.native(path);
  } catch {
    return denial("IO_ERROR", "notFound", `${field} ${quoteValue(path)} does not exist or lies outside the roots`, {
      field,
    });
  }
  const places = roots.map((root) => root.path);
  const refused = onMac
    ? macFileSystem({ realPath: real, ...macVolume(real), isFile: true }, places, rules.denyNetworkFS)
    : windowsFileSystem(
        { finalPath: real, driveType: "unknown", isReparsePoint: false, isFile: true },
        places,
        rules.denyNetworkFS,
      );
  return refused === undefined ? real : denial("POLICY_DENY", refused.rule, refused.reason, { field });
}

/** Type numbers of macOS' network file systems vary by version, so what is not known to be local counts as remote. */
const LOCAL_MAC_TYPES = new Set([0x1a /* apfs */, 0x17 /* hfs */, 0x11]);

function macVolume(path: string): { typeName: string; isLocal: boolean; caseSensitive: boolean } {
  const type = Number(statfsSync(path).type);
  const isLocal = LOCAL_MAC_TYPES.has(type);
  return { typeName: `type 0x${type.toString(16)}`, isLocal, caseSensitive: true };
}

/** The name still leads to the file that was opened. */
function checkUnchanged(stats: BigIntStats, real: string, path: string, field: string): Denial | undefined {
  const now = lstatSync(real, { bigint: true });
  if (now.ino === stats.ino && now.dev === stats.dev && realpathSync.native(real) === real) return undefined;
  return denial(
    "POLICY_DENY",
    "changedWhileOpening",
    `${field} ${quoteValue(path)} changed while it was being opened`,
    {
      field,
      suggestions: ["try again"],
    },
  );
}
