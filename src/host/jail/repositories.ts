// Repositories in writable directories: hooks and settings inside them are programs that their owner's own git runs, outside any
// sandbox. Their directories are read-only to commands, and the directories above them keep their names.

import { type Dirent, lstatSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { isWithin, readMounts } from "./mounts.js";
import { isInternal, looksLikeGitDirectory } from "./repository.js";

/** Read before every command, about 15 µs each. A writable directory with more is read-only to commands. */
export const MAX_DIRECTORIES = 20_000;
/** Each is a mount of its own. A writable directory with more is read-only to commands. */
export const MAX_REPOSITORIES = 256;

/** Installed packages: many directories, none of them its owner's own repository. */
const SKIPPED = new Set(["node_modules"]);

export type Repositories =
  | { readonly kind: "found"; readonly paths: readonly string[] }
  /** Not all of them could be protected one by one. */
  | { readonly kind: "unprotected"; readonly why: string };

/** Breadth first; `except` are directories with a rule of their own. What is mounted below is not shown to commands, and may hang. */
export function findRepositories(top: string, except: readonly string[] = []): Repositories {
  const paths: string[] = [];
  const skipped = new Set([...except, ...readMounts().map((mount) => mount.path)]);
  const queue = [top];
  for (let i = 0; i < queue.length; i++) {
    const directory = queue[i] as string;
    const entries = list(directory);
    const internal = entries.filter((entry) => isInternal(entry.name));
    // Nothing can be mounted over a link, so everything beside it is closed too.
    if (internal.some((entry) => entry.isSymbolicLink())) {
      if (directory === top) return unprotected("its .git is a link");
      paths.push(directory);
    } else if (directory !== top && looksLikeGitDirectory(directory)) paths.push(directory);
    else {
      paths.push(...internal.map((entry) => join(directory, entry.name)));
      const below = entries.filter((e) => e.isDirectory() && !SKIPPED.has(e.name) && !isInternal(e.name));
      for (const { name } of below) {
        const path = join(directory, name);
        if (!skipped.has(path)) queue.push(path);
      }
    }
    if (paths.length > MAX_REPOSITORIES) return unprotected(`more than ${MAX_REPOSITORIES} repositories lie in it`);
    if (queue.length > MAX_DIRECTORIES) return unprotected(`more than ${MAX_DIRECTORIES} directories lie in it`);
  }
  return { kind: "found", paths: paths.sort() };
}

function unprotected(why: string): Repositories {
  return { kind: "unprotected", why };
}

/** Directories between `top` and each path: as mounts of their own they cannot be renamed or removed. */
export function directoriesAbove(paths: readonly string[], top: string): string[] {
  const above = new Set<string>();
  for (const path of paths) {
    if (!isWithin(path, top)) continue;
    for (let at = dirname(path); at !== top && isWithin(at, top); at = dirname(at)) above.add(at);
  }
  return [...above].sort();
}

/** Landlock's rules hold for everything below, so it takes one for each name beside a protected path. */
const MAX_PIECES = 4096;

/** What of `top` can be written without writing to, renaming or replacing a protected path. */
export function writablePieces(top: string, protectedPaths: readonly string[]): string[] {
  const pieces: string[] = [];
  const queue = [top];
  for (let directory = queue.pop(); directory !== undefined; directory = queue.pop()) {
    const at = directory;
    if (protectedPaths.some((path) => isWithin(at, path))) continue;
    if (!protectedPaths.some((path) => isWithin(path, at))) pieces.push(at);
    else for (const entry of list(at)) if (entry.isDirectory() || entry.isFile()) queue.push(join(at, entry.name));
    if (pieces.length + queue.length > MAX_PIECES) return [];
  }
  return pieces;
}

/** Empty when it is absent or not readable to us: then it is not shown to the command either. */
function list(directory: string): Dirent[] {
  try {
    return lstatSync(directory).isDirectory() ? readdirSync(directory, { withFileTypes: true }) : [];
  } catch {
    return [];
  }
}
