// Where a write goes: the directory, held open, and the name in it. Nothing is changed here, so a denial has no effect.

import { type BigIntStats, closeSync, fstatSync, lstatSync, readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { type Denial, pathDenial } from "../denial.js";
import {
  below,
  descriptorPath,
  type LocatedPlace,
  locate,
  openBelow,
  openingMethod,
  type PathRules,
} from "./locate.js";
import { isWithin } from "./mounts.js";
import { descriptorName, OPEN_FLAGS, RESOLVE } from "./native.js";
import { canHaveLookAlike, checkNewName, findLookAlike } from "./path-text.js";
import { checkFile } from "./read.js";
import { checkRepository } from "./repositories.js";

/** A directory in which the policy allows writing: one of its `writeRules`. */
export interface WritableRoot extends LocatedPlace {
  readonly recursive: boolean;
  readonly maxFileBytes: number;
  readonly createIfMissing: boolean;
  /** May the insides of repositories (`.git`, `.hg`) be written? */
  readonly repositoryInternals: boolean;
}

export interface PathTarget {
  readonly writableRoot: WritableRoot;
  /** Descriptor of the nearest directory that exists. The receiver closes it. */
  readonly directory: number;
  readonly directoryPath: string;
  /** Directories to make below `directory`, outermost first. */
  readonly missingDirectories: readonly string[];
  readonly name: string;
  readonly old: BigIntStats | undefined;
}

/** What is asked for and where it may lie. */
interface Request {
  readonly path: string;
  readonly writableRoots: readonly WritableRoot[];
  readonly rules: PathRules;
  readonly field: string;
}

/** Directories made for one write. */
const MAX_NEW_DIRECTORIES = 32;

export function findTarget(
  path: string,
  writableRoots: readonly WritableRoot[],
  rules: PathRules,
  field: string,
): PathTarget | Denial {
  if (/\/\.{0,2}$/.test(path)) return pathDenial("noName", field, path);
  const request = { path, writableRoots, rules, field };
  const found = locate(path, writableRoots, rules, field);
  if ("fd" in found) {
    const stats = fstatSync(found.fd, { bigint: true });
    closeSync(found.fd);
    return existingTarget(request, found.path, stats, found.place);
  }
  return found.rule === "notFound" ? newTarget(request) : asWriteDenial(found, field, path);
}

/** The innermost writable root that the operator named and that does not exist yet, and the path with its real name. */
function absentRoot({ path, writableRoots }: Request): { root: WritableRoot; path: string } | undefined {
  if (path.split("/").includes("..")) return undefined;
  let best: { root: WritableRoot; path: string } | undefined;
  for (const root of writableRoots) {
    const spelling = [root.path, root.written].find((text) => isWithin(path, text));
    if (spelling === undefined || (best !== undefined && best.root.path.length >= root.path.length)) continue;
    best = { root, path: root.path + path.slice(spelling.length) };
  }
  const isThere = best === undefined || lstatSync(best.root.path, { throwIfNoEntry: false }) !== undefined;
  return isThere || best?.root.createIfMissing !== true ? undefined : best;
}

function existingTarget(request: Request, real: string, stats: BigIntStats, place: LocatedPlace): PathTarget | Denial {
  const { path, field } = request;
  // A hard link is allowed: the name gets a new file, the other names keep the old one.
  const refused = checkFile(stats, { denyNetworkFS: false, hardLinks: "allow" }, path, field);
  if (refused !== undefined) return refused;
  const directory = openDirectoryOf(real, place);
  if (directory === undefined) return pathDenial("changed", field, path);
  const target = targetIn(request, directory, [], basename(real), stats);
  if (!("directory" in target)) return target;
  const now = entryStats(directory, target.name);
  if (now !== undefined && now.ino === stats.ino && now.dev === stats.dev) return target;
  closeSync(directory);
  return pathDenial("changed", field, path);
}

function newTarget(request: Request): PathTarget | Denial {
  const { path, writableRoots, rules, field } = request;
  const absent = absentRoot(request);
  const names = [basename(path)];
  let above = dirname(absent?.path ?? path);
  for (;;) {
    const bad = checkNewName(names[0] ?? "");
    if (bad !== undefined) return pathDenial("badName", field, path, bad.reason, bad.rule);
    // A directory above an absent root is opened as itself, so what became a link since the policy was loaded is not entered.
    const isAboveAbsent = absent !== undefined && above !== absent.root.path && isWithin(absent.root.path, above);
    const places = isAboveAbsent ? [...writableRoots, { path: above, written: above }] : writableRoots;
    const found = locate(above, places, rules, field);
    if ("fd" in found) {
      const refused = checkUsableName(found.fd, names[0] ?? "", path, field);
      if (refused === undefined) return targetIn(request, found.fd, names.slice(0, -1), names.at(-1) ?? "", undefined);
      closeSync(found.fd);
      return refused;
    }
    if (found.rule !== "notFound") return asWriteDenial(found, field, path);
    if (names.length > MAX_NEW_DIRECTORIES) return pathDenial("tooManyNew", field, path, MAX_NEW_DIRECTORIES);
    names.unshift(basename(above));
    above = dirname(above);
  }
}

/** `first` is the new file, or the first of the new directories. */
function checkUsableName(directory: number, first: string, path: string, field: string): Denial | undefined {
  if (!fstatSync(directory).isDirectory()) return pathDenial("throughNonDirectory", field, path);
  if (entryStats(directory, first) !== undefined) return pathDenial("danglingLink", field, path);
  return checkLookAlike(directory, first, path, field);
}

/** `checkLookAlike` denies a new name that looks exactly like an existing one in that directory. */
export function checkLookAlike(directory: number, name: string, path: string, field: string): Denial | undefined {
  if (!canHaveLookAlike(name)) return undefined;
  const twin = findLookAlike(name, readdirSync(descriptorName(directory)));
  return twin === undefined ? undefined : pathDenial("lookAlike", field, path, twin);
}

/** `checkWritable` finds the most specific writable root around a directory, wherever the caller's text began. */
export function checkWritable(
  directoryPath: string,
  name: string,
  writableRoots: readonly WritableRoot[],
  path: string,
  field: string,
): WritableRoot | Denial {
  let root: WritableRoot | undefined;
  for (const candidate of writableRoots) {
    if (isWithin(directoryPath, candidate.path) && candidate.path.length > (root?.path.length ?? -1)) root = candidate;
  }
  if (root === undefined) return pathDenial("outsideWritable", field, path);
  if (!root.recursive && directoryPath !== root.path) return pathDenial("notRecursive", field, path);
  return checkRepository(root, `${directoryPath === "/" ? "" : directoryPath}/${name}`, path, field) ?? root;
}

/** Closes the directory when it returns a denial. */
function targetIn(
  { writableRoots, path, field }: Request,
  directory: number,
  missingDirectories: readonly string[],
  name: string,
  old: BigIntStats | undefined,
): PathTarget | Denial {
  const directoryPath = descriptorPath(directory);
  const found = checkWritable([directoryPath, ...missingDirectories].join("/"), name, writableRoots, path, field);
  const isUnmakeable = "recursive" in found && missingDirectories.length > 0 && !found.createIfMissing;
  const checked = isUnmakeable ? pathDenial("absentDirectory", field, path) : found;
  if ("recursive" in checked) {
    return { writableRoot: checked, directory, directoryPath, missingDirectories, name, old };
  }
  closeSync(directory);
  return checked;
}

function openDirectoryOf(file: string, place: LocatedPlace): number | undefined {
  const real = dirname(file);
  if (openingMethod() === "openat2") {
    const fd = openBelow(place, below(real, place.path), OPEN_FLAGS.DIRECTORY_NAME_ONLY, RESOLVE.NO_LINKS);
    return fd >= 0 ? fd : undefined;
  }
  const found = locate(real, [{ path: place.path, written: place.path }], { denyNetworkFS: false }, "path");
  if (!("fd" in found)) return undefined;
  if (found.path === real) return found.fd;
  closeSync(found.fd);
  return undefined;
}

/** Undefined when there is no such name. */
export function entryStats(directory: number, name: string): BigIntStats | undefined {
  return lstatSync(descriptorName(directory, name), { bigint: true, throwIfNoEntry: false });
}

/** Outside of every readable root means outside of every writable root where a write was asked for. */
export function asWriteDenial(found: Denial, field: string, path: string): Denial {
  return found.rule === "outsideAllowedRoots" ? pathDenial("outsideWritable", field, path) : found;
}
