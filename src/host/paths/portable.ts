// macOS and Windows, where there is no openat2: resolve, check, open, and check again what was opened. On macOS the
// open itself refuses every link on the way; on Windows a swap between the two checks is noticed, not prevented. Writes
// are atomic, but a swap of the directory between the second check and the rename is possible (docs/platforms.md).

import {
  type BigIntStats,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  realpathSync,
  statSync,
} from "node:fs";
import { open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Denial, denial, pathDenial } from "../denial.js";
import { clearDrafts, draftName } from "./drafts.js";
import type { LocatedPlace } from "./locate.js";
import { checkMacPath, macFileSystem, O_NOFOLLOW_ANY, windowsFileSystem } from "./other-platforms.js";
import { checkNewName } from "./path-text.js";
import { checkFile, ioDenial, type OpenFile, type ReadRules } from "./read.js";
import { checkRepository } from "./repositories.js";
import { type AskSystem, systemFacts } from "./system-facts.js";
import type { PathTarget, WritableRoot } from "./target.js";
import type { Written } from "./write.js";

export function openForReadPortable(
  path: string,
  roots: readonly LocatedPlace[],
  rules: ReadRules,
  field: string,
  ask: AskSystem = systemFacts,
): OpenFile | Denial {
  const real = resolvePortable(path, roots, rules, field, ask);
  if (typeof real !== "string") return real;
  let fd: number | undefined;
  try {
    const noLinks = process.platform === "darwin" ? O_NOFOLLOW_ANY : 0;
    fd = openSync(real, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | noLinks);
    const stats = fstatSync(fd, { bigint: true });
    const changed = namesFile(real, stats) ? undefined : pathDenial("changed", field, path);
    const refused = checkFile(stats, rules, path, field) ?? changed;
    if (refused === undefined) return { fd, path: real, size: Number(stats.size) };
    closeSync(fd);
    return refused;
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    return ioDenial(error, path, field);
  }
}

/** The canonical path of an existing file or directory, checked by the platform's rules. */
export function resolvePortable(
  path: string,
  roots: readonly LocatedPlace[],
  rules: ReadRules,
  field: string,
  ask: AskSystem = systemFacts,
): string | Denial {
  const onMac = process.platform === "darwin";
  const bad = onMac ? checkMacPath(path) : undefined;
  if (bad !== undefined) return denial("POLICY_DENY", bad.rule, bad.reason, { field });
  let real: string;
  try {
    real = realpathSync.native(path);
  } catch {
    return pathDenial("absent", field, path);
  }
  const places = roots.map((root) => root.path);
  const { typeName, volume, isCaseSensitive, isReparsePoint } = ask(real);
  const driveType = volume === "local" ? "fixed" : volume;
  const refused =
    process.platform === "win32"
      ? windowsFileSystem({ finalPath: real, driveType, isReparsePoint, isFile: true }, places, rules.denyNetworkFS)
      : macFileSystem(
          { realPath: real, typeName, isLocal: volume === "local", caseSensitive: isCaseSensitive, isFile: true },
          places,
          rules.denyNetworkFS,
        );
  return refused === undefined ? real : denial("POLICY_DENY", refused.rule, refused.reason, { field });
}

/** The name still leads to the file that was opened. */
function namesFile(real: string, stats: BigIntStats): boolean {
  const now = lstatSync(real, { bigint: true });
  return now.ino === stats.ino && now.dev === stats.dev && realpathSync.native(real) === real;
}

/** `PortableTarget` is a `PathTarget` without descriptors; `missingDirectories` lead to a root that does not exist yet. */
export type PortableTarget = Omit<PathTarget, "directory">;

export function findPortableTarget(
  path: string,
  writableRoots: readonly WritableRoot[],
  rules: ReadRules,
  field: string,
): PortableTarget | Denial {
  const name = basename(path);
  const bad = checkNewName(name);
  if (bad !== undefined) return pathDenial("badName", field, path, bad.reason, bad.rule);
  const absent = writableRoots.find(
    (root) => root.createIfMissing && isAbsent(root.path) && [root.path, root.written].includes(dirname(path)),
  );
  if (absent !== undefined) return inAbsentRoot(absent, path, rules, field);
  const directoryPath = resolvePortable(dirname(path), writableRoots, rules, field);
  if (typeof directoryPath !== "string") return directoryPath;
  const writableRoot = writableRoots
    .filter((root) => resolvePortable(directoryPath, [root], rules, field) === directoryPath)
    .sort((a, b) => b.path.length - a.path.length)[0];
  if (writableRoot === undefined) return pathDenial("outsideWritable", field, path);
  if (!writableRoot.recursive && directoryPath !== writableRoot.path) return pathDenial("notRecursive", field, path);
  const old = lstatSync(join(directoryPath, name), { bigint: true, throwIfNoEntry: false });
  const refused = old === undefined ? undefined : checkFile(old, { ...rules, hardLinks: "allow" }, path, field);
  const internal = checkRepository(writableRoot, join(directoryPath, name), path, field);
  return internal ?? refused ?? { writableRoot, directoryPath, missingDirectories: [], name, old };
}

function isAbsent(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined;
}

/** Only where everything above the root is still what it was when the policy was loaded. */
function inAbsentRoot(root: WritableRoot, path: string, rules: ReadRules, field: string): PortableTarget | Denial {
  const missing = [basename(root.path)];
  let above = dirname(root.path);
  while (isAbsent(above) && dirname(above) !== above) {
    missing.unshift(basename(above));
    above = dirname(above);
  }
  const directoryPath = resolvePortable(above, [{ path: above, written: above }], rules, field);
  if (typeof directoryPath !== "string") return directoryPath;
  if (directoryPath !== above) return pathDenial("changedInWrite", field, path);
  const name = basename(path);
  return { writableRoot: root, directoryPath, missingDirectories: missing, name, old: undefined };
}

export async function writePortable(
  target: PortableTarget,
  data: Uint8Array,
  path: string,
  field: string,
): Promise<Written | Denial> {
  const directory = join(target.directoryPath, ...target.missingDirectories);
  const draft = join(directory, draftName());
  try {
    makeDirectories(target);
    clearDrafts(directory, statSync(directory));
    const file = await open(draft, "wx", target.old === undefined ? 0o600 : Number(target.old.mode) & 0o777);
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    if (realpathSync.native(directory) !== directory) throw new Error("the directory was exchanged");
    await rename(draft, join(directory, target.name));
    return { path: join(directory, target.name), created: target.old === undefined };
  } catch (error) {
    await unlink(draft).catch(() => undefined);
    const isSystemError = error instanceof Error && "code" in error;
    return isSystemError ? ioDenial(error, path, field) : pathDenial("changedInWrite", field, path);
  }
}

/** One at a time, each after another check of the one above. */
function makeDirectories({ directoryPath, missingDirectories }: PortableTarget): void {
  let parent = directoryPath;
  for (const name of missingDirectories) {
    if (realpathSync.native(parent) !== parent) throw new Error("the directory was exchanged");
    parent = join(parent, name);
    mkdirSync(parent, 0o700);
  }
}
