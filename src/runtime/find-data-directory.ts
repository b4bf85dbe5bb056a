// Which data directory a command uses when none is named, and which others this user has.

import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { dirname, join, resolve, sep } from "node:path";
import { CliError, EXIT } from "../lib/exit.js";
import { hostPaths } from "./host/config/paths.js";

export const PROJECT_DIRECTORY = ".portcullis";

/** The user's own: `$XDG_STATE_HOME/portcullis` or `~/.local/state/portcullis`, and the equivalents of other platforms. */
export function userDataDirectory(
  platform: NodeJS.Platform = process.platform,
  env: Readonly<Record<string, string | undefined>> = process.env,
  home: string = homedir(),
): string {
  return dirname(hostPaths(platform, env, home).state);
}

/** The `.portcullis` of the nearest project, from `cwd` upward; otherwise the user's own. Neither has to exist. */
export function findDataDirectory(cwd: string = process.cwd()): string {
  let directory = resolve(cwd);
  for (;;) {
    const candidate = join(directory, PROJECT_DIRECTORY);
    const facts = statSync(candidate, { throwIfNoEntry: false });
    if (facts?.isDirectory()) return ownDirectory(candidate, facts.uid);
    const parent = dirname(directory);
    if (parent === directory) return userDataDirectory();
    directory = parent;
  }
}

/** The policies and servers of a directory are executed, so one of another user counts only when it is named. */
function ownDirectory(directory: string, uid: number): string {
  const user = process.getuid?.();
  if (user === undefined || uid === user) return directory;
  throw new CliError(
    `the data directory ${directory} belongs to another user (uid ${uid})`,
    EXIT.error,
    `name a data directory with --dir or PORTCULLIS_DIR; yours is ${userDataDirectory()}`,
  );
}

const LIST = "data-directories.json";
const MAX_LISTED = 32;

/** Adds a data directory to the user's list, so that commands elsewhere can name it. A list that cannot be written is left out. */
export function rememberDataDirectory(directory: string): void {
  const own = userDataDirectory();
  const added = resolve(directory);
  // What is in the directory for temporary files is not looked for later.
  if (added === own || added.startsWith(`${resolve(tmpdir())}${sep}`)) return;
  const before = listed();
  if (before[0] === added) return;
  const list = [added, ...before.filter((each) => each !== added)].slice(0, MAX_LISTED);
  try {
    mkdirSync(own, { recursive: true, mode: 0o700 });
    writeFileSync(join(own, LIST), `${JSON.stringify(list, null, 2)}\n`, { mode: 0o600 });
  } catch {
    // A home directory that is absent or read-only does not stop a gateway.
  }
}

/** Existing data directories of this user other than `directory`, the last used first. */
export function otherDataDirectories(directory: string): string[] {
  const own = userDataDirectory();
  const isThere = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const all = [...listed(), ...(isThere(join(own, "policy")) ? [own] : [])];
  return [...new Set(all)].filter((each) => each !== resolve(directory) && isThere(each));
}

/** For an error about something that is not in `directory`: where else it may be. */
export function otherDirectoriesHelp(directory: string): string {
  const others = otherDataDirectories(directory);
  const choose = "choose another data directory with --dir or PORTCULLIS_DIR";
  return others.length === 0 ? choose : `${choose}; you have:\n${others.map((each) => `  ${each}`).join("\n")}`;
}

function listed(): string[] {
  try {
    const list = JSON.parse(readFileSync(join(userDataDirectory(), LIST), "utf8")) as unknown;
    return Array.isArray(list) ? list.filter((each) => typeof each === "string").slice(0, MAX_LISTED) : [];
  } catch {
    return [];
  }
}
