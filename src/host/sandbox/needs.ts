// What a script needs beside itself. A sandbox shows a program, not the folder it came with: without its interpreter or
// its package a script fails with words that say nothing about the sandbox, so this is looked at before it starts.

import { accessSync, closeSync, constants, existsSync, openSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Executable } from "../policy/index.js";

/** As far as the kernel itself reads. */
const MAX_FIRST_LINE_BYTES = 256;
/** Folders above a program that are looked at for its package. */
const MAX_LEVELS = 8;

/** Paths outside the program that it cannot start without; a bare name is one that was found nowhere. */
export function needsOf(executable: Executable, searched: readonly string[]): string[] {
  const words = firstWords(executable.real);
  const interpreter = interpreterOf(words, searched);
  if (interpreter === undefined) return [];
  const isNode = /^(node|nodejs)$/.test(basename(interpreter));
  const home = isNode ? packageOf(executable.real) : undefined;
  // A folder may be there and empty; this file of it is not.
  return [interpreter, ...(home === undefined ? [] : [join(home, "package.json")])];
}

function firstWords(file: string): string[] {
  try {
    const fd = openSync(file, "r");
    try {
      const bytes = Buffer.alloc(MAX_FIRST_LINE_BYTES);
      const text = bytes.toString("latin1", 0, readSync(fd, bytes));
      const line = /^#!([^\n]*)/.exec(text)?.[1];
      return line === undefined ? [] : line.trim().split(/\s+/);
    } finally {
      closeSync(fd);
    }
  } catch {
    return []; // Not ours to read: whether it can be started is seen when it is.
  }
}

function interpreterOf([program, ...rest]: readonly string[], searched: readonly string[]): string | undefined {
  if (program === undefined || program === "") return undefined;
  if (basename(program) !== "env") return program;
  const name = rest.find((word) => !word.startsWith("-") && !word.includes("="));
  if (name === undefined || name.includes("/")) return name;
  return searched.map((folder) => join(folder, name)).find(isProgram) ?? name;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function packageOf(file: string): string | undefined {
  let folder = dirname(file);
  for (let level = 0; level < MAX_LEVELS && folder !== dirname(folder); level++, folder = dirname(folder)) {
    if (existsSync(join(folder, "package.json"))) return folder;
  }
  return undefined;
}
