// Operations on directories, for those who offer more than the host's three tools. Each is prepared with everything it
// needs held open: deciding prepares and lets go, executing prepares again and runs, so that what was checked is used.

import {
  type BigIntStats,
  closeSync,
  type Dir,
  fchownSync,
  fstatSync,
  lstatSync,
  mkdirSync,
  opendirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from "node:fs";
import { type Denial, denial, isDenial, pathDenial } from "../denial.js";
import { type LocatedPath, locate } from "../paths/locate.js";
import { isWithin } from "../paths/mounts.js";
import { descriptorName, O_NOFOLLOW, OPEN_FLAGS } from "../paths/native.js";
import { ioDenial } from "../paths/read.js";
import { findRepositories, looksLikeGitDirectory } from "../paths/repositories.js";
import type { Policy } from "../policy/policy.js";
import { internalDenial } from "../tools/outcome.js";
import {
  checkFree,
  checkNotNamed,
  type DirEntryRef,
  entryPath,
  findEntry,
  givenPath,
  renameIfFree,
} from "./entry-ref.js";

interface Prepared<R> {
  /** What allows it, for the record. */
  readonly rule: string;
  run(): R | Denial;
  close(): void;
}

export type DirectoryDecision =
  | { readonly effect: "permit"; readonly rule: string }
  | { readonly effect: "deny"; readonly denial: Denial };

export type Prepare<A, R> = (policy: Policy, args: A) => Prepared<R> | Denial;

export function decideBy<A, R>(prepare: Prepare<A, R>, policy: Policy, args: A): DirectoryDecision {
  const result = withPrepared(prepare, policy, args, ({ rule }) => rule);
  return typeof result === "string" ? { effect: "permit", rule: result } : { effect: "deny", denial: result };
}

export function executeBy<A, R>(prepare: Prepare<A, R>, policy: Policy, args: A): R | Denial {
  return withPrepared(prepare, policy, args, (prepared) => prepared.run());
}

function withPrepared<A, R, T>(
  prepare: Prepare<A, R>,
  policy: Policy,
  args: A,
  use: (prepared: Prepared<R>) => T | Denial,
): T | Denial {
  if (process.platform !== "linux") {
    return denial("POLICY_DENY", "platform", "directories can be listed and changed on Linux only", {
      suggestions: ["use readFile and writeFile, which work everywhere"],
    });
  }
  try {
    const prepared = prepare(policy, args);
    if (isDenial(prepared)) return prepared;
    try {
      return use(prepared);
    } finally {
      prepared.close();
    }
  } catch (error) {
    return internalDenial(error);
  }
}

export interface EntryStats {
  readonly type: "file" | "folder" | "link" | "other";
  /** Bytes; of files only. */
  readonly size?: number;
  readonly modifiedAt: string;
}

interface Listing {
  readonly entries: readonly (EntryStats & { readonly name: string })[];
  /** There are more entries: list again, after the last name. */
  readonly truncated: boolean;
}

export interface ListArguments {
  readonly path: string;
  readonly limit?: number | undefined;
  /** Only names behind this one. */
  readonly after?: string | undefined;
}

/** A directory with more entries than this cannot be listed in order, and is not listed at all. */
const MAX_ENTRIES = 100_000;
const DEFAULT_LIMIT = 1_000;

export const prepareStat: Prepare<{ path: string }, EntryStats> = (policy, { path }) =>
  withReadable(policy, path, (fd) => () => statsOf(fstatSync(fd, { bigint: true })));

export const prepareList: Prepare<ListArguments, Listing> = (policy, args) =>
  withReadable(policy, args.path, (fd) =>
    fstatSync(fd).isDirectory() ? () => list(descriptorName(fd), args) : pathDenial("notADirectory", "path", args.path),
  );

function withReadable<R>(
  policy: Policy,
  text: string,
  plan: (fd: number) => (() => R | Denial) | Denial,
): Prepared<R> | Denial {
  const path = givenPath(policy, text, "path");
  if (typeof path !== "string") return path;
  const found: LocatedPath | Denial = locate(path, policy.readableRoots, policy, "path");
  if (isDenial(found)) return found;
  return planned("allowedRoots", plan(found.fd), () => closeSync(found.fd));
}

/** Closes at once when there is nothing to run. */
function planned<R>(rule: string, run: (() => R | Denial) | Denial, close: () => void): Prepared<R> | Denial {
  if (typeof run === "function") return { rule, run, close };
  close();
  return run;
}

function list(directory: string, { path, limit = DEFAULT_LIMIT, after }: ListArguments): Listing | Denial {
  let dir: Dir | undefined;
  const names: string[] = [];
  try {
    dir = opendirSync(directory, { bufferSize: 256 });
    for (let entry = dir.readSync(); entry !== null; entry = dir.readSync()) {
      if (names.length === MAX_ENTRIES) return pathDenial("tooManyEntries", "path", path, MAX_ENTRIES);
      names.push(entry.name);
    }
  } catch (error) {
    return ioDenial(error, path, "path");
  } finally {
    dir?.closeSync();
  }
  const wanted = names.sort(byCode).filter((name) => after === undefined || byCode(name, after) > 0);
  const entries = wanted.slice(0, limit).flatMap((name) => {
    const stats = lstatSync(`${directory}/${name}`, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? [] : [{ name, ...statsOf(stats) }];
  });
  return { entries, truncated: wanted.length > limit };
}

/** The same order on every machine. */
function byCode(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function statsOf(stats: BigIntStats): EntryStats {
  const modifiedAt = stats.mtime.toISOString();
  if (stats.isFile()) return { type: "file", size: Number(stats.size), modifiedAt };
  return { type: stats.isDirectory() ? "folder" : stats.isSymbolicLink() ? "link" : "other", modifiedAt };
}

const NEW_DIRECTORY_MODE = 0o700;

type Done = Record<string, never>;

export const prepareMakeDirectory: Prepare<{ path: string }, { created: boolean }> = (policy, { path }) =>
  withEntry(policy, path, "path", (entry) => {
    if (entry.stats?.isDirectory() === true) return () => ({ created: false });
    if (entry.stats !== undefined) return pathDenial("exists", "path", path);
    // Nothing could be put into a directory in a root that is not recursive.
    const isFlat = !entry.writableRoot.recursive;
    const refused = checkFree(entry, path, "path") ?? (isFlat ? pathDenial("notRecursive", "path", path) : undefined);
    return refused ?? (() => makeDirectory(entry));
  });

function makeDirectory(entry: DirEntryRef): { created: boolean } {
  mkdirSync(entryPath(entry), NEW_DIRECTORY_MODE);
  // Run by root, a new directory belongs to the owner of the one above, who could not use it otherwise.
  const owner = fstatSync(entry.directory);
  if (process.getuid?.() === 0 && owner.uid !== 0) {
    const made = openSync(entryPath(entry), OPEN_FLAGS.DIRECTORY_READ | O_NOFOLLOW);
    try {
      fchownSync(made, owner.uid, owner.gid);
    } finally {
      closeSync(made);
    }
  }
  return { created: true };
}

/** A link is deleted itself, never what it leads to. */
export const prepareDeleteFile: Prepare<{ path: string }, Done> = (policy, { path }) =>
  withEntry(policy, path, "path", (entry) => {
    if (entry.stats === undefined) return pathDenial("absent", "path", path);
    if (!entry.stats.isFile() && !entry.stats.isSymbolicLink()) return pathDenial("notPlain", "path", path);
    return () => {
      unlinkSync(entryPath(entry));
      return {};
    };
  });

/** Empty ones only: one call never removes a whole tree. */
export const prepareDeleteDirectory: Prepare<{ path: string }, Done> = (policy, { path }) =>
  withEntry(policy, path, "path", (entry) => {
    if (entry.stats === undefined) return pathDenial("absent", "path", path);
    if (!entry.stats.isDirectory()) return pathDenial("notADirectory", "path", path);
    const remove = (): Done => {
      rmdirSync(entryPath(entry));
      return {};
    };
    return checkNotNamed(policy, entry, path, "path") ?? remove;
  });

export interface MoveArguments {
  readonly from: string;
  readonly to: string;
  readonly overwrite?: boolean | undefined;
}

export const prepareMove: Prepare<MoveArguments, { replaced: boolean }> = (policy, args) => {
  const source = findEntry(policy, args.from, "from");
  if (isDenial(source)) return source;
  const target = findEntry(policy, args.to, "to");
  if (isDenial(target)) {
    closeSync(source.directory);
    return target;
  }
  const run = () => attempt(args.from, "from", () => move(source, target, args));
  return planned(`writeRules ${target.writableRoot.written}`, checkMove(policy, source, target, args) ?? run, () =>
    [source, target].forEach(({ directory }) => closeSync(directory)),
  );
};

function checkMove(policy: Policy, source: DirEntryRef, target: DirEntryRef, args: MoveArguments): Denial | undefined {
  const { stats } = source;
  if (stats === undefined) return pathDenial("absent", "from", args.from);
  if (!stats.isFile() && !stats.isDirectory()) return pathDenial("notPlain", "from", args.from);
  const isReadable = (path: string): boolean => policy.readableRoots.some((root) => isWithin(path, root.path));
  if (isReadable(target.path) && !isReadable(source.path))
    return pathDenial("writableOnly", "from", args.from, args.to);
  const { maxFileBytes } = target.writableRoot;
  if (stats.isFile() && Number(stats.size) > maxFileBytes) {
    const reason = `the file has ${stats.size} bytes; the writable root of to takes ${maxFileBytes}`;
    return denial("POLICY_DENY", "maxFileBytes", reason, { field: "to" });
  }
  const refused = stats.isDirectory() ? checkDirectoryMove(policy, source, target, args) : undefined;
  if (refused !== undefined) return refused;
  if (target.stats === undefined) return checkFree(target, args.to, "to");
  const isReplaceable = args.overwrite === true && stats.isFile() && target.stats.isFile();
  return isReplaceable ? undefined : pathDenial("exists", "to", args.to);
}

function checkDirectoryMove(
  policy: Policy,
  source: DirEntryRef,
  target: DirEntryRef,
  { from }: MoveArguments,
): Denial | undefined {
  const refused = checkNotNamed(policy, source, from, "from");
  if (refused !== undefined) return refused;
  // Files keep to the rules of the writable root they are in only while they stay in it.
  const staysInside = source.writableRoot === target.writableRoot && target.writableRoot.recursive;
  if (!staysInside) return { ...pathDenial("leavesRoot", "from", from), field: "to" };
  // Another directory could take its name then, and with it hooks that the owner's git runs.
  const { writableRoot, path } = source;
  if (writableRoot.repositoryInternals) return undefined;
  const found = looksLikeGitDirectory(path) ? ({ kind: "found", paths: [path] } as const) : findRepositories(path);
  if (found.kind === "found" && found.paths.length === 0) return undefined;
  return pathDenial("holdsRepository", "from", from, found.kind === "found" ? "a repository lies in it" : found.why);
}

function move(source: DirEntryRef, target: DirEntryRef, { from, to }: MoveArguments): { replaced: boolean } | Denial {
  if (target.stats !== undefined) {
    renameSync(entryPath(source), entryPath(target));
    return { replaced: true };
  }
  const failed = renameIfFree(source, target);
  if (failed === undefined) return { replaced: false };
  const isTaken = failed === "EEXIST" || failed === "ENOTEMPTY";
  return isTaken ? pathDenial("exists", "to", to) : pathDenial("io", "from", from, failed);
}

function withEntry<R>(
  policy: Policy,
  path: string,
  field: string,
  plan: (entry: DirEntryRef) => (() => R | Denial) | Denial,
): Prepared<R> | Denial {
  const entry = findEntry(policy, path, field);
  if (isDenial(entry)) return entry;
  const run = plan(entry);
  return planned(
    `writeRules ${entry.writableRoot.written}`,
    typeof run === "function" ? () => attempt(path, field, run) : run,
    () => closeSync(entry.directory),
  );
}

const CHANGE_ERRORS = { EEXIST: "exists", ENOENT: "absent", ENOTEMPTY: "notEmpty" } as const;

function attempt<R>(path: string, field: string, act: () => R | Denial): R | Denial {
  try {
    return act();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    if (!Object.hasOwn(CHANGE_ERRORS, code)) return ioDenial(error, path, field);
    return pathDenial(CHANGE_ERRORS[code as keyof typeof CHANGE_ERRORS], field, path);
  }
}
