// A name in a folder of a write zone: the folder held open, the name itself not followed. Whatever happens to the
// names above it meanwhile, a change made through the descriptor happens in this folder.

import { type BigIntStats, closeSync, fstatSync, lstatSync, readdirSync } from "node:fs";
import { posix } from "node:path";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import { isWithin, locate, type Zone } from "../paths/index.js";
import { canHaveLookAlike, checkNewName, findLookAlike } from "../paths/path-text.js";
import { checkRepository } from "../paths/repository.js";
import type { Policy } from "../policy/index.js";
import { preparedPathOf } from "./prepared.js";

export interface DirEntryRef {
  readonly zone: Zone;
  /** Whoever gets a spot closes it. */
  readonly folder: number;
  readonly name: string;
  /** Where it really is. */
  readonly path: string;
  /** Undefined: the name is free. */
  readonly stats: BigIntStats | undefined;
}

export function findEntry(policy: Policy, text: string, field: string): DirEntryRef | Denial {
  const whole = preparedPathOf(policy, text, field);
  if (typeof whole !== "string") return whole;
  const path = whole.replace(/(?<=[^/])\/+$/, "");
  const name = posix.basename(path);
  if (name === "" || name === "." || name === "..") {
    return denial("INVALID_ARGS", "notAFileName", `${field} ${quoteValue(text)} does not end in a name`, { field });
  }
  const found = locate(posix.dirname(path), policy.zones, policy, field);
  if (isDenial(found)) return asZoneDenial(found);
  const spot = inZone(policy, found.fd, found.path, name, text, field);
  if (isDenial(spot)) closeSync(found.fd);
  return spot;
}

function inZone(
  policy: Policy,
  folder: number,
  folderPath: string,
  name: string,
  text: string,
  field: string,
): DirEntryRef | Denial {
  if (!fstatSync(folder).isDirectory()) {
    const reason = `${field} ${quoteValue(text)} goes through something that is not a folder`;
    return denial("IO_ERROR", "notFound", reason, { field });
  }
  let zone: Zone | undefined;
  for (const candidate of policy.zones) {
    if (isWithin(folderPath, candidate.path) && candidate.path.length > (zone?.path.length ?? -1)) zone = candidate;
  }
  if (zone === undefined) {
    return denial("POLICY_DENY", "outsideWriteZones", `${field} ${quoteValue(text)} is not inside a write zone`, {
      field,
    });
  }
  if (!zone.recursive && folderPath !== zone.path) {
    const reason = `${field} ${quoteValue(text)} is below the write zone, which is not recursive`;
    return denial("POLICY_DENY", "writeRules.recursive", reason, { field });
  }
  const path = posix.join(folderPath, name);
  const internal = checkRepository(zone, path, text, field);
  if (internal !== undefined) return internal;
  const stats = lstatSync(`/proc/self/fd/${folder}/${name}`, { bigint: true, throwIfNoEntry: false });
  return { zone, folder, name, path, stats };
}

export function spotPath({ folder, name }: DirEntryRef): string {
  return `/proc/self/fd/${folder}/${name}`;
}

/** For a name that is to be made. */
export function checkFree(spot: DirEntryRef, text: string, field: string): Denial | undefined {
  const bad = checkNewName(spot.name);
  if (bad !== undefined)
    return denial("INVALID_ARGS", bad.rule, `${field} ${quoteValue(text)}: ${bad.reason}`, { field });
  if (!spot.zone.createIfMissing) {
    const reason = `${field} ${quoteValue(text)} does not exist and this write zone only replaces files`;
    return denial("POLICY_DENY", "createIfMissing", reason, {
      field,
      suggestions: ["ask the operator to set createIfMissing: true for this write zone"],
    });
  }
  if (!canHaveLookAlike(spot.name)) return undefined;
  const twin = findLookAlike(spot.name, readdirSync(`/proc/self/fd/${spot.folder}`));
  if (twin === undefined) return undefined;
  const reason = `${field}: the folder has ${quoteValue(twin)}, which looks exactly the same`;
  return denial("POLICY_DENY", "lookAlikeName", reason, { field });
}

/** What the operator named stays where it is, and so does every folder above it. */
export function checkNotNamed(policy: Policy, spot: DirEntryRef, text: string, field: string): Denial | undefined {
  if (![...policy.roots, ...policy.zones].some((place) => isWithin(place.path, spot.path))) return undefined;
  const reason = `${field} ${quoteValue(text)} is, or holds, a folder that the policy itself names`;
  return denial("POLICY_DENY", "namedFolder", reason, { field });
}

export function missingEntry(text: string, field: string): Denial {
  return denial("IO_ERROR", "notFound", `${field} ${quoteValue(text)} does not exist`, { field });
}

function asZoneDenial(found: Denial): Denial {
  if (found.rule !== "outsideAllowedRoots") return found;
  return denial(found.code, "outsideWriteZones", found.reason, {
    ...(found.field === undefined ? {} : { field: found.field }),
    suggestions: ["use a folder that the policy lists under writeRules"],
  });
}
