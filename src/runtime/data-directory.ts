// The data directory: policy, ledger and the operator's credential, made on the first run.

import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { homedir, hostname, tmpdir } from "node:os";
import { dirname, join, resolve, sep } from "node:path";
import { CliError, EXIT } from "../lib/exit.js";
import { hostPaths } from "./host/config/paths.js";
import { COMMON_STARTER, type StarterPolicy, updateStarter } from "./starters.js";

export interface State {
  readonly dir: string;
  readonly policyDir: string;
  readonly ledgerDir: string;
  readonly operatorToken: string;
  readonly isNew: boolean;
}

export const STORE_FILE = "portcullis.db";
/** A caller whose call needs the store learns within two seconds that it does not answer. */
export const STORE_WAIT_MS = 1_500;
/** No caller waits while a gateway starts, and the store may be starting as well. */
export const STORE_START_WAIT_MS = 10_000;

export function statePaths(dir: string): Omit<State, "isNew"> {
  const root = resolve(dir);
  return {
    dir: root,
    policyDir: join(root, "policy"),
    ledgerDir: join(root, "ledger"),
    operatorToken: join(root, "operator.token"),
  };
}

/** Makes what is not there; what is there is left as it is, apart from a starter policy that no one changed. */
export function ensureState(dir: string, starter: StarterPolicy = COMMON_STARTER): State {
  const paths = statePaths(dir);
  try {
    return { ...paths, isNew: make(paths, starter) };
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    throw new CliError(
      `cannot create or write the data directory ${paths.dir}: ${WHY[code] ?? message}`,
      EXIT.error,
      "choose another with --dir or PORTCULLIS_DIR, or make this one writable for the user who starts Portcullis",
    );
  }
}

const WHY: Readonly<Record<string, string>> = {
  EROFS: "the disk is read-only",
  // What a recursive mkdir answers on a read-only disk.
  ENOENT: "its parent is not there, or the disk is read-only",
  EACCES: "permission is denied",
  EPERM: "permission is denied",
  ENOSPC: "the disk is full",
  ENOTDIR: "a part of its path is a file",
};

/** One after the other: where the system makes no directories at all, a recursive mkdir never comes back. */
function makeDirectories(path: string): void {
  if (existsSync(path)) return;
  makeDirectories(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

/** True when there was none before. */
function make(paths: Omit<State, "isNew">, starter: StarterPolicy): boolean {
  const isNew = !existsSync(paths.policyDir);
  makeDirectories(paths.dir);
  if (isNew) {
    mkdirSync(paths.policyDir, { mode: 0o700 });
    writeFileSync(join(paths.policyDir, starter.name), starter.text, { mode: 0o600, flag: "wx" });
  } else updateStarter(paths.policyDir, starter);
  return isNew;
}

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

/** Adds a data directory to the user's list, for commands in other directories. Ignores a list that cannot be written. */
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

const NAME = /^[A-Za-z0-9._-]{1,200}$/;

/** `isAmongOthers`: the store is shared, so a name that others choose too will not do. */
export function replicaName(stateDir: string, isAmongOthers: boolean): string {
  const file = join(stateDir, "replica");
  const known = existsSync(file) ? readFileSync(file, "utf8").trim() : "";
  if (NAME.test(known)) return known;
  const isFirst = !existsSync(join(stateDir, "ledger"));
  const host = hostname().replace(/[^A-Za-z0-9.-]+/g, "-");
  const name = isAmongOthers && isFirst ? `${host}-${randomBytes(4).toString("hex")}` : "gateway";
  writeFileSync(file, `${name}\n`, { mode: 0o600 });
  return name;
}
