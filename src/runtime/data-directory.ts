// The working folder: policy, ledger and the operator's credential, made on the first run.

import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { CliError, EXIT } from "../lib/exit.js";
import type { PolicySet } from "../policy/index.js";
import { COMMON_POLICY } from "./default-policy.js";

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

export interface StarterPolicy {
  readonly name: string;
  readonly text: string;
  /** The same rules, already loaded: while they are the only ones, Cedar is not started. */
  readonly set?: PolicySet;
}

const NOTHING_PERMITTED: StarterPolicy = { name: "common.cedar", text: COMMON_POLICY };

/** Makes what is not there; what is there is left as it is. */
export function ensureState(dir: string, starter: StarterPolicy = NOTHING_PERMITTED): State {
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

/** One after the other: where the system makes no folders at all, a recursive mkdir never comes back. */
function makeFolders(path: string): void {
  if (existsSync(path)) return;
  makeFolders(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

/** True when there was none before. */
function make(paths: Omit<State, "isNew">, { name, text }: StarterPolicy): boolean {
  const isNew = !existsSync(paths.policyDir);
  makeFolders(paths.dir);
  if (isNew) {
    mkdirSync(paths.policyDir, { mode: 0o700 });
    writeFileSync(join(paths.policyDir, name), text, { mode: 0o600, flag: "wx" });
  }
  return isNew;
}
