// Where a path leads, as text: every link followed by hand, so that the mount table can be asked before each step.
// The answer may be stale by the time it is used; the opener must refuse links (RESOLVE_NO_SYMLINKS).

import { readlinkSync } from "node:fs";

/** The kernel's own limit. */
const MAX_LINKS = 40;
/** Components seen in all, links included; a path of 4095 bytes holds at most half as many. */
const MAX_STEPS = 8192;

export type Walked =
  | { readonly kind: "path"; readonly path: string; readonly missing: boolean }
  | { readonly kind: "refused"; readonly why: "mount" | "loop" | "unreadable" | "missing"; readonly at: string };

type ReadLink = (path: string) => string;

/** INVARIANT: `path` is absolute. Mount points in `closed` are never touched. */
export function walkPath(path: string, closed: ReadonlySet<string>, readLink: ReadLink = readlinkSync): Walked {
  const pending = split(path);
  const real: string[] = [];
  let links = 0;
  for (let steps = 0; pending.length > 0; steps++) {
    if (steps > MAX_STEPS) return { kind: "refused", why: "loop", at: here(real) };
    const name = pending.pop() ?? "";
    if (name === "..") {
      real.pop();
      continue;
    }
    real.push(name);
    const at = here(real);
    if (closed.has(at)) return { kind: "refused", why: "mount", at };
    const target = linkTarget(at, readLink);
    if (target === "file") continue;
    if (target === "unreadable") return { kind: "refused", why: "unreadable", at };
    if (target === "missing") return missingRest(real, pending, at);
    if (++links > MAX_LINKS) return { kind: "refused", why: "loop", at };
    if (target.text.startsWith("/")) real.length = 0;
    else real.pop();
    pending.push(...split(target.text));
  }
  return { kind: "path", path: here(real), missing: false };
}

/** Names still to come, last first; empty names and `.` mean nothing. */
function split(path: string): string[] {
  return path
    .split("/")
    .filter((name) => name !== "" && name !== ".")
    .reverse();
}

function here(real: readonly string[]): string {
  return `/${real.join("/")}`;
}

/** `..` after something that does not exist is an error to the kernel, never a way up. */
function missingRest(real: readonly string[], pending: readonly string[], at: string): Walked {
  if (pending.includes("..")) return { kind: "refused", why: "missing", at };
  return { kind: "path", path: here([...real, ...[...pending].reverse()]), missing: true };
}

function linkTarget(path: string, readLink: ReadLink): { text: string } | "file" | "missing" | "unreadable" {
  try {
    return { text: readLink(path) };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EINVAL") return "file";
    if (code === "ENOENT") return "missing";
    if (code === "ENOTDIR") return "missing";
    return "unreadable";
  }
}
