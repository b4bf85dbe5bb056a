// Landlock: the kernel itself refuses whatever files are not in the list, for this thread and all its children, without
// any privilege (Linux 5.13 and later; see landlock(7)).

import { closeSync, fstatSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { isWithin } from "../../paths/mounts.js";
import { native, OPEN_FLAGS, RESOLVE } from "../../paths/native.js";
import type { Kernel } from "./syscalls.js";

const EXECUTE = 1 << 0;
const WRITE_FILE = 1 << 1;
const READ_FILE = 1 << 2;
const READ_DIR = 1 << 3;
/** remove_dir … make_sym */
const CHANGE_DIR = 0x1ff0;
const REFER = 1 << 13;
const TRUNCATE = 1 << 14;
const IOCTL_DEV = 1 << 15;
/** What the kernel accepts on a file that is not a directory. */
const ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const READ = READ_FILE | READ_DIR;
const CHANGE = WRITE_FILE | TRUNCATE | CHANGE_DIR | REFER;

export interface FileRules {
  readonly read: readonly string[];
  readonly execute: readonly string[];
  readonly write: readonly string[];
  /** Writable too, and named without links: what became a link since is not opened. */
  readonly writeUnlinked: readonly string[];
  /** Names may be listed, here and below; nothing else. */
  readonly list?: readonly string[];
}

/** Everything each version can handle is handled, so what has no rule is refused. */
function handledFiles(version: number): number {
  let rights = 0x1fff;
  if (version >= 2) rights |= REFER;
  if (version >= 3) rights |= TRUNCATE;
  if (version >= 5) rights |= IOCTL_DEV;
  return rights;
}

/** INVARIANT: no_new_privs is set. Gives the version in force, or why there is none. */
export function restrictFiles(calls: Kernel, rules: FileRules, network: boolean): number | string {
  const version = calls.landlockVersion();
  if (version < 1) return "the kernel has no Landlock";
  const handled = handledFiles(version);
  const attributes = Buffer.alloc(version >= SCOPES ? 24 : version >= 4 ? 16 : 8);
  attributes.writeBigUInt64LE(BigInt(handled), 0);
  // Binding and connecting by TCP; signals and abstract sockets to processes outside.
  if (version >= 4 && !network) attributes.writeBigUInt64LE(3n, 8);
  if (version >= SCOPES) attributes.writeBigUInt64LE(3n, 16);
  const ruleset = calls.landlockCreate(attributes);
  if (ruleset < 0) return "the kernel refused a Landlock ruleset";
  try {
    const add = (path: string, rights: number, open = openName): void =>
      addRule(calls, ruleset, open(path), path, rights & handled);
    for (const path of rules.read) add(path, READ);
    for (const path of rules.execute) add(path, READ | EXECUTE);
    for (const path of rules.write) add(path, READ | CHANGE);
    for (const path of rules.writeUnlinked) add(path, READ | CHANGE, openUnlinked);
    for (const path of rules.list ?? []) add(path, READ_DIR);
    return calls.landlockRestrict(ruleset) === 0 ? version : "the kernel refused to apply Landlock";
  } finally {
    closeSync(ruleset);
  }
}

/** Landlock's version with `scoped`: signals and sockets with abstract names stay inside. */
export const SCOPES = 6;
const SCOPED_ABSTRACT_SOCKETS = 1n;

/**
 * `restrictAbstractSockets` closes sockets with abstract names of processes outside: mount namespaces hide only those with
 * a path. INVARIANT: no_new_privs is set. Returns whether it is in force.
 */
export function restrictAbstractSockets(calls: Kernel): boolean {
  if (calls.landlockVersion() < SCOPES) return false;
  const attributes = Buffer.alloc(24);
  attributes.writeBigUInt64LE(SCOPED_ABSTRACT_SOCKETS, 16);
  const ruleset = calls.landlockCreate(attributes);
  if (ruleset < 0) return false;
  try {
    return calls.landlockRestrict(ruleset) === 0;
  } finally {
    closeSync(ruleset);
  }
}

/** A path that is not there, or not for us to see, needs no rule: it stays closed. */
function openName(path: string): number {
  try {
    return openSync(path, OPEN_FLAGS.NAME_ONLY);
  } catch {
    return -1;
  }
}

function openUnlinked(path: string): number {
  return native()?.openat2(undefined, path, OPEN_FLAGS.NAME_ONLY, RESOLVE.NO_LINKS) ?? -1;
}

function addRule(calls: Kernel, ruleset: number, fd: number, path: string, rights: number): void {
  if (fd < 0) return;
  try {
    const rule = Buffer.alloc(12);
    rule.writeBigUInt64LE(BigInt(fstatSync(fd).isDirectory() ? rights : rights & ON_FILES), 0);
    rule.writeInt32LE(fd, 8);
    const added = calls.landlockAddPath(ruleset, rule);
    if (added < 0) throw new Error(`Landlock rule for ${path} was refused (errno ${-added})`);
  } finally {
    closeSync(fd);
  }
}

// Everything but a few paths, as a list for Landlock, which knows only what is allowed: each entry of the directories that
// lead to a closed path gets its own rule. What is made there later has none, and stays closed.

/** Entries of one directory that get a rule. */
const MAX_ENTRIES = 4096;

/** `rulesAround` opens everything outside `closed`; of what is opened, `readOnly` cannot be changed. */
export function rulesAround(closed: readonly string[], readOnly: readonly string[], own: readonly string[]): FileRules {
  const rules = {
    read: [] as string[],
    execute: [] as string[],
    write: [] as string[],
    writeUnlinked: [],
    list: [] as string[],
  };
  const isReadOnly = (path: string): boolean => readOnly.some((place) => isWithin(path, place));
  const open = (path: string): void => {
    rules.execute.push(path);
    if (!isReadOnly(path)) rules.write.push(path);
  };
  /** A rule holds for everything below, so a directory with a closed or read-only path in it has none of its own. */
  const leadsTo = (path: string): boolean =>
    closed.some((place) => isWithin(place, path)) ||
    (!isReadOnly(path) && readOnly.some((place) => isWithin(place, path)));
  const visit = (directory: string): void => {
    rules.list.push(directory);
    for (const name of entriesOf(directory)) {
      const path = join(directory, name);
      if (closed.includes(path)) continue;
      if (leadsTo(path)) visit(path);
      else open(path);
    }
  };
  visit("/");
  for (const path of own) open(path);
  return rules;
}

/** INVARIANT: no symbolic link, whose rule would open what it leads to. That has a rule of its own, or is closed. */
function entriesOf(directory: string): string[] {
  try {
    const entries = readdirSync(directory, { withFileTypes: true }).filter((entry) => !entry.isSymbolicLink());
    return entries.slice(0, MAX_ENTRIES).map(({ name }) => name);
  } catch {
    return []; // Closed to this user, and so to the server.
  }
}
