// The program behind a catalog entry: found once, when the policy is loaded, and recognised again before each run.

import { accessSync, type BigIntStats, constants, realpathSync, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";

export interface Executable {
  /** As the operator wrote it; multi-call programs look at the name they were started by. */
  readonly path: string;
  readonly real: string;
  /** Device, inode, size and times: another file, or the same one rewritten, is another program. */
  readonly identity: string;
}

const SYSTEM_DIRECTORIES = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/** Directories of a PATH that may be searched: absolute, and not writable for other users. */
export function searchDirectories(path: string | undefined, platform: NodeJS.Platform): string[] {
  const separator = platform === "win32" ? ";" : ":";
  const given = (path ?? "").split(separator).filter((directory) => isAbsolute(directory) && !isOpenToAll(directory));
  return [...new Set([...(platform === "win32" ? [] : SYSTEM_DIRECTORIES), ...given])];
}

function isOpenToAll(directory: string): boolean {
  try {
    const stats = statSync(directory);
    return !stats.isDirectory() || (stats.mode & 0o002) !== 0;
  } catch {
    return true; // Not there or not ours to see: not searched either.
  }
}

export function findExecutable(written: string, directories: readonly string[]): Executable | { error: string } {
  if (isAbsolute(written)) return inspect(written);
  if (/[\\/]/.test(written)) return { error: "must be an absolute path or a bare name" };
  const suffixes = process.platform === "win32" ? ["", ".exe"] : [""];
  for (const directory of directories) {
    for (const suffix of suffixes) {
      const found = inspect(join(directory, written + suffix));
      if (!("error" in found)) return found;
    }
  }
  return { error: `${written} was not found in ${directories.join(", ")}` };
}

function inspect(path: string): Executable | { error: string } {
  try {
    const real = realpathSync(path);
    const stats = statSync(real, { bigint: true });
    if (!stats.isFile()) return { error: `${path} is not a file` };
    accessSync(real, constants.X_OK);
    if (process.platform !== "win32" && (stats.mode & 0o002n) !== 0n) {
      return { error: `${path} can be overwritten by every user of this machine` };
    }
    return { path, real, identity: identityOf(stats) };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    return { error: code === "EACCES" ? `${path} is not executable` : `${path} does not exist` };
  }
}

function identityOf(stats: BigIntStats): string {
  return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs, stats.mode].join(":");
}

export function isUnchanged(executable: Executable): boolean {
  try {
    const real = realpathSync(executable.path);
    return real === executable.real && identityOf(statSync(real, { bigint: true })) === executable.identity;
  } catch {
    return false;
  }
}
