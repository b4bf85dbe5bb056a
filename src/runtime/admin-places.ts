// Where the admin ports of running gateways are, so that a person need not know: those on stdio take any free port.

import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = "admin";
const MAX_KNOWN = 64;

/** Gives back what ends the announcement. */
export function announceAdmin(stateDir: string, url: string): () => void {
  const folder = join(stateDir, FOLDER);
  const file = join(folder, String(process.pid));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  // Whoever listens everywhere is reached here.
  writeFileSync(file, url.replace(/\/\/(0\.0\.0\.0|\[::\]):/, "//127.0.0.1:"), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

/** The newest first. A process that is gone has left its port to anybody, who must not be sent a credential. */
export function knownAdmins(stateDir: string): string[] {
  const folder = join(stateDir, FOLDER);
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => /^\d{1,10}$/.test(name) && isAlive(Number(name)));
  } catch {
    return [];
  }
  const urls = names
    .map((name) => ({ file: join(folder, name), at: statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs }))
    .filter(({ at }) => at !== undefined)
    .sort((a, b) => (b.at as number) - (a.at as number))
    .slice(0, MAX_KNOWN)
    .map(({ file }) => readFileSync(file, "utf8"));
  // Workers share one.
  return [...new Set(urls)];
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
