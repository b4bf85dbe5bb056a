// Renaming onto a name that must be free, between two folders that are held open.

import { linkSync, mkdirSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { constants } from "node:os";
import { loadKoffi } from "../../lib/index.js";
import { errnoName } from "../paths/native.js";
import { type DirEntryRef, spotPath } from "./entry-ref.js";

const RENAME_NOREPLACE = 1;
const SYSCALL: Readonly<Record<string, number>> = { x64: 316, arm64: 276 };

type Rename = (from: DirEntryRef, to: DirEntryRef) => number;
let bound: Rename | "none" | undefined;

/** Undefined when it is done, else the name of the error: `EEXIST` when the name was taken. */
export function renameIfFree(from: DirEntryRef, to: DirEntryRef): string | undefined {
  bound ??= bind();
  const result = bound === "none" ? -constants.errno.ENOSYS : bound(from, to);
  if (result >= 0) return undefined;
  const problem = errnoName(result);
  return problem === "ENOSYS" || problem === "EINVAL" ? inTwoSteps(from, to) : problem;
}

function bind(): Rename | "none" {
  const number = SYSCALL[process.arch];
  const ffi = process.platform === "linux" && number !== undefined ? loadKoffi() : undefined;
  if (ffi === undefined) return "none";
  const call = ffi.load(null).func("syscall", "long", ["long", "int", "str", "int", "str", "uint"]);
  return (from, to) => {
    const result = call(number, from.folder, from.name, to.folder, to.name, RENAME_NOREPLACE);
    return result < 0 ? -ffi.errno() : result;
  };
}

/** Where the system has no such call: the new name is taken first, by a second link or an empty folder of our own. */
function inTwoSteps(from: DirEntryRef, to: DirEntryRef): string | undefined {
  const isFolder = from.stats?.isDirectory() === true;
  try {
    if (!isFolder) {
      linkSync(spotPath(from), spotPath(to));
      unlinkSync(spotPath(from));
      return undefined;
    }
    mkdirSync(spotPath(to), 0o700);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "EIO";
  }
  try {
    renameSync(spotPath(from), spotPath(to));
    return undefined;
  } catch (error) {
    rmdirSync(spotPath(to));
    return (error as NodeJS.ErrnoException).code ?? "EIO";
  }
}

/** For tests of the slower way on a machine that has the faster one. */
export function useTwoSteps(slow: boolean): void {
  bound = slow ? "none" : undefined;
}
