// The gateway itself, closed to processes of its own user: environment, memory and descriptors are root's to look at.

import { closeToOthers } from "../confine/privileges.js";
import { kernel } from "../confine/syscalls.js";

/** `closeProcess` makes this process not dumpable. False where that cannot be done (no Linux, no koffi). */
export function closeProcess(): boolean {
  const calls = kernel();
  return calls !== undefined && closeToOthers(calls);
}
