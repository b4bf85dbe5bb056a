// From the text of a path to a descriptor that names the file, with no moment in between at which a link or a directory
// could be swapped. Linux: the kernel walks below an opened root and refuses to leave it (openat2). What the
// descriptor names is what was checked, and everything later goes through the descriptor.

import { closeSync, fstatSync, openSync, readFileSync, readlinkSync } from "node:fs";
import { constants } from "node:os";
import { type Denial, pathDenial } from "../denial.js";
import { closedMounts, isNetworkType, isWithin, type Mount, mountOf, mountsBetween, readMounts } from "./mounts.js";
import { descriptorName, errnoName, native, OPEN_FLAGS, RESOLVE } from "./native.js";
import { type Walked, walkPath } from "./walk.js";

/** A directory that the policy opens: as the operator wrote it, and where that really is. */
export interface LocatedPlace {
  readonly path: string;
  readonly written: string;
  /** `policy.yaml:7`, for the operator. */
  readonly origin?: string;
}

export interface PathRules {
  readonly denyNetworkFS: boolean;
}

/** The name of a file, held open. The receiver closes it. */
export interface LocatedPath {
  readonly fd: number;
  /** Where the file was when it was opened, for the record and for choosing among nested places. */
  readonly path: string;
  readonly place: LocatedPlace;
}

/** What every step of one search needs. */
interface Search {
  readonly path: string;
  readonly places: readonly LocatedPlace[];
  readonly rules: PathRules;
  readonly mounts: readonly Mount[];
  readonly field: string;
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
    const fd = native()?.openat2(undefined, "/", OPEN_FLAGS.DIRECTORY_NAME_ONLY, RESOLVE.NO_LINKS) ?? -1;
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
  rules: PathRules,
  field: string,
): LocatedPath | Denial {
  const search = { path, places, rules, field, mounts: readMounts() };
  const quick = openingMethod() === "openat2" ? locateBelow(search) : undefined;
  return quick ?? locateByWalking(search);
}

/** The usual case: the path begins with a place and only relative links, if any, are met. Undefined: walk it. */
function locateBelow(search: Search): LocatedPath | Denial | undefined {
  const found = longestPrefix(search.path, search.places);
  if (found === undefined) return undefined;
  const refused = checkPlace(search, found.place);
  if (refused !== undefined) return refused;
  const opened = openBelow(found.place, found.rest, OPEN_FLAGS.NAME_ONLY, RESOLVE.LINKS);
  if (opened >= 0) return identify(search, opened, found.place);
  const problem = errnoName(opened);
  return problem === "EXDEV" || problem === "EAGAIN" ? undefined : openFailed(search, problem);
}

function locateByWalking(search: Search): LocatedPath | Denial {
  const { path, places, mounts } = search;
  const ownMounts = search.rules.denyNetworkFS ? [] : places.flatMap((place) => mountOf(place.path, mounts) ?? []);
  const walked = walkPath(path, closedMounts(mounts, new Set(ownMounts)));
  if (walked.kind === "refused") return refuseWalk(search, walked);
  const place = longestPrefix(walked.path, places)?.place;
  if (place === undefined) return outside(search);
  const crossed = checkPlace(search, place) ?? crossing(search, place, walked.path);
  if (crossed !== undefined) return crossed;
  return walked.missing ? openFailed(search, "ENOENT") : openWalked(search, walked.path, place);
}

function openWalked(search: Search, real: string, place: LocatedPlace): LocatedPath | Denial {
  const opened =
    openingMethod() === "openat2"
      ? openBelow(place, below(real, place.path), OPEN_FLAGS.NAME_ONLY, RESOLVE.NO_LINKS)
      : openAndCompare(real, place);
  if (opened >= 0 && /\/\.?$/.test(search.path) && !fstatSync(opened).isDirectory()) {
    // `file/` names nothing; the walk does not see the slash.
    closeSync(opened);
    return openFailed(search, "ENOTDIR");
  }
  if (opened >= 0) return identify(search, opened, place);
  const problem = errnoName(opened);
  // The walk saw no link and no mount here; now there is one.
  return openFailed(search, problem === "EXDEV" || problem === "ELOOP" ? "EAGAIN" : problem);
}

/** The path relative to a directory above it, `.` for the directory itself. INVARIANT: `path` is within it. */
export function below(path: string, directory: string): string {
  return path.slice(directory.length).replace(/^\/+/, "") || ".";
}

/** Opens the place itself without following links, then the rest below it. Returns a descriptor or a negative errno. */
export function openBelow(place: LocatedPlace, rest: string, flags: number, resolve: number): number {
  const calls = native();
  if (calls === undefined) return -errno.ENOSYS; // callers ask openingMethod() first
  const directory = calls.openat2(undefined, place.path, OPEN_FLAGS.DIRECTORY_NAME_ONLY, RESOLVE.NO_LINKS);
  if (directory < 0) return directory;
  try {
    for (let tries = 1; ; tries++) {
      const fd = calls.openat2(directory, rest, flags, RESOLVE.BENEATH | RESOLVE.NO_XDEV | resolve);
      if (fd >= 0 || errnoName(fd) !== "EAGAIN" || tries === MAX_TRIES) return fd;
    }
  } finally {
    closeSync(directory);
  }
}

/** Without openat2: name the file, then ask the kernel what was named and on which mount. */
function openAndCompare(real: string, place: LocatedPlace): number {
  let fd: number | undefined;
  let directory: number | undefined;
  try {
    fd = openSync(real, OPEN_FLAGS.NAME_ONLY_NO_FOLLOW);
    directory = openSync(place.path, OPEN_FLAGS.DIRECTORY_NAME_ONLY);
    const same = descriptorPath(fd) === real && descriptorPath(directory) === place.path;
    if (same && mountId(fd) === mountId(directory) && !fstatSync(fd).isSymbolicLink()) return fd;
    closeSync(fd);
    return -errno.ELOOP; // something on the way is no longer what the walk saw
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    return (error as NodeJS.ErrnoException).errno ?? -errno.EIO;
  } finally {
    if (directory !== undefined) closeSync(directory);
  }
}

export function descriptorPath(fd: number): string {
  return readlinkSync(descriptorName(fd));
}

function mountId(fd: number): string {
  return /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1] ?? "unknown";
}

function identify(search: Search, fd: number, place: LocatedPlace): LocatedPath | Denial {
  const real = descriptorPath(fd);
  if (isWithin(real, place.path)) return { fd, path: real, place };
  closeSync(fd);
  return openFailed(search, "EAGAIN");
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
      best = { place, rest: below(path, spelling), length: spelling.length };
    }
  }
  return best;
}

function checkPlace({ rules, mounts, field, path }: Search, place: LocatedPlace): Denial | undefined {
  const mount = mountOf(place.path, mounts);
  const isDenied = rules.denyNetworkFS && mount !== undefined && isNetworkType(mount.type);
  return isDenied ? pathDenial("networkFileSystem", field, path, mount.type) : undefined;
}

function crossing({ rules, mounts, field, path }: Search, place: LocatedPlace, real: string): Denial | undefined {
  const crossed = mountsBetween(place.path, real, mounts);
  const network = crossed.find((mount) => isNetworkType(mount.type));
  if (network !== undefined && rules.denyNetworkFS) return pathDenial("networkFileSystem", field, path, network.type);
  return crossed.length === 0 ? undefined : pathDenial("crossesMount", field, path);
}

const WALK_ERRORS = { loop: "ELOOP", missing: "ENOENT", unreadable: "EACCES" } as const;

function refuseWalk(search: Search, { why, at }: Extract<Walked, { kind: "refused" }>): Denial {
  const place = longestPrefix(at, search.places)?.place;
  // What lies outside is not described, not even by the way it failed.
  if (place === undefined) return outside(search);
  if (why !== "mount") return openFailed(search, WALK_ERRORS[why]);
  return checkPlace(search, place) ?? crossing(search, place, at) ?? outside(search);
}

function outside({ field, path }: Search): Denial {
  return pathDenial("outsideReadable", field, path);
}

const OPEN_ERRORS = {
  ENOENT: "absent",
  ENOTDIR: "throughNonDirectory",
  ELOOP: "linkLoop",
  ENAMETOOLONG: "tooLong",
  EACCES: "noAccess",
  EPERM: "noAccess",
  EAGAIN: "changed",
} as const;

function openFailed({ field, path }: Search, problem: string): Denial {
  const kind = Object.hasOwn(OPEN_ERRORS, problem) ? OPEN_ERRORS[problem as keyof typeof OPEN_ERRORS] : "openFailed";
  return pathDenial(kind, field, path, problem);
}
