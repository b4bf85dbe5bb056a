// The list of this process's children, opened while /proc can still be reached and read when it no longer can.

import { openSync, readSync } from "node:fs";

const MAX_BYTES = 65_536;

/** Undefined where the kernel keeps no such list. */
export function openChildren(): number | undefined {
  try {
    return openSync("/proc/thread-self/children", "r");
  } catch {
    return undefined;
  }
}

export function readChildren(fd: number | undefined): number[] {
  if (fd === undefined) return [];
  const bytes = Buffer.alloc(MAX_BYTES);
  const text = bytes.toString("latin1", 0, readSync(fd, bytes, 0, MAX_BYTES, 0));
  return text.split(" ").filter(Boolean).map(Number);
}
