// Opening for reading: first only the name, then a look at what it names, then that very file through the descriptor.

import { type BigIntStats, closeSync, fstatSync, openSync, read } from "node:fs";
import { promisify } from "node:util";
import { type Denial, denial, quoteValue } from "../denial.js";
import { READ } from "./flags.js";
import { type JailRules, type LocatedPath, locate, type LocatedPlace } from "./locate.js";
import { openForReadPortable } from "./portable.js";

export interface ReadRules extends JailRules {
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
    return checkFile(fstatSync(located.fd, { bigint: true }), rules, path, field) ?? reopen(located, path, field);
  } finally {
    closeSync(located.fd);
  }
}

function reopen(located: LocatedPath, path: string, field: string): OpenFile | Denial {
  try {
    const fd = openSync(`/proc/self/fd/${located.fd}`, READ);
    return { fd, path: located.path, size: Number(fstatSync(fd).size) };
  } catch (error) {
    return ioDenial(error, path, field);
  }
}

export function checkFile(stats: BigIntStats, rules: ReadRules, path: string, field: string): Denial | undefined {
  if (stats.isDirectory()) {
    return denial(
      "POLICY_DENY",
      "notAFile",
      `${field} ${quoteValue(path)} is a folder; only regular files can be used`,
      {
        field,
      },
    );
  }
  if (!stats.isFile()) {
    return denial(
      "POLICY_DENY",
      "specialFile",
      `${field} ${quoteValue(path)} is a device, pipe or socket; only regular files can be used`,
      {
        field,
      },
    );
  }
  if (rules.hardLinks === "deny" && stats.nlink > 1n) {
    return denial(
      "POLICY_DENY",
      "hardLink",
      `${field} ${quoteValue(path)} has ${stats.nlink} names and one may lie outside the roots`,
      {
        field,
        suggestions: ["copy the file, or ask the operator to set hardLinks: allow"],
      },
    );
  }
  return undefined;
}

/** System errors become denials without the path the system saw. */
export function ioDenial(error: unknown, path: string, field: string): Denial {
  const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
  return denial("IO_ERROR", "io", `${field} ${quoteValue(path)}: ${code}`, { field });
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
