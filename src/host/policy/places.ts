// From the operator's spelling of a directory to where it really is, without touching a network mount that may hang.

import { realpathSync, statSync } from "node:fs";
import { dirname, isAbsolute, join, resolve, win32 } from "node:path";
import type { LocatedPlace } from "../paths/locate.js";
import { closedMounts, isNetworkType, isWithin, type Mount, mountOf, readMounts } from "../paths/mounts.js";
import { expandTilde } from "../paths/path-text.js";
import { walkPath } from "../paths/walk.js";

export interface PlaceFacts {
  readonly platform: NodeJS.Platform;
  readonly home: string;
  readonly denyNetworkFS: boolean;
}

export type FoundPlace =
  | { readonly kind: "place"; readonly place: LocatedPlace; readonly exists: boolean }
  /** `C:/…` on Linux: one policy may serve several machines. */
  | { readonly kind: "foreign" }
  | { readonly kind: "problem"; readonly message: string; readonly remedy: string };

export function findPlace(text: string, facts: PlaceFacts): FoundPlace {
  const expanded = expandTilde(text, facts.home);
  if (expanded === undefined) {
    return { kind: "problem", message: `${text} names another user's home`, remedy: "write ~/… or an absolute path" };
  }
  if (isForeign(expanded, facts.platform)) return { kind: "foreign" };
  if (!isAbsolute(expanded)) {
    return { kind: "problem", message: `${text} is a relative path`, remedy: "write ~/… or an absolute path" };
  }
  if (/\p{Cc}/u.test(expanded)) {
    return { kind: "problem", message: "the path contains control characters", remedy: "remove them" };
  }
  const written = resolve(expanded);
  return facts.platform === "linux" ? findOnLinux(written, facts) : findElsewhere(written);
}

function isForeign(path: string, platform: NodeJS.Platform): boolean {
  const isWindows = win32.isAbsolute(path) && !path.startsWith("/");
  return platform === "win32" ? path.startsWith("/") : isWindows;
}

function findOnLinux(written: string, facts: PlaceFacts): FoundPlace {
  const mounts = readMounts();
  const opened = facts.denyNetworkFS ? new Set<Mount>() : new Set(mounts.filter((m) => isNetworkType(m.type)));
  const walked = walkPath(written, closedMounts(mounts, opened));
  if (walked.kind === "refused") {
    const mount = mountOf(walked.at, mounts);
    const message =
      walked.why === "mount"
        ? `lies on ${mount?.type ?? "a file system"} mounted at ${walked.at}`
        : `cannot be resolved (${walked.why} at ${walked.at})`;
    return { kind: "problem", message, remedy: remedyFor(walked.why, mount) };
  }
  const place = { path: walked.path, written };
  if (walked.missing) return { kind: "place", place, exists: false };
  return isDirectory(walked.path) ? { kind: "place", place, exists: true } : notADirectory();
}

function remedyFor(why: string, mount: Mount | undefined): string {
  if (why !== "mount") return "correct the path";
  return mount !== undefined && isNetworkType(mount.type)
    ? "choose a directory on a local disk, or set denyNetworkFS: false"
    : "choose another directory: what the kernel shows there is never opened";
}

function findElsewhere(written: string): FoundPlace {
  let existing = written;
  while (statSync(existing, { throwIfNoEntry: false }) === undefined && dirname(existing) !== existing)
    existing = dirname(existing);
  const path = join(realpathSync.native(existing), written.slice(existing.length));
  const exists = existing === written;
  if (exists && !isDirectory(path)) return notADirectory();
  return { kind: "place", place: { path, written }, exists };
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

function notADirectory(): FoundPlace {
  return { kind: "problem", message: "is not a directory", remedy: "name a directory" };
}

/** Where a path that may not exist yet really is; for things that must never be reachable. */
export function realPathOf(path: string): string {
  let existing = resolve(path);
  let rest = "";
  for (;;) {
    try {
      return join(realpathSync(existing), rest);
    } catch {
      if (dirname(existing) === existing) return resolve(path);
      rest = join(existing.slice(dirname(existing).length), rest);
      existing = dirname(existing);
    }
  }
}

/** Either holds the other: reading or replacing one would reach the other. */
export function overlap(a: string, b: string): boolean {
  return isWithin(a, b) || isWithin(b, a);
}
