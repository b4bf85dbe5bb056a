// The insides of a repository: what is written there (hooks, settings, the file that says where the repository lies) is run by
// the developer's own tools later, outside any sandbox, and no diff shows it.

import { lstatSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { type Denial, denial, quote } from "../denial.js";
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
const HOOKS_PATH = /^[ \t]*hookspath[ \t]*=[ \t]*("?)([^"\n\r;#]+)\1/gim;

/** Directories that a repository's own settings name for its hooks: git-ignored ones are shown by no diff. */
export function hookDirectories(gitDirectory: string): string[] {
  let text: string;
  try {
    text = readFileSync(join(gitDirectory, "config"), "utf8").slice(0, MAX_CONFIG_CHARS);
  } catch {
    return [];
  }
  return [...text.matchAll(HOOKS_PATH)].map(([, , path = ""]) => resolve(dirname(gitDirectory), path.trim()));
}

/** A hooks directory, named by a repository around the path, that the path lies in. */
function hooksAround(real: string): string | undefined {
  for (let at = dirname(real); ; at = dirname(at)) {
    const found = hookDirectories(join(at, ".git")).find((hooks) => isWithin(real, hooks));
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
    hooksAround(real);
  if (name === undefined) return undefined;
  const reason = `${field} ${quote(path)} leads into ${quote(name)}: what is written there, the tools of the repository's owner would run`;
  return denial("POLICY_DENY", "writeRules.repositoryInternals", reason, {
    field,
    suggestions: ["write beside it", "ask the operator to set repositoryInternals: true for this write zone"],
  });
}
