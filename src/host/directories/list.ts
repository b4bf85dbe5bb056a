// Looking: what is in a folder, what a path is. Through a descriptor of the very folder or file that was checked.

import { type BigIntStats, closeSync, type Dir, fstatSync, lstatSync, opendirSync } from "node:fs";
import { type Denial, denial, isDenial, quoteValue } from "../denial.js";
import { locate } from "../paths/index.js";
import { ioDenial } from "../paths/read.js";
import type { Policy } from "../policy/index.js";
import { preparedPathOf, type PreparedChange } from "./prepared.js";

export interface SeenEntries {
  readonly type: "file" | "folder" | "link" | "other";
  /** Bytes; of files only. */
  readonly size?: number;
  readonly modifiedAt: string;
}

export interface DirectoryEntry extends SeenEntries {
  readonly name: string;
}

export interface Listing {
  readonly entries: readonly DirectoryEntry[];
  /** There are more: ask again, after the last name. */
  readonly truncated: boolean;
}

export interface ListArguments {
  readonly path: string;
  readonly limit?: number | undefined;
  /** Only names behind this one. */
  readonly after?: string | undefined;
}

/** A folder with more entries than this cannot be listed in order, and is not listed at all. */
const MAX_FOLDER_ENTRIES = 100_000;
const DEFAULT_LIMIT = 1_000;

export function prepareStat(policy: Policy, { path }: { path: string }): PreparedChange<SeenEntries> | Denial {
  const found = locateIn(policy, path);
  if (isDenial(found)) return found;
  return {
    rule: "allowedRoots",
    run: () => seen(fstatSync(found.fd, { bigint: true })),
    close: () => closeSync(found.fd),
  };
}

export function prepareList(policy: Policy, args: ListArguments): PreparedChange<Listing> | Denial {
  const found = locateIn(policy, args.path);
  if (isDenial(found)) return found;
  if (!fstatSync(found.fd).isDirectory()) {
    closeSync(found.fd);
    return denial("IO_ERROR", "notAFolder", `path ${quoteValue(args.path)} is not a folder`, { field: "path" });
  }
  return {
    rule: "allowedRoots",
    run: () => list(`/proc/self/fd/${found.fd}`, args),
    close: () => closeSync(found.fd),
  };
}

function locateIn(policy: Policy, text: string) {
  const path = preparedPathOf(policy, text, "path");
  return typeof path === "string" ? locate(path, policy.roots, policy, "path") : path;
}

function list(folder: string, { path, limit = DEFAULT_LIMIT, after }: ListArguments): Listing | Denial {
  let dir: Dir | undefined;
  const names: string[] = [];
  try {
    dir = opendirSync(folder, { bufferSize: 256 });
    for (let entry = dir.readSync(); entry !== null; entry = dir.readSync()) {
      if (names.length === MAX_FOLDER_ENTRIES) return tooMany(path);
      names.push(entry.name);
    }
  } catch (error) {
    return ioDenial(error, path, "path");
  } finally {
    dir?.closeSync();
  }
  const wanted = names.sort(byCode).filter((name) => after === undefined || byCode(name, after) > 0);
  const entries = wanted.slice(0, limit).flatMap((name) => {
    const stats = lstatSync(`${folder}/${name}`, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? [] : [{ name, ...seen(stats) }];
  });
  return { entries, truncated: wanted.length > limit };
}

/** The same order on every machine. */
function byCode(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function tooMany(path: string): Denial {
  const reason = `path ${quoteValue(path)} holds more than ${MAX_FOLDER_ENTRIES} entries`;
  return denial("IO_ERROR", "tooManyEntries", reason, { field: "path" });
}

function seen(stats: BigIntStats): SeenEntries {
  const modifiedAt = stats.mtime.toISOString();
  if (stats.isFile()) return { type: "file", size: Number(stats.size), modifiedAt };
  return { type: stats.isDirectory() ? "folder" : stats.isSymbolicLink() ? "link" : "other", modifiedAt };
}
