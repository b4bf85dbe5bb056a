// The index of a git repository, as far as it names submodules. Git looks into each of them whenever it is asked for the
// status, and runs what the settings there name; one that was never checked out is an empty directory.

import { lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Millions of files. */
const MAX_INDEX_BYTES = 256 * 1024 * 1024;
/** Indexes whose submodules are kept in memory; one is read again when it changes. */
const MAX_KEPT = 512;

const HEADER_BYTES = 12;
const MODE_AT = 24;
const HASH_AT = 40;
const SHA1_BYTES = 20;
const SHA256_BYTES = 32;
const TYPE = 0o170_000;
const SUBMODULE = 0o160_000;
const IS_EXTENDED = 0x4000;
const NAME_LENGTH = 0xfff;

interface Kept {
  readonly version: string;
  readonly submodules: readonly string[] | undefined;
}

const kept = new Map<string, Kept>();

/** Paths of submodules relative to the work tree; undefined when an index cannot be read. `directory` holds the index. */
export function submodulesIn(directory: string, isSha256: boolean): readonly string[] | undefined {
  const all: string[] = [];
  for (const name of indexesIn(directory)) {
    const submodules = submodulesOf(join(directory, name), isSha256 ? SHA256_BYTES : SHA1_BYTES);
    if (submodules === undefined) return undefined;
    all.push(...submodules);
  }
  return all;
}

/** A split index has most of its entries in other files. */
function indexesIn(directory: string): string[] {
  try {
    return readdirSync(directory).filter((name) => name === "index" || name.startsWith("sharedindex."));
  } catch {
    return [];
  }
}

function submodulesOf(path: string, hashBytes: number): readonly string[] | undefined {
  const stats = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  if (stats === undefined) return [];
  if (!stats.isFile() || stats.size > MAX_INDEX_BYTES) return undefined;
  const version = [stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs, hashBytes].join();
  const known = kept.get(path);
  if (known?.version === version) return known.submodules;
  const submodules = read(path, hashBytes);
  kept.delete(path);
  kept.set(path, { version, submodules });
  for (const oldest of kept.keys()) {
    if (kept.size <= MAX_KEPT) break;
    kept.delete(oldest);
  }
  return submodules;
}

function read(path: string, hashBytes: number): string[] | undefined {
  try {
    return readSubmodules(readFileSync(path), hashBytes);
  } catch {
    return undefined;
  }
}

/** Throws a RangeError where it is cut short. */
export function readSubmodules(index: Buffer, hashBytes: number = SHA1_BYTES): string[] | undefined {
  const version = index.readUInt32BE(4);
  if (index.toString("latin1", 0, 4) !== "DIRC" || version < 2 || version > 4) return undefined;
  const submodules: string[] = [];
  let name: Buffer = Buffer.alloc(0);
  let at = HEADER_BYTES;
  for (let left = index.readUInt32BE(8); left > 0; left--) {
    const flagsAt = at + HASH_AT + hashBytes;
    const flags = index.readUInt16BE(flagsAt);
    const nameAt = flagsAt + (flags & IS_EXTENDED && version > 2 ? 4 : 2);
    const isSubmodule = (index.readUInt32BE(at + MODE_AT) & TYPE) === SUBMODULE;
    if (version === 4) {
      const [removed, restAt] = removedBytes(index, nameAt);
      const end = endOf(index, restAt);
      name = Buffer.concat([name.subarray(0, name.length - removed), index.subarray(restAt, end)]);
      at = end + 1;
    } else {
      const length = flags & NAME_LENGTH;
      const end = length < NAME_LENGTH ? nameAt + length : endOf(index, nameAt);
      if (isSubmodule) name = index.subarray(nameAt, end);
      // Padded with 1 to 8 null characters.
      at += (end - at + 8) & ~7;
    }
    if (isSubmodule) submodules.push(name.toString("utf8"));
  }
  return submodules;
}

function endOf(index: Buffer, at: number): number {
  const end = index.indexOf(0, at);
  if (end < 0) throw new RangeError("a name does not end");
  return end;
}

/** How many bytes of the name before are not part of this one, and where the rest of this one is. */
function removedBytes(index: Buffer, at: number): [removed: number, restAt: number] {
  let byte = index.readUInt8(at++);
  let value = byte & 0x7f;
  while (byte & 0x80) {
    byte = index.readUInt8(at++);
    value = (value + 1) * 128 + (byte & 0x7f);
  }
  return [value, at];
}
