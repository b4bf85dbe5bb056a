// Writing on macOS and Windows: temporary file, flush, second look at the folder, rename. Atomic, but not proof against
// a swap of the folder between the second look and the rename (docs/platforms.md).

import { type BigIntStats, lstatSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Denial, denial, quoteValue } from "../denial.js";
import { clearDrafts, draftName } from "./drafts.js";
import { checkNewName } from "./path-text.js";
import { resolvePortable } from "./portable.js";
import { checkRepository } from "./repository.js";
import { checkFile, ioDenial, type ReadRules } from "./read.js";
import type { Zone } from "./target.js";
import type { Written } from "./write.js";

export interface PortableTarget {
  readonly zone: Zone;
  readonly folderPath: string;
  /** A zone that does not exist yet: folders to make below `folderPath`, outermost first. */
  readonly missingFolders: readonly string[];
  readonly name: string;
  readonly old: BigIntStats | undefined;
}

export function findPortableTarget(
  path: string,
  zones: readonly Zone[],
  rules: ReadRules,
  field: string,
): PortableTarget | Denial {
  const bad = checkNewName(basename(path));
  if (bad !== undefined) return denial("INVALID_ARGS", bad.rule, `${field}: ${bad.reason}`, { field });
  const absent = zones.find(
    (zone) => zone.createIfMissing && isAbsent(zone) && [zone.path, zone.written].includes(dirname(path)),
  );
  if (absent !== undefined) return inAbsentZone(absent, path, rules, field);
  const folderPath = resolvePortable(dirname(path), zones, rules, field);
  if (typeof folderPath !== "string") return folderPath;
  const zone = zones
    .filter((z) => resolvePortable(folderPath, [z], rules, field) === folderPath)
    .sort((a, b) => b.path.length - a.path.length)[0];
  if (zone === undefined)
    return denial("POLICY_DENY", "outsideWriteZones", `${field} is not inside a write zone`, { field });
  if (!zone.recursive && folderPath !== zone.path) {
    return denial("POLICY_DENY", "writeRules.recursive", `${field} is below a write zone that is not recursive`, {
      field,
    });
  }
  const name = basename(path);
  const old = lstatSync(join(folderPath, name), { bigint: true, throwIfNoEntry: false });
  const refused = old === undefined ? undefined : checkFile(old, { ...rules, hardLinks: "allow" }, path, field);
  const internal = checkRepository(zone, join(folderPath, name), path, field);
  return internal ?? refused ?? { zone, folderPath, missingFolders: [], name, old };
}

function isAbsent(zone: Zone): boolean {
  return lstatSync(zone.path, { throwIfNoEntry: false }) === undefined;
}

/** Only where everything above the zone is still what it was when the policy was loaded. */
function inAbsentZone(zone: Zone, path: string, rules: ReadRules, field: string): PortableTarget | Denial {
  const missing = [basename(zone.path)];
  let above = dirname(zone.path);
  while (lstatSync(above, { throwIfNoEntry: false }) === undefined && dirname(above) !== above) {
    missing.unshift(basename(above));
    above = dirname(above);
  }
  const folderPath = resolvePortable(above, [{ path: above, written: above }], rules, field);
  if (typeof folderPath !== "string") return folderPath;
  if (folderPath !== above) return exchanged(path, field);
  return { zone, folderPath, missingFolders: missing, name: basename(path), old: undefined };
}

function exchanged(path: string, field: string): Denial {
  return denial("POLICY_DENY", "changedWhileOpening", `${field} ${quoteValue(path)} changed while it was written`, {
    field,
  });
}

export async function writePortable(
  target: PortableTarget,
  data: Uint8Array,
  path: string,
  field: string,
): Promise<Written | Denial> {
  const folder = join(target.folderPath, ...target.missingFolders);
  const draft = join(folder, draftName());
  try {
    makeFolders(target);
    clearDrafts(folder, statSync(folder));
    const file = await open(draft, "wx", target.old === undefined ? 0o600 : Number(target.old.mode) & 0o777);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    if (realpathSync.native(folder) !== folder) throw new Error("the folder was exchanged");
    await rename(draft, join(folder, target.name));
    return { path: join(folder, target.name), created: target.old === undefined };
  } catch (error) {
    await unlink(draft).catch(() => undefined);
    return error instanceof Error && "code" in error ? ioDenial(error, path, field) : exchanged(path, field);
  }
}

/** One at a time, and a second look before each. */
function makeFolders({ folderPath, missingFolders }: PortableTarget): void {
  let parent = folderPath;
  for (const name of missingFolders) {
    if (realpathSync.native(parent) !== parent) throw new Error("the folder was exchanged");
    parent = join(parent, name);
    mkdirSync(parent, 0o700);
  }
}
