// Opening for reading: first only the name, then a check of what it names, then that very file through the descriptor.

import { type BigIntStats, closeSync, fstatSync, openSync, read } from "node:fs";
import { promisify } from "node:util";
import { type Denial, pathDenial } from "../denial.js";
import { type LocatedPlace, locate, type PathRules } from "./locate.js";
import { descriptorName, OPEN_FLAGS } from "./native.js";
import { openForReadPortable } from "./portable.js";

export interface ReadRules extends PathRules {
  readonly hardLinks: "allow" | "deny";
}

export interface OpenFile {
  readonly fd: number;
  readonly path: string;
  readonly size: number;
}

export function openForRead(
  path: string,
  roots: readonly LocatedPlace[],
  rules: ReadRules,
  field: string,
): OpenFile | Denial {
  if (process.platform !== "linux") return openForReadPortable(path, roots, rules, field);
  const located = locate(path, roots, rules, field);
  if (!("fd" in located)) return located;
  try {
    const refused = checkFile(fstatSync(located.fd, { bigint: true }), rules, path, field);
    if (refused !== undefined) return refused;
    const fd = openSync(descriptorName(located.fd), OPEN_FLAGS.READ);
    return { fd, path: located.path, size: Number(fstatSync(fd).size) };
  } catch (error) {
    return ioDenial(error, path, field);
  } finally {
    closeSync(located.fd);
  }
}

export function checkFile(stats: BigIntStats, rules: ReadRules, path: string, field: string): Denial | undefined {
  if (stats.isDirectory()) return pathDenial("directory", field, path);
  if (!stats.isFile()) return pathDenial("special", field, path);
  const isLinked = rules.hardLinks === "deny" && stats.nlink > 1n;
  return isLinked ? pathDenial("hardLink", field, path, stats.nlink) : undefined;
}

/** System errors become denials without the path the system saw. */
export function ioDenial(error: unknown, path: string, field: string): Denial {
  return pathDenial("io", field, path, (error as NodeJS.ErrnoException).code ?? "unknown error");
}

const readAsync = promisify(read);

/** At most `length` bytes from `offset`; fewer only at the end of the file. */
export async function readBytes(fd: number, offset: number, length: number, signal?: AbortSignal): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length);
  let filled = 0;
  while (filled < length) {
    signal?.throwIfAborted();
    const { bytesRead } = await readAsync(fd, buffer, filled, length - filled, offset + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}
