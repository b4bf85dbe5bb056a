// Changing: make, delete, move. One system call each on a name in a folder that is held open.

import {
  closeSync,
  constants,
  fchownSync,
  fstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from "node:fs";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import { isWithin } from "../paths/index.js";
import { FOLDER_READ } from "../paths/flags.js";
import { ioDenial } from "../paths/read.js";
import { findRepositories } from "../paths/repositories.js";
import { looksLikeGitDirectory } from "../paths/repository.js";
import type { Policy } from "../policy/index.js";
import type { PreparedChange } from "./prepared.js";
import { renameIfFree } from "./rename.js";
import { checkFree, checkNotNamed, findEntry, missingEntry, type DirEntryRef, spotPath } from "./entry-ref.js";

const NEW_FOLDER_MODE = 0o700;

type Done = Record<string, never>;
const DONE: Done = {};

export function prepareMakeDirectory(
  policy: Policy,
  { path }: { path: string },
): PreparedChange<{ created: boolean }> | Denial {
  return withSpot(policy, path, "path", (spot) => {
    if (spot.stats?.isDirectory() === true) return () => ({ created: false });
    if (spot.stats !== undefined) return taken(path, "path");
    const refused = checkFree(spot, path, "path") ?? checkDepth(spot, path);
    return refused ?? (() => makeFolder(spot));
  });
}

/** A folder in a zone that is not recursive would be one that nothing can be put into. */
function checkDepth(spot: DirEntryRef, text: string): Denial | undefined {
  if (spot.zone.recursive) return undefined;
  const reason = `path ${quoteValue(text)} would lie in a write zone that is not recursive`;
  return denial("POLICY_DENY", "writeRules.recursive", reason, { field: "path" });
}

function makeFolder(spot: DirEntryRef): { created: boolean } {
  mkdirSync(spotPath(spot), NEW_FOLDER_MODE);
  // Run by root, a new folder in somebody's folder is theirs, or they could not use it.
  const owner = fstatSync(spot.folder);
  if (process.getuid?.() === 0 && owner.uid !== 0) {
    const made = openSync(spotPath(spot), FOLDER_READ | (constants.O_NOFOLLOW ?? 0));
    try {
      fchownSync(made, owner.uid, owner.gid);
    } finally {
      closeSync(made);
    }
  }
  return { created: true };
}

/** A link is deleted itself, never what it leads to. */
export function prepareDeleteFile(policy: Policy, { path }: { path: string }): PreparedChange<Done> | Denial {
  return withSpot(policy, path, "path", (spot) => {
    if (spot.stats === undefined) return missingEntry(path, "path");
    if (!spot.stats.isFile() && !spot.stats.isSymbolicLink()) return notPlain(path, "path");
    return () => {
      unlinkSync(spotPath(spot));
      return DONE;
    };
  });
}

/** Empty ones only: one call never takes a whole tree away. */
export function prepareDeleteDirectory(policy: Policy, { path }: { path: string }): PreparedChange<Done> | Denial {
  return withSpot(policy, path, "path", (spot) => {
    if (spot.stats === undefined) return missingEntry(path, "path");
    if (!spot.stats.isDirectory()) {
      return denial("IO_ERROR", "notAFolder", `path ${quoteValue(path)} is not a folder`, { field: "path" });
    }
    const refused = checkNotNamed(policy, spot, path, "path");
    if (refused !== undefined) return refused;
    return () => {
      rmdirSync(spotPath(spot));
      return DONE;
    };
  });
}

export interface MoveArguments {
  readonly from: string;
  readonly to: string;
  readonly overwrite?: boolean | undefined;
}

export function prepareMove(policy: Policy, args: MoveArguments): PreparedChange<{ replaced: boolean }> | Denial {
  const source = findEntry(policy, args.from, "from");
  if (isDenial(source)) return source;
  const target = findEntry(policy, args.to, "to");
  if (isDenial(target)) {
    closeSync(source.folder);
    return target;
  }
  const close = (): void => {
    closeSync(source.folder);
    closeSync(target.folder);
  };
  const refused = checkMove(policy, source, target, args);
  if (refused !== undefined) {
    close();
    return refused;
  }
  return {
    rule: `writeRules ${target.zone.written}`,
    run: () => attempt(args.from, "from", () => move(source, target, args)),
    close,
  };
}

function checkMove(policy: Policy, source: DirEntryRef, target: DirEntryRef, args: MoveArguments): Denial | undefined {
  const { stats } = source;
  if (stats === undefined) return missingEntry(args.from, "from");
  if (!stats.isFile() && !stats.isDirectory()) return notPlain(args.from, "from");
  const isReadable = (path: string): boolean => policy.roots.some((root) => isWithin(path, root.path));
  if (isReadable(target.path) && !isReadable(source.path)) {
    const reason = `from ${quoteValue(args.from)} may be written but not read, and to ${quoteValue(args.to)} may be read`;
    return denial("POLICY_DENY", "outsideAllowedRoots", reason, { field: "from" });
  }
  if (stats.isFile() && Number(stats.size) > target.zone.maxFileBytes) {
    const reason = `the file has ${stats.size} bytes; the write zone of to takes ${target.zone.maxFileBytes}`;
    return denial("POLICY_DENY", "maxFileBytes", reason, { field: "to" });
  }
  if (stats.isDirectory()) {
    const refused =
      checkNotNamed(policy, source, args.from, "from") ??
      checkTree(source, target, args) ??
      checkRepositories(source, args.from, "from");
    if (refused !== undefined) return refused;
  }
  if (target.stats === undefined) return checkFree(target, args.to, "to");
  const bothFiles = stats.isFile() && target.stats.isFile();
  return args.overwrite === true && bothFiles ? undefined : taken(args.to, "to");
}

/** Files in a folder keep to the rules of the zone they are in only while it stays in that zone. */
function checkTree(source: DirEntryRef, target: DirEntryRef, args: MoveArguments): Denial | undefined {
  if (source.zone === target.zone && target.zone.recursive) return undefined;
  const reason = `the folder ${quoteValue(args.from)} can be moved only inside its own write zone`;
  return denial("POLICY_DENY", "crossesZones", reason, { field: "to" });
}

/** Another directory could take its name then, and with it hooks that the owner's git runs. */
function checkRepositories({ zone, path }: DirEntryRef, text: string, field: string): Denial | undefined {
  if (zone.repositoryInternals) return undefined;
  const found = looksLikeGitDirectory(path) ? ({ kind: "found", paths: [path] } as const) : findRepositories(path);
  if (found.kind === "found" && found.paths.length === 0) return undefined;
  const what = found.kind === "found" ? "a repository lies in it" : found.why;
  return denial(
    "POLICY_DENY",
    "writeRules.repositoryInternals",
    `${field} ${quoteValue(text)} keeps its name: ${what}`,
    {
      field,
      suggestions: ["move files one by one", "ask the operator to set repositoryInternals: true for this write zone"],
    },
  );
}

function move(source: DirEntryRef, target: DirEntryRef, args: MoveArguments): { replaced: boolean } | Denial {
  if (target.stats !== undefined) {
    renameSync(spotPath(source), spotPath(target));
    return { replaced: true };
  }
  const failed = renameIfFree(source, target);
  if (failed === undefined) return { replaced: false };
  if (failed === "EEXIST" || failed === "ENOTEMPTY") return taken(args.to, "to");
  return denial("IO_ERROR", "io", `from ${quoteValue(args.from)}: ${failed}`, { field: "from" });
}

function withSpot<R>(
  policy: Policy,
  path: string,
  field: string,
  plan: (spot: DirEntryRef) => (() => R | Denial) | Denial,
): PreparedChange<R> | Denial {
  const spot = findEntry(policy, path, field);
  if (isDenial(spot)) return spot;
  const close = (): void => closeSync(spot.folder);
  const planned = plan(spot);
  if (typeof planned === "function") {
    return { rule: `writeRules ${spot.zone.written}`, run: () => attempt(path, field, planned), close };
  }
  close();
  return planned;
}

function attempt<R>(path: string, field: string, act: () => R | Denial): R | Denial {
  try {
    return act();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") return taken(path, field);
    if (code === "ENOENT") return missingEntry(path, field);
    if (code === "ENOTEMPTY") {
      return denial("IO_ERROR", "notEmpty", `${field} ${quoteValue(path)} is not empty`, { field });
    }
    return ioDenial(error, path, field);
  }
}

function taken(path: string, field: string): Denial {
  return denial("POLICY_DENY", "exists", `${field} ${quoteValue(path)} exists`, {
    field,
    suggestions: ["choose another name"],
  });
}

function notPlain(path: string, field: string): Denial {
  const reason = `${field} ${quoteValue(path)} is a folder, link, device, pipe or socket, which this tool leaves alone`;
  return denial("POLICY_DENY", "specialFile", reason, { field });
}
