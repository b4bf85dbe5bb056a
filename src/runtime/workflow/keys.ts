// The keys that a gateway signs delegations with, kept in its data directory.

import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { CliError } from "../../lib/exit.js";
import {
  type DelegationKeys,
  exportDelegationKeys,
  generateDelegationKeys,
  importDelegationKeys,
} from "../../policy/index.js";

const fileIn = (dir: string): string => join(resolve(dir), "delegation.keys");

/** Created on first use, readable by its owner only: this file mints any delegation. */
export function ensureDelegationKeys(dir: string): DelegationKeys {
  const file = fileIn(dir);
  if (existsSync(file)) return delegationKeys(dir);
  mkdirSync(resolve(dir), { recursive: true, mode: 0o700 });
  const keys = generateDelegationKeys();
  writeFileSync(file, exportDelegationKeys(keys), { mode: 0o600, flag: "wx" });
  return keys;
}

/** Tokens hold for an hour unless their minter says otherwise. */
export const DELEGATION_KEY_OVERLAP_MS = 3_600_000;
const MAX_OLDER = 10;
const LOOK_MS = 100;

/** Reads the keys again when the file has changed. Throws when it cannot be read: then no token is accepted. */
export function watchDelegationKeys(dir: string): () => DelegationKeys {
  let keys = ensureDelegationKeys(dir);
  const stateOf = (): string => {
    const facts = statSync(fileIn(dir), { throwIfNoEntry: false });
    return `${facts?.ino} ${facts?.mtimeMs} ${facts?.size}`;
  };
  let state = "";
  let lookedAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (now - lookedAt < LOOK_MS) return keys;
    const found = stateOf();
    if (found !== state) keys = delegationKeys(dir);
    state = found;
    lookedAt = now;
    return keys;
  };
}

/** Running gateways use the new keys at once. Tokens of the old ones are refused after this time. */
export function rotateDelegationKeys(dir: string, overlapMs: number): DelegationKeys {
  const file = fileIn(dir);
  const now = Date.now();
  const { older = [], ...before } = existsSync(file) && overlapMs > 0 ? delegationKeys(dir) : {};
  const replaced = "gateway" in before ? [{ ...before, until: now + overlapMs }] : [];
  const accepted = [...replaced, ...older.filter(({ until }) => now < until)].slice(0, MAX_OLDER);
  const keys = { ...generateDelegationKeys(), older: accepted };
  const next = `${file}.${process.pid}`;
  mkdirSync(resolve(dir), { recursive: true, mode: 0o700 });
  writeFileSync(next, exportDelegationKeys(keys), { mode: 0o600, flag: "wx", flush: true });
  renameSync(next, file);
  return keys;
}

export function delegationKeys(dir: string): DelegationKeys {
  const file = fileIn(dir);
  try {
    return importDelegationKeys(readFileSync(file, "utf8"));
  } catch (error) {
    const help = "`portcullis serve --workflow FILE` makes them in its data directory; name that directory with --dir";
    throw new CliError(`cannot use the delegation keys in ${file}: ${(error as Error).message}`, undefined, help);
  }
}
