// The insides of a repository: what is written there (hooks, settings, the file that says where the repository lies) is run by
// the developer's own tools later, outside any sandbox, and no diff shows it.

import { lstatSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type Denial, denial, quoteValue } from "../denial.js";
import { isWithin } from "./mounts.js";
import type { Zone } from "./target.js";

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

function configsOf(internal: string): string[] {
  const [, pointed] = /^gitdir:[ \t]*(.+?)[ \t\r]*$/m.exec(read(internal)) ?? [];
  const directory = pointed === undefined ? internal : resolve(dirname(internal), pointed);
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

/** Directories of the zone that hold the path. The zone itself was named by its operator. */
function gitDirectoryAbove(zone: string, real: string): string | undefined {
  for (let at = dirname(real); at.length > zone.length; at = dirname(at)) if (looksLikeGitDirectory(at)) return at;
  return undefined;
}

/** INVARIANT: `real` lies in the zone. A zone that itself lies inside a repository was named by its operator. */
export function checkRepository(zone: Zone, real: string, path: string, field: string): Denial | undefined {
  if (zone.repositoryInternals) return undefined;
  const name =
    real.slice(zone.path.length).split(/[\\/]/).find(isInternal) ??
    gitDirectoryAbove(zone.path, real) ??
    namedAround(real);
  if (name === undefined) return undefined;
  const reason = `${field} ${quoteValue(path)} leads into ${quoteValue(name)}: what is written there, the tools of the repository's owner would run`;
  return denial("POLICY_DENY", "writeRules.repositoryInternals", reason, {
    field,
    suggestions: ["write beside it", "ask the operator to set repositoryInternals: true for this write zone"],
  });
}
