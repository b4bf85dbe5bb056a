// Repositories in writable directories: hooks and settings inside them are programs that their owner's own git runs, outside any
// sandbox. Their directories are read-only to commands, and the directories above them keep their names.

import { type Dirent, lstatSync, readdirSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type Denial, pathDenial, quoteValue } from "../denial.js";
import { submodulesIn } from "./git-index.js";
import { isWithin, readMounts } from "./mounts.js";
import type { WritableRoot } from "./target.js";

/** Read before every command, about 15 µs each. A writable directory with more is read-only to commands. */
export const MAX_DIRECTORIES = 20_000;
/** Each is a mount of its own. A writable directory with more is read-only to commands. */
export const MAX_REPOSITORIES = 256;

/** Many directories. A package can be a repository; what lies deeper in one is part of it. */
const PACKAGES = "node_modules";

/** `packages` holds packages, by themselves or in a directory of a scope; `package` may hold more of them. */
type Kind = "any" | "packages" | "package";

function kindBelow(kind: Kind, name: string): Kind | undefined {
  if (name === PACKAGES) return "packages";
  if (kind === "packages") return /^[@.]/.test(name) ? "packages" : "package";
  return kind === "any" ? "any" : undefined;
}

export type ProtectedRepositories =
  | { readonly kind: "found"; readonly paths: readonly string[] }
  /** Not all of them could be protected one by one. */
  | { readonly kind: "unprotected"; readonly why: string };

/** Breadth first; `except` are directories with a rule of their own. What is mounted below is not shown to commands, and may hang. */
export function findRepositories(top: string, except: readonly string[] = []): ProtectedRepositories {
  const paths: string[] = [];
  const skipped = new Set([...except, ...readMounts().map((mount) => mount.path)]);
  const queue: { readonly directory: string; readonly kind: Kind }[] = [{ directory: top, kind: "any" }];
  for (let i = 0; i < queue.length; i++) {
    const { directory, kind } = queue[i] as (typeof queue)[number];
    const entries = list(directory);
    const internal = entries?.filter((entry) => isInternal(entry.name));
    if (entries === undefined || internal === undefined) {
      // A command of the same user can open it again, so it is closed with whatever is in it.
      if (directory === top) return unprotected("it cannot be listed");
      paths.push(directory);
    } else if (internal.some((entry) => entry.isSymbolicLink())) {
      // Nothing can be mounted over a link, so everything beside it is closed too.
      if (directory === top) return unprotected("its .git is a link");
      paths.push(directory);
    } else if (directory !== top && looksLikeGitDirectory(directory)) paths.push(directory);
    else {
      const found = internal.map((entry) => join(directory, entry.name));
      const all = directory === top ? [...found, ...repositoryAround(top)] : found;
      const submodules = all.map(namedByIndex);
      const named = [...all.flatMap(namedBySettings), ...submodules.flatMap((each) => each ?? [])];
      const closed = named.filter((path) => path !== top && isWithin(path, top)).map((path) => existing(path, top));
      if (submodules.includes(undefined)) closed.push(directory);
      // What is not there yet, or is a link, cannot be closed by itself: the directory in which it would be made is.
      if (closed.includes(top))
        return unprotected(
          "its repository names hooks, settings or submodules that are not there yet, or cannot be read",
        );
      paths.push(...found, ...closed);
      for (const { name } of entries.filter((entry) => entry.isDirectory() && !isInternal(entry.name))) {
        const path = join(directory, name);
        const below = kindBelow(kind, name);
        if (below !== undefined && !skipped.has(path)) queue.push({ directory: path, kind: below });
      }
    }
    if (paths.length > MAX_REPOSITORIES) return unprotected(`more than ${MAX_REPOSITORIES} repositories lie in it`);
    if (queue.length > MAX_DIRECTORIES) return unprotected(`more than ${MAX_DIRECTORIES} directories lie in it`);
  }
  return { kind: "found", paths: outermost(paths) };
}

/** What lies in a protected directory is protected with it; a mount of its own would open what is above it. */
function outermost(paths: readonly string[]): string[] {
  const kept: string[] = [];
  for (const path of [...new Set(paths)].sort((a, b) => a.length - b.length)) {
    if (!kept.some((above) => isWithin(path, above))) kept.push(path);
  }
  return kept.sort();
}

/** The `.git` of the work tree that a directory lies in. */
function repositoryAround(top: string): string[] {
  for (let at = dirname(top); ; at = dirname(at)) {
    const internal = join(at, ".git");
    if (lstatSync(internal, { throwIfNoEntry: false })) return [internal];
    if (at === dirname(at)) return [];
  }
}

/** The path, or the nearest directory above it that is there. */
function existing(path: string, top: string): string {
  for (let at = path; ; at = dirname(at)) {
    const stats = lstatSync(at, { throwIfNoEntry: false });
    if (at === top || stats?.isDirectory() === true || (at === path && stats?.isFile() === true)) return at;
  }
}

function unprotected(why: string): ProtectedRepositories {
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
    else
      for (const entry of list(at) ?? []) if (entry.isDirectory() || entry.isFile()) queue.push(join(at, entry.name));
    if (pieces.length + queue.length > MAX_PIECES) return [];
  }
  return pieces;
}

/** Empty when it is absent; undefined when it cannot be listed, which a command may change by its mode. */
function list(directory: string): Dirent[] | undefined {
  try {
    const stats = lstatSync(directory, { throwIfNoEntry: false });
    return stats?.isDirectory() === true ? readdirSync(directory, { withFileTypes: true }) : [];
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT" ? [] : undefined;
  }
}

// The insides of a repository: what is written there (hooks, settings, the file that says where the repository lies) is run by
// the developer's own tools later, outside any sandbox, and no diff shows it.

/** Names of the systems that run commands from a working copy; Subversion has hooks on its server only. As git itself guards them: in any case, by the short name of FAT and NTFS, by a stream's name. */
const INTERNAL = /^(\.git|\.hg|\.jj|\.sl|\.pijul|_darcs|(git|hg|jj|sl|pijul|_darcs)~[0-9]+)(::?\$.*)?$/i;

/** Characters that HFS+ does not see in a name. */
const IGNORED = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/gu;

export function isInternal(name: string): boolean {
  return INTERNAL.test(name.replace(IGNORED, "").replace(/[. ]+$/, ""));
}

/** What git itself takes for a repository's directory whatever its name: a bare repository, or one that a `.git` file points to. */
export function looksLikeGitDirectory(path: string): boolean {
  const typeOf = (name: string) => lstatSync(join(path, name), { throwIfNoEntry: false });
  try {
    const head = typeOf("HEAD");
    if (head === undefined || head.isDirectory()) return false;
    if (typeOf("commondir")?.isFile() === true) return true;
    return ["objects", "refs"].every((name) => typeOf(name)?.isFile() === false);
  } catch {
    // Not accessible now; its mode can be changed.
    return true;
  }
}

/** Settings are small; of a larger file only this much is looked at. */
const MAX_CONFIG_CHARS = 262_144;
/** Files of settings that are followed from one repository. */
const MAX_CONFIGS = 64;
/** In any section, whose head may stand on the same line: more is protected then, not less. */
const NAMED = /^[ \t]*(?:\[[^\]\n]*\][ \t]*)?(hookspath|path)[ \t]*=[ \t]*("?)([^"\n\r;#]+)\2/gim;

/**
 * Paths that a repository's own settings name for hooks and for more settings. Git-ignored ones are shown by no diff.
 * `internal` is the `.git` of a work tree: a directory, or the file of a linked work tree or a submodule.
 */
export function namedBySettings(internal: string): string[] {
  const named: string[] = [];
  const configs = configsOf(internal);
  for (let i = 0; i < configs.length && i < MAX_CONFIGS; i++) {
    const config = configs[i] as string;
    for (const [, key = "", , value = ""] of read(config).matchAll(NAMED)) {
      const isHooks = key.toLowerCase() === "hookspath";
      const path = resolve(isHooks ? dirname(internal) : dirname(config), withoutTilde(value.trim()));
      if (named.includes(path)) continue;
      named.push(path);
      if (!isHooks) configs.push(path);
    }
  }
  return named;
}

/**
 * What would make a repository of a submodule that is not checked out: git runs what the settings there name when it is
 * asked for the status of the repository around it. Undefined when the index cannot be read.
 */
function namedByIndex(internal: string): string[] | undefined {
  const isSha256 = configsOf(internal).some((config) => /objectformat[ \t]*=[ \t]*"?sha256/i.test(read(config)));
  const submodules = submodulesIn(directoryOf(internal), isSha256);
  return submodules?.map((path) => join(dirname(internal), path, ".git"));
}

/** Where a `.git` lies: itself, or what its file points to. */
function directoryOf(internal: string): string {
  const [, pointed] = /^gitdir:[ \t]*(.+?)[ \t\r]*$/m.exec(read(internal)) ?? [];
  return pointed === undefined ? internal : resolve(dirname(internal), pointed);
}

function configsOf(internal: string): string[] {
  const directory = directoryOf(internal);
  const common = read(join(directory, "commondir")).trim();
  return [join(resolve(directory, common), "config"), join(directory, "config.worktree")];
}

/** Empty when there is no such file. */
function read(path: string): string {
  try {
    return readFileSync(path, "utf8").slice(0, MAX_CONFIG_CHARS);
  } catch {
    return "";
  }
}

function withoutTilde(path: string): string {
  return path.startsWith("~/") ? join(homedir(), path.slice(2)) : path;
}

/** What the settings of a repository around the path name, and the path lies in. */
function namedAround(real: string): string | undefined {
  for (let at = dirname(real); ; at = dirname(at)) {
    const found = namedBySettings(join(at, ".git")).find((path) => isWithin(real, path));
    if (found !== undefined || at === dirname(at)) return found;
  }
}

/** A git directory inside the writable root that holds the path. The root itself was named by its operator. */
function gitDirectoryAbove(root: string, real: string): string | undefined {
  for (let at = dirname(real); at.length > root.length; at = dirname(at)) if (looksLikeGitDirectory(at)) return at;
  return undefined;
}

/** INVARIANT: `real` lies in the root. A root that itself lies inside a repository was named by its operator. */
export function checkRepository(root: WritableRoot, real: string, path: string, field: string): Denial | undefined {
  if (root.repositoryInternals) return undefined;
  const name =
    real.slice(root.path.length).split(/[\\/]/).find(isInternal) ??
    gitDirectoryAbove(root.path, real) ??
    namedAround(real);
  return name === undefined ? undefined : pathDenial("internals", field, path, quoteValue(name));
}
