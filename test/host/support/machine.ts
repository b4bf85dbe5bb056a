// What this machine can do for a test, and what runs on it.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

export const isRoot = process.getuid?.() === 0;

/** Why a process of an ordinary user cannot load this repository, started by root; undefined when it can. */
export function unreachableForOthers(): string | undefined {
  if (!isRoot) return undefined;
  for (let folder = import.meta.dirname; folder !== dirname(folder); folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o005) !== 0o005) return `skipped: ${folder} is closed to ordinary users`;
  }
  return undefined;
}

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

export const SFTP_SERVER = "/usr/lib/openssh/sftp-server";

export function canServeSftp(): boolean {
  const isThere = (): boolean => has("sshfs") && has("socat") && existsSync(SFTP_SERVER);
  if (isThere()) return true;
  if (!isRoot) return false;
  try {
    install("sshfs", "socat", "openssh-sftp-server");
  } catch {
    // No network, no packages: the test says what it needs.
  }
  return isThere();
}

function install(...packages: string[]): void {
  execFileSync("apt-get", ["install", "-y", "-qq", ...packages], { stdio: "ignore", timeout: 100_000 });
}

export function has(program: string): boolean {
  return ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"].some((folder) =>
    existsSync(join(folder, program)),
  );
}

/** As root, programs that the cases name are installed when they are missing; otherwise a test says which is. */
export function ensurePrograms(packages: Readonly<Record<string, string>>): void {
  const missing = Object.keys(packages).filter((program) => !has(program));
  if (missing.length === 0 || !isRoot || !has("apt-get")) return;
  try {
    execFileSync("apt-get", ["update", "-qq"], { stdio: "ignore", timeout: 60_000 });
    install(...missing.map((program) => packages[program] as string));
  } catch {
    // No network, no packages: the test that looks for them names what is missing.
  }
}
