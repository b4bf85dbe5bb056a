// Descriptors that somebody left open for the host would go on to every command. Node closes only the first few to its children.

import { closeSync, readdirSync, readFileSync } from "node:fs";

const FIRST_INHERITED = 3;
const O_CLOEXEC = 0o2000000;

/** Whatever this process opened itself is closed to its children; what is not came from outside. */
export function closeInherited(except: readonly number[] = []): void {
  if (process.platform !== "linux") return;
  for (const fd of listed()) {
    if (fd >= FIRST_INHERITED && !except.includes(fd) && isPassedOn(fd)) closeSync(fd);
  }
}

function listed(): number[] {
  try {
    return readdirSync("/proc/self/fd").map(Number);
  } catch {
    return []; // No /proc, no list.
  }
}

/** Unreadable: it was the one that listed the others. */
function isPassedOn(fd: number): boolean {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8"))?.[1];
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    return false;
  }
}
