// Where a write goes: the folder, held open, and the name in it. Nothing is changed here, so a refusal has no effect.

import { type BigIntStats, closeSync, fstatSync, lstatSync, readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { type Denial, denial, quoteValue } from "../denial.js";
import { FOLDER_NAME_ONLY, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS } from "./flags.js";
import { descriptorPath, type JailRules, locate, openBelow, openingMethod, type LocatedPlace } from "./locate.js";
import { isWithin } from "./mounts.js";
import { canHaveLookAlike, checkNewName, findLookAlike } from "./path-text.js";
import { checkFile } from "./read.js";
import { checkRepository } from "./repository.js";

export interface Zone extends LocatedPlace {
  readonly recursive: boolean;
  readonly maxFileBytes: number;
  readonly createIfMissing: boolean;
  /** May the insides of repositories (`.git`, `.hg`) be written? */
  readonly repositoryInternals: boolean;
}

export interface PathTarget {
  readonly zone: Zone;
  /** Descriptor of the nearest folder that exists. Whoever gets a target closes it. */
  readonly folder: number;
  readonly folderPath: string;
  /** Folders to make below `folder`, outermost first. */
  readonly missingFolders: readonly string[];
  readonly name: string;
  readonly old: BigIntStats | undefined;
}

/** Folders made for one write; deeper trees are somebody else's job. */
const MAX_NEW_FOLDERS = 32;

export function findTarget(path: string, zones: readonly Zone[], rules: JailRules, field: string): PathTarget | Denial {
  if (/\/\.{0,2}$/.test(path)) {
    return denial("INVALID_ARGS", "notAFileName", `${field} ${quoteValue(path)} ends in a folder, not in a file name`, {
      field,
    });
  }
  const found = locate(path, zones, rules, field);
  if ("fd" in found) {
    const stats = fstatSync(found.fd, { bigint: true });
    closeSync(found.fd);
    return existingTarget(found.path, stats, found.place, zones, path, field);
  }
  return found.rule === "notFound" ? newTarget(path, zones, rules, field) : asZoneDenial(found);
}

/** The innermost zone that the operator named and that does not exist yet, and the path with that zone's real name. */
function absentZone(path: string, zones: readonly Zone[]): { zone: Zone; path: string } | undefined {
  if (path.split("/").includes("..")) return undefined;
  let best: { zone: Zone; path: string } | undefined;
  for (const zone of zones) {
    const spelling = [zone.path, zone.written].find((text) => isWithin(path, text));
    if (spelling === undefined || (best !== undefined && best.zone.path.length >= zone.path.length)) continue;
    best = { zone, path: zone.path + path.slice(spelling.length) };
  }
  const isThere = best === undefined || lstatSync(best.zone.path, { throwIfNoEntry: false }) !== undefined;
  return isThere || best?.zone.createIfMissing !== true ? undefined : best;
}

/** A folder above an absent zone is opened as itself, so what became a link since the policy was loaded is not entered. */
function placesFor(above: string, absent: Zone | undefined, zones: readonly Zone[]): readonly LocatedPlace[] {
  const isAbove = absent !== undefined && above !== absent.path && isWithin(absent.path, above);
  return isAbove ? [...zones, { path: above, written: above }] : zones;
}

function existingTarget(
  real: string,
  stats: BigIntStats,
  place: LocatedPlace,
  zones: readonly Zone[],
  path: string,
  field: string,
): PathTarget | Denial {
  // A hard link is no reason to refuse: the name gets a new file, the other names keep the old one.
  const refused = checkFile(stats, { denyNetworkFS: false, hardLinks: "allow" }, path, field);
  if (refused !== undefined) return refused;
  const folder = openFolder(dirname(real), place);
  if (folder === undefined) return changed(path, field);
  const target = inZone(folder, [], basename(real), stats, zones, path, field);
  const now = "folder" in target ? look(folder, target.name) : undefined;
  if ("folder" in target && (now === undefined || now.ino !== stats.ino || now.dev !== stats.dev)) {
    closeSync(folder);
    return changed(path, field);
  }
  return target;
}

function newTarget(path: string, zones: readonly Zone[], rules: JailRules, field: string): PathTarget | Denial {
  const absent = absentZone(path, zones);
  const names = [basename(path)];
  let above = dirname(absent?.path ?? path);
  for (;;) {
    const bad = checkNewName(names[0] ?? "");
    if (bad !== undefined)
      return denial("INVALID_ARGS", bad.rule, `${field} ${quoteValue(path)}: ${bad.reason}`, { field });
    const found = locate(above, placesFor(above, absent?.zone, zones), rules, field);
    if ("fd" in found) return newBelow(found.fd, names, zones, path, field);
    if (found.rule !== "notFound") return asZoneDenial(found);
    if (names.length > MAX_NEW_FOLDERS) {
      return denial("INVALID_ARGS", "tooManyFolders", `${field} needs more than ${MAX_NEW_FOLDERS} new folders`, {
        field,
      });
    }
    names.unshift(basename(above));
    above = dirname(above);
  }
}

function newBelow(
  folder: number,
  names: readonly string[],
  zones: readonly Zone[],
  path: string,
  field: string,
): PathTarget | Denial {
  const first = names[0] ?? "";
  const problem = checkFreeName(folder, first, path, field);
  if (problem !== undefined) {
    closeSync(folder);
    return problem;
  }
  return inZone(folder, names.slice(0, -1), names.at(-1) ?? "", undefined, zones, path, field);
}

/** `first` is the new file, or the first of the new folders. */
function checkFreeName(folder: number, first: string, path: string, field: string): Denial | undefined {
  if (!fstatSync(folder).isDirectory()) {
    return denial("IO_ERROR", "notFound", `${field} ${quoteValue(path)} goes through something that is not a folder`, {
      field,
    });
  }
  if (look(folder, first) !== undefined) {
    return denial(
      "POLICY_DENY",
      "danglingLink",
      `${field} ${quoteValue(path)} goes through a link that leads nowhere`,
      {
        field,
      },
    );
  }
  if (!canHaveLookAlike(first)) return undefined;
  const twin = findLookAlike(first, readdirSync(`/proc/self/fd/${folder}`));
  if (twin === undefined) return undefined;
  return denial(
    "POLICY_DENY",
    "lookAlikeName",
    `${field}: the folder has ${quoteValue(twin)}, which looks exactly the same`,
    {
      field,
      suggestions: ["use the existing name in its own Unicode form"],
    },
  );
}

/** The most specific zone around the folder decides, wherever the caller's text began. */
function inZone(
  folder: number,
  missingFolders: readonly string[],
  name: string,
  old: BigIntStats | undefined,
  zones: readonly Zone[],
  path: string,
  field: string,
): PathTarget | Denial {
  const folderPath = descriptorPath(folder);
  const finalFolder = [folderPath, ...missingFolders].join("/");
  let zone: Zone | undefined;
  for (const candidate of zones) {
    if (isWithin(finalFolder, candidate.path) && candidate.path.length > (zone?.path.length ?? -1)) zone = candidate;
  }
  const refused =
    zone === undefined
      ? denial("POLICY_DENY", "outsideWriteZones", `${field} ${quoteValue(path)} is not inside a write zone`, { field })
      : (checkRepository(zone, `${finalFolder}/${name}`, path, field) ??
        checkDepth(zone, finalFolder, missingFolders, path, field));
  if (zone !== undefined && refused === undefined) return { zone, folder, folderPath, missingFolders, name, old };
  closeSync(folder);
  return refused ?? changed(path, field);
}

function checkDepth(
  zone: Zone,
  finalFolder: string,
  missingFolders: readonly string[],
  path: string,
  field: string,
): Denial | undefined {
  if (!zone.recursive && finalFolder !== zone.path) {
    return denial(
      "POLICY_DENY",
      "writeRules.recursive",
      `${field} ${quoteValue(path)} is below the write zone, which is not recursive`,
      {
        field,
      },
    );
  }
  if (missingFolders.length > 0 && !zone.createIfMissing) {
    return denial("IO_ERROR", "notFound", `${field} ${quoteValue(path)}: the folder does not exist`, {
      field,
      suggestions: ["ask the operator to set createIfMissing: true for this write zone"],
    });
  }
  return undefined;
}

function openFolder(real: string, place: LocatedPlace): number | undefined {
  if (openingMethod() === "openat2") {
    const rest = real === place.path ? "." : real.slice(place.path.length).replace(/^\/+/, "");
    const fd = openBelow(place, rest, FOLDER_NAME_ONLY, RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS);
    return fd >= 0 ? fd : undefined;
  }
  const found = locate(real, [{ path: place.path, written: place.path }], { denyNetworkFS: false }, "path");
  if (!("fd" in found)) return undefined;
  if (found.path === real) return found.fd;
  closeSync(found.fd);
  return undefined;
}

function look(folder: number, name: string): BigIntStats | undefined {
  return lstatSync(`/proc/self/fd/${folder}/${name}`, { bigint: true, throwIfNoEntry: false });
}

function asZoneDenial(found: Denial): Denial {
  if (found.rule !== "outsideAllowedRoots") return found;
  return denial(found.code, "outsideWriteZones", found.reason, {
    ...(found.field === undefined ? {} : { field: found.field }),
    suggestions: ["write inside a folder that the policy lists under writeRules"],
  });
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
