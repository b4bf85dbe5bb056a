// The keys that a gateway signs delegations with, kept in its working folder.

import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import {
  type DelegationKeys,
  exportDelegationKeys,
  generateDelegationKeys,
  importDelegationKeys,
} from "../../policy/index.js";
import { CliError } from "../../lib/exit.js";

const fileIn = (dir: string): string => join(resolve(dir), "delegation.keys");

/** Made on first use. Whoever can read this file can mint any delegation, so nobody else may. */
export function ensureDelegationKeys(dir: string): DelegationKeys {
  const file = fileIn(dir);
  if (existsSync(file)) return delegationKeys(dir);
  mkdirSync(resolve(dir), { recursive: true, mode: 0o700 });
  const keys = generateDelegationKeys();
  writeFileSync(file, exportDelegationKeys(keys), { mode: 0o600, flag: "wx" });
  return keys;
}

/** Every token that was minted before is refused by gateways that start from now on. */
export function rotateDelegationKeys(dir: string): DelegationKeys {
  const file = fileIn(dir);
  const keys = generateDelegationKeys();
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
    const help = "`portcullis serve --workflow FILE` makes them in its working folder; name that folder with --dir";
    throw new CliError(`cannot use the delegation keys in ${file}: ${(error as Error).message}`, undefined, help);
  }
}
