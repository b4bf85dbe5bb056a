// Vitest's global set-up: the one place where test programs are installed. In CI, as root on Debian, missing programs
// are installed once, before the first test file is loaded. Everywhere else nothing is installed: tests that need a
// missing program are skipped and say which.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: "x86_64", arm64: "aarch64" };
/** A library that shifts the wall clock of one process. */
export const FAKETIME = `/usr/lib/${ARCHITECTURES[process.arch] ?? process.arch}-linux-gnu/faketime/libfaketime.so.1`;

/** Program, or the path of one outside the search path → Debian package. */
const PACKAGES: Readonly<Record<string, string>> = {
  bindfs: "bindfs",
  bzip2: "bzip2",
  chromium: "chromium",
  curl: "curl",
  fish: "fish",
  fusermount3: "fuse3",
  gawk: "gawk",
  git: "git",
  jq: "jq",
  make: "make",
  minisign: "minisign",
  prometheus: "prometheus",
  promtool: "prometheus",
  pg_restore: "postgresql",
  pgbouncer: "pgbouncer",
  rg: "ripgrep",
  socat: "socat",
  sshfs: "sshfs",
  xz: "xz-utils",
  zsh: "zsh",
  zstd: "zstd",
  "/usr/lib/openssh/sftp-server": "openssh-sftp-server",
  [FAKETIME]: "libfaketime",
};

const DIRECTORIES = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
const INSTALL_MS = 300_000;

/** True when the program is in one of the system's directories, where the host's profiles look for it. */
export function has(program: string): boolean {
  if (program.startsWith("/")) return existsSync(program);
  return DIRECTORIES.some((directory) => existsSync(join(directory, program)));
}

/** Why a test cannot run, or undefined when all programs are there. */
export function missingPrograms(...programs: string[]): string | undefined {
  const missing = programs.filter((program) => !has(program));
  if (missing.length === 0) return undefined;
  const packages = missing.map((program) => PACKAGES[program] ?? program);
  return `skipped: ${missing.join(", ")} not installed (Debian: apt-get install ${packages.join(" ")})`;
}

export default function setup(): void {
  const missing = Object.keys(PACKAGES).filter((program) => !has(program));
  if (missing.length === 0) return;
  if (process.env.CI && process.getuid?.() === 0 && has("apt-get")) {
    const apt = (...args: string[]): void => void spawnSync("apt-get", args, { stdio: "ignore", timeout: INSTALL_MS });
    apt("update", "-qq");
    apt("install", "-y", "-qq", "--no-install-recommends", ...missing.map((program) => PACKAGES[program] as string));
  }
  const reason = missingPrograms(...missing);
  if (reason !== undefined) console.log(`tests of these programs are ${reason}`);
}
