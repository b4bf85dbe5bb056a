// A name in a directory of a writable root: the directory held open, the name itself not followed. Whatever happens to
// the names above it meanwhile, a change made through the descriptor happens in this directory.

import {
  type BigIntStats,
  closeSync,
  fstatSync,
  linkSync,
  mkdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from "node:fs";
import { constants } from "node:os";
import { posix } from "node:path";
import { type Denial, isDenial, pathDenial } from "../denial.js";
import { locate } from "../paths/locate.js";
import { isWithin } from "../paths/mounts.js";
import { descriptorName, errnoName, native } from "../paths/native.js";
import { absolutePath, checkNewName } from "../paths/path-text.js";
import { asWriteDenial, checkLookAlike, checkWritable, entryStats, type WritableRoot } from "../paths/target.js";
import type { Policy } from "../policy/policy.js";

export interface DirEntryRef {
  readonly writableRoot: WritableRoot;
  /** The receiver closes it. */
  readonly directory: number;
  readonly name: string;
  /** Where it really is. */
  readonly path: string;
  /** Undefined: the name is free. */
  readonly stats: BigIntStats | undefined;
}

export function findEntry(policy: Policy, text: string, field: string): DirEntryRef | Denial {
  const whole = givenPath(policy, text, field);
  if (typeof whole !== "string") return whole;
  const path = whole.replace(/(?<=[^/])\/+$/, "");
  const name = posix.basename(path);
  if (name === "" || name === "." || name === "..") return pathDenial("noName", field, text);
  const found = locate(posix.dirname(path), policy.writableRoots, policy, field);
  if (isDenial(found)) return asWriteDenial(found, field, text);
  const writableRoot = fstatSync(found.fd).isDirectory()
    ? checkWritable(found.path, name, policy.writableRoots, text, field)
    : pathDenial("throughNonDirectory", field, text);
  if ("recursive" in writableRoot) {
    const stats = entryStats(found.fd, name);
    return { writableRoot, directory: found.fd, name, path: posix.join(found.path, name), stats };
  }
  closeSync(found.fd);
  return writableRoot;
}

/** The absolute path of a caller's text. */
export function givenPath(policy: Policy, text: string, field: string): string | Denial {
  return absolutePath(text, field, policy, policy.readableRoots[0]?.path ?? policy.writableRoots[0]?.path);
}

export function entryPath({ directory, name }: DirEntryRef): string {
  return descriptorName(directory, name);
}

/** For a name that is to be made. */
export function checkFree(entry: DirEntryRef, text: string, field: string): Denial | undefined {
  const bad = checkNewName(entry.name);
  if (bad !== undefined) return pathDenial("badName", field, text, bad.reason, bad.rule);
  if (!entry.writableRoot.createIfMissing) return pathDenial("replaceOnly", field, text);
  return checkLookAlike(entry.directory, entry.name, text, field);
}

/** What the operator named stays where it is, and so does every directory above it. */
export function checkNotNamed(policy: Policy, entry: DirEntryRef, text: string, field: string): Denial | undefined {
  const isNamed = [...policy.readableRoots, ...policy.writableRoots].some((root) => isWithin(root.path, entry.path));
  return isNamed ? pathDenial("namedByPolicy", field, text) : undefined;
}

let isSlow = false;

/** For tests of the slower way on a machine that has the faster one. */
export function useTwoSteps(slow: boolean): void {
  isSlow = slow;
}

/** Renames to a name that must be free. Undefined when it is done, else the name of the error, such as `EEXIST`. */
export function renameIfFree(from: DirEntryRef, to: DirEntryRef): string | undefined {
  const calls = isSlow ? undefined : native();
  const result = calls?.renameNoReplace(from.directory, from.name, to.directory, to.name) ?? -constants.errno.ENOSYS;
  if (result >= 0) return undefined;
  const problem = errnoName(result);
  return problem === "ENOSYS" || problem === "EINVAL" ? renameInTwoSteps(from, to) : problem;
}

/** Where the system has no such call: the new name is taken first, by a second link or an empty directory of our own. */
function renameInTwoSteps(from: DirEntryRef, to: DirEntryRef): string | undefined {
  try {
    if (from.stats?.isDirectory() !== true) {
      linkSync(entryPath(from), entryPath(to));
      unlinkSync(entryPath(from));
      return undefined;
    }
    mkdirSync(entryPath(to), 0o700);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "EIO";
  }
  try {
    renameSync(entryPath(from), entryPath(to));
    return undefined;
  } catch (error) {
    rmdirSync(entryPath(to));
    return (error as NodeJS.ErrnoException).code ?? "EIO";
  }
}
