// macOS: names are compared without regard to case and normal form on most volumes, `/tmp` and `/var` are links, and a
// file has doors that are no paths of its own (`/.vol`, named forks, `/dev/fd`).

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
  // ASCII only: folding one letter more than the volume does would make two folders one.
  return caseSensitive ? one : one.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

export function isWithinMac(path: string, root: string, caseSensitive: boolean): boolean {
  const p = foldMac(path, caseSensitive);
  const r = foldMac(root, caseSensitive);
  return p === r || p.startsWith(`${r}/`);
}
