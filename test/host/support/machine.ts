// What this machine can do for a test, and what runs on it.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const isRoot = process.getuid?.() === 0;

/** Command lines of everything that runs, zombies left out (they have none). */
export function commandLines(): string[] {
  return readdirSync("/proc")
    .filter((name) => /^[0-9]+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim()];
      } catch {
        return [];
      }
    })
    .filter((line) => line !== "");
}

let fuse: boolean | undefined;

/** Mounts one for real; as root the packages are installed when they are missing. */
export function canMountFuse(): boolean {
  fuse ??= tryFuse();
  return fuse;
}

function tryFuse(): boolean {
  if (!isRoot || !existsSync("/dev/fuse")) return false;
  const folder = mkdtempSync(join(tmpdir(), "fuse-probe-"));
  try {
    if (!has("bindfs"))
      execFileSync("apt-get", ["install", "-y", "-qq", "bindfs", "fuse3"], { stdio: "ignore", timeout: 100_000 });
    execFileSync("bindfs", [tmpdir(), folder], { stdio: "ignore" });
    execFileSync("fusermount3", ["-u", folder], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export function has(program: string): boolean {
  return ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"].some((folder) =>
    existsSync(join(folder, program)),
  );
}
