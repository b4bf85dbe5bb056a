// The user's home directory as a stdio server sees it: what exists is there, what the server adds is kept apart. A start-up
// file or a program that a server plants is seen by that server alone.

import {
  closeSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { NAME_ONLY, NAME_ONLY_NO_FOLLOW } from "../../paths/flags.js";
import { ATTR_RDONLY, MS_BIND, MS_REC } from "./mount-flags.js";
import type { Kernel } from "./syscalls.js";
import type { ViewCheck } from "./view.js";

export interface HomePlan {
  readonly path: string;
  /** The gateway's directory for this server: new entries of `path` are kept in it. */
  readonly store: string;
  /** Directories below `path` whose existing content is not shown: package caches, from which other programs run code. */
  readonly apart: readonly string[];
}

/** New entries are kept apart in these as well: programs look for start-up files and settings in them. */
const SPLIT = ["", ".config", ".local", ".local/share", ".cache"];
/** Entries of one directory that are shown. */
const MAX_ENTRIES = 4096;

/** Opened before the gateway's directories are hidden: the store lies inside one of them. */
export function openHomeStore({ store }: HomePlan): number {
  mkdirSync(store, { recursive: true, mode: 0o700 });
  return openSync(store, NAME_ONLY);
}

/** INVARIANT: everything else is covered already; mounts below the home directory move with its entries. */
export function splitHome(calls: Kernel, plan: HomePlan, storeFd: number, ok: ViewCheck): void {
  // The user's own, before anything of the server's is in sight. A link leads to a directory outside, which is as it was.
  const there = SPLIT.filter((name) => lstatSync(join(plan.path, name), { throwIfNoEntry: false })?.isDirectory());
  for (const name of there) {
    const path = join(plan.path, name);
    // Side by side, never one inside the other: a server that runs already cannot put a link in the place of one.
    const kept = `/proc/self/fd/${storeFd}/${name === "" ? "home" : name.replaceAll("/", "-")}`;
    mkdirSync(kept, { recursive: true, mode: 0o700 });
    split(calls, path, kept, plan.apart, ok);
  }
  closeSync(storeFd);
}

function split(calls: Kernel, folder: string, kept: string, apart: readonly string[], ok: ViewCheck): void {
  const entries = readdirSync(folder)
    .slice(0, MAX_ENTRIES)
    .filter((name) => !apart.includes(join(folder, name)))
    .flatMap((name) => opened(join(folder, name)));
  ok(folder, calls.mount(kept, folder, null, MS_BIND, null));
  for (const entry of entries) {
    show(calls, entry, ok);
    closeSync(entry.fd);
  }
}

interface Entry {
  readonly path: string;
  readonly fd: number;
  /** Where it leads, for a symbolic link. */
  readonly target: string | undefined;
}

/** Nothing for what is gone, or closed to this user. */
function opened(path: string): Entry[] {
  try {
    const target = lstatSync(path).isSymbolicLink() ? readlinkSync(path) : undefined;
    return [{ path, fd: openSync(path, NAME_ONLY_NO_FOLLOW), target }];
  } catch {
    return [];
  }
}

/** An entry that cannot be shown stays out of sight. */
function show(calls: Kernel, { path, fd, target }: Entry, ok: ViewCheck): void {
  if (target !== undefined) return made(() => symlinkSync(target, path));
  const stats = fstatSync(fd);
  const from = `/proc/self/fd/${fd}`;
  if (!stats.isDirectory() && !stats.isFile()) return;
  if (stats.isDirectory()) made(() => mkdirSync(path, { mode: 0o700 }));
  else made(() => writeFileSync(path, "", { mode: 0o600, flag: "wx" }));
  const there = lstatSync(path, { throwIfNoEntry: false });
  // The server has made an entry of this name and of another kind: it keeps that one.
  if (there?.isDirectory() !== stats.isDirectory() || there.isSymbolicLink()) return;
  if (calls.mount(from, path, null, MS_BIND | MS_REC, null) < 0) return;
  if (stats.isFile() && basename(path).startsWith(".")) ok(path, calls.setMountFlags(path, ATTR_RDONLY, false));
}

/** Another instance of the server may have made it just now. */
function made(make: () => void): void {
  try {
    make();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}
