// From the text of a path to a descriptor that names the file, with no moment in between at which a link or a folder
// could be swapped. Linux: the kernel walks below an opened root and refuses to leave it (openat2). What the
// descriptor names is what was checked, and everything later goes through the descriptor.

import { closeSync, fstatSync, openSync, readFileSync, readlinkSync } from "node:fs";
import { constants } from "node:os";
import { type Denial, denial, quoteValue } from "../denial.js";
import {
  FOLDER_NAME_ONLY,
  NAME_ONLY,
  NAME_ONLY_NO_FOLLOW,
  RESOLVE_BENEATH,
  RESOLVE_NO_MAGICLINKS,
  RESOLVE_NO_SYMLINKS,
  RESOLVE_NO_XDEV,
} from "./flags.js";
import { closedMounts, isNetworkType, isWithin, type Mount, mountOf, mountsBetween, readMounts } from "./mounts.js";
import { errnoName, native } from "./native.js";
import { walkPath } from "./walk.js";

/** A folder that the policy opens: as the operator wrote it, and where that really is. */
export interface LocatedPlace {
  readonly path: string;
  readonly written: string;
  /** `policy.yaml:7`, for the operator. */
  readonly origin?: string;
}

export interface JailRules {
  readonly denyNetworkFS: boolean;
}

/** The name of a file, held open. Whoever gets one closes it. */
export interface LocatedPath {
  readonly fd: number;
  /** Where the file was when it was opened, for the record and for choosing among nested places. */
  readonly path: string;
  readonly place: LocatedPlace;
}

const { errno } = constants;

/**
 * The kernel says EAGAIN to `..` below a root when anything anywhere was renamed meanwhile, since the way up might have
 * changed. After this many tries the path is walked by hand, which leaves no `..` to ask about.
 */
const MAX_TRIES = 8;

export type OpeningMethod = "openat2" | "o_path";
let method: OpeningMethod | undefined;

/** Which way of opening is in use; decided by trying. Seccomp filters of older containers answer EPERM. */
export function openingMethod(): OpeningMethod {
  if (method === undefined) {
    const fd = native()?.openat2(undefined, "/", FOLDER_NAME_ONLY, RESOLVE_NO_SYMLINKS) ?? -1;
    method = fd >= 0 ? "openat2" : "o_path";
    if (fd >= 0) closeSync(fd);
  }
  return method;
}

/** For tests of the slower way on a machine that has the faster one. */
export function useOpeningMethod(chosen: OpeningMethod | undefined): void {
  method = chosen;
}

/** INVARIANT: `path` is absolute. A result lies below one of `places`, on that place's own file system. */
export function locate(
  path: string,
  places: readonly LocatedPlace[],
  rules: JailRules,
  field: string,
): LocatedPath | Denial {
  const mounts = readMounts();
  const quick = openingMethod() === "openat2" ? locateBelow(path, places, rules, mounts, field) : undefined;
  return quick ?? locateByWalking(path, places, rules, mounts, field);
}

/** The usual case: the path begins with a place and only relative links, if any, are met. Undefined: walk it. */
function locateBelow(
  path: string,
  places: readonly LocatedPlace[],
  rules: JailRules,
  mounts: readonly Mount[],
  field: string,
): LocatedPath | Denial | undefined {
  const found = longestPrefix(path, places);
  if (found === undefined) return undefined;
  const refused = checkPlace(found.place, rules, mounts, field);
  if (refused !== undefined) return refused;
  const opened = openBelow(found.place, found.rest, NAME_ONLY, RESOLVE_NO_MAGICLINKS);
  if (opened >= 0) return identify(opened, found.place, path, field);
  const problem = errnoName(opened);
  return problem === "EXDEV" || problem === "EAGAIN" ? undefined : openFailed(problem, path, field);
}

function locateByWalking(
  path: string,
  places: readonly LocatedPlace[],
  rules: JailRules,
  mounts: readonly Mount[],
  field: string,
): LocatedPath | Denial {
  const walked = walkPath(path, closedMounts(mounts, rules.denyNetworkFS ? new Set() : mountsOfPlaces(places, mounts)));
  if (walked.kind === "refused") return refuseWalk(walked, path, places, rules, mounts, field);
  const place = longestPrefix(walked.path, places)?.place;
  if (place === undefined) return outside(path, field);
  const crossed = checkPlace(place, rules, mounts, field) ?? crossing(place, walked.path, rules, mounts, path, field);
  if (crossed !== undefined) return crossed;
  if (walked.missing) return openFailed("ENOENT", path, field);
  return openWalked(walked.path, place, path, field);
}

function mountsOfPlaces(places: readonly LocatedPlace[], mounts: readonly Mount[]): Set<Mount> {
  return new Set(places.flatMap((place) => mountOf(place.path, mounts) ?? []));
}

function openWalked(real: string, place: LocatedPlace, path: string, field: string): LocatedPath | Denial {
  const rest = real === place.path ? "." : real.slice(place.path.length).replace(/^\/+/, "");
  const opened =
    openingMethod() === "openat2"
      ? openBelow(place, rest, NAME_ONLY, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
      : openAndCompare(real, place);
  if (opened >= 0 && /\/\.?$/.test(path) && !fstatSync(opened).isDirectory()) {
    // `file/` names nothing; the walk does not see the slash.
    closeSync(opened);
    return openFailed("ENOTDIR", path, field);
  }
  if (opened >= 0) return identify(opened, place, path, field);
  const problem = errnoName(opened);
  // The walk saw no link and no mount here; now there is one.
  if (problem === "EXDEV" || problem === "ELOOP") return changed(path, field);
  return openFailed(problem, path, field);
}

/** Opens the place itself without following links, then the rest below it. Gives a descriptor or a negative errno. */
export function openBelow(place: LocatedPlace, rest: string, flags: number, resolve: number): number {
  const calls = native();
  if (calls === undefined) return -errno.ENOSYS; // callers ask openingMethod() first
  const folder = calls.openat2(undefined, place.path, FOLDER_NAME_ONLY, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
  if (folder < 0) return folder;
  try {
    for (let tries = 1; ; tries++) {
      const fd = calls.openat2(folder, rest, flags, RESOLVE_BENEATH | RESOLVE_NO_XDEV | resolve);
      if (fd >= 0 || errnoName(fd) !== "EAGAIN" || tries === MAX_TRIES) return fd;
    }
  } finally {
    closeSync(folder);
  }
}

/** Without openat2: name the file, then ask the kernel what was named and on which mount. */
function openAndCompare(real: string, place: LocatedPlace): number {
  let fd: number | undefined;
  let folder: number | undefined;
  try {
    fd = openSync(real, NAME_ONLY_NO_FOLLOW);
    folder = openSync(place.path, FOLDER_NAME_ONLY);
    const same = descriptorPath(fd) === real && descriptorPath(folder) === place.path;
    if (same && mountId(fd) === mountId(folder) && !fstatSync(fd).isSymbolicLink()) return fd;
    closeSync(fd);
    return -errno.ELOOP; // something on the way is no longer what the walk saw
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    return (error as NodeJS.ErrnoException).errno ?? -errno.EIO;
  } finally {
    if (folder !== undefined) closeSync(folder);
  }
}

export function descriptorPath(fd: number): string {
  return readlinkSync(`/proc/self/fd/${fd}`);
}

function mountId(fd: number): string {
  return /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1] ?? "unknown";
}

function identify(fd: number, place: LocatedPlace, path: string, field: string): LocatedPath | Denial {
  const real = descriptorPath(fd);
  if (isWithin(real, place.path)) return { fd, path: real, place };
  closeSync(fd);
  return changed(path, field);
}

/** The place with the longest match, by either of its spellings; nested places are more specific. */
function longestPrefix(
  path: string,
  places: readonly LocatedPlace[],
): { place: LocatedPlace; rest: string } | undefined {
  let best: { place: LocatedPlace; rest: string; length: number } | undefined;
  for (const place of places) {
    for (const spelling of [place.path, place.written]) {
      if (!isWithin(path, spelling) || (best !== undefined && best.length >= spelling.length)) continue;
      const rest = path.slice(spelling === "/" ? 1 : spelling.length).replace(/^\/+/, "");
      best = { place, rest: rest === "" ? "." : rest, length: spelling.length };
    }
  }
  return best;
}

function checkPlace(
  place: LocatedPlace,
  rules: JailRules,
  mounts: readonly Mount[],
  field: string,
): Denial | undefined {
  const mount = mountOf(place.path, mounts);
  if (rules.denyNetworkFS && mount !== undefined && isNetworkType(mount.type)) return networkDenial(mount, field);
  return undefined;
}

function crossing(
  place: LocatedPlace,
  real: string,
  rules: JailRules,
  mounts: readonly Mount[],
  path: string,
  field: string,
): Denial | undefined {
  const crossed = mountsBetween(place.path, real, mounts);
  const network = crossed.find((mount) => isNetworkType(mount.type));
  if (network !== undefined && rules.denyNetworkFS) return networkDenial(network, field);
  if (crossed.length === 0) return undefined;
  return denial(
    "POLICY_DENY",
    "crossesMount",
    `${field} ${quoteValue(path)} lies on another file system mounted below the root`,
    {
      field,
      suggestions: ["ask the operator to list the mount point itself under allowedRoots"],
    },
  );
}

function refuseWalk(
  walked: { why: "mount" | "loop" | "unreadable" | "missing"; at: string },
  path: string,
  places: readonly LocatedPlace[],
  rules: JailRules,
  mounts: readonly Mount[],
  field: string,
): Denial {
  const place = longestPrefix(walked.at, places)?.place;
  // What lies outside is not described, not even by the way it failed.
  if (place === undefined) return outside(path, field);
  if (walked.why === "mount") {
    return (
      checkPlace(place, rules, mounts, field) ??
      crossing(place, walked.at, rules, mounts, path, field) ??
      outside(path, field)
    );
  }
  return openFailed(walked.why === "loop" ? "ELOOP" : walked.why === "missing" ? "ENOENT" : "EACCES", path, field);
}

function networkDenial(mount: Mount, field: string): Denial {
  return denial("POLICY_DENY", "denyNetworkFS", `${field} lies on a network file system (${mount.type})`, {
    field,
    suggestions: ["use a file on a local disk, or ask the operator to set denyNetworkFS: false"],
  });
}

function outside(path: string, field: string): Denial {
  return denial(
    "POLICY_DENY",
    "outsideAllowedRoots",
    `${field} ${quoteValue(path)} is not inside a folder that the policy opens`,
    {
      field,
    },
  );
}

function changed(path: string, field: string): Denial {
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

function openFailed(problem: string, path: string, field: string): Denial {
  const shown = `${field} ${quoteValue(path)}`;
  switch (problem) {
    case "ENOENT":
      return denial("IO_ERROR", "notFound", `${shown} does not exist`, { field });
    case "ENOTDIR":
      return denial("IO_ERROR", "notFound", `${shown} goes through something that is not a folder`, { field });
    case "ELOOP":
      return denial("POLICY_DENY", "symlinkLoop", `${shown} goes through a loop of links or a link of the kernel's`, {
        field,
      });
    case "ENAMETOOLONG":
      return denial("INVALID_ARGS", "pathTooLong", `${shown} is too long`, { field });
    case "EACCES":
    case "EPERM":
      return denial("IO_ERROR", "permission", `${shown} is not accessible to the host's user`, { field });
    case "EAGAIN":
      return changed(path, field);
    default:
      return denial("IO_ERROR", "openFailed", `${shown} cannot be opened (${problem})`, { field });
  }
}
