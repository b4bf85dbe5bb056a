// Writing on macOS and Windows: temporary file, flush, second look at the folder, rename. Atomic, but not proof against
// a swap of the folder between the second look and the rename (docs/platforms.md).

import { type BigIntStats, lstatSync, realpathSync, statSync } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Denial, denial, quote } from "../denial.js";
import { clearDrafts, draftName } from "./drafts.js";
import { checkNewName } from "./path-text.js";
import { resolvePortable } from "./portable.js";
import { checkFile, ioDenial, type ReadRules } from "./read.js";
import type { Zone } from "./target.js";
import type { Written } from "./write.js";

export interface PortableTarget {
  readonly zone: Zone;
  readonly folderPath: string;
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
  return refused ?? { zone, folderPath, name, old };
}

export async function writePortable(
  target: PortableTarget,
  data: Uint8Array,
  path: string,
  field: string,
): Promise<Written | Denial> {
  const draft = join(target.folderPath, draftName());
  try {
    clearDrafts(target.folderPath, statSync(target.folderPath));
    const file = await open(draft, "wx", target.old === undefined ? 0o600 : Number(target.old.mode) & 0o777);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    if (realpathSync.native(target.folderPath) !== target.folderPath) throw new Error("the folder was exchanged");
    await rename(draft, join(target.folderPath, target.name));
    return { path: join(target.folderPath, target.name), created: target.old === undefined };
  } catch (error) {
    await unlink(draft).catch(() => undefined);
    return error instanceof Error && "code" in error
      ? ioDenial(error, path, field)
      : denial("POLICY_DENY", "changedWhileOpening", `${field} ${quote(path)} changed while it was written`, { field });
  }
}
