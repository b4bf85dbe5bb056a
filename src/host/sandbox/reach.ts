// Can a command start where it will run? Asked inside its own confinement, with `true` in its place.

import { accessSync, closeSync, constants, existsSync, openSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { isWithin } from "../paths/mounts.js";
import { type Executable, findExecutable, searchDirectories } from "../policy/executable.js";
import type { Command, Policy } from "../policy/policy.js";
import { missingProtections } from "./confinement.js";
import { confinementOf, environmentOf, launchLimitsOf, programDirectories } from "./plan.js";
import type { Sandbox } from "./sandbox.js";

const TIMEOUT_MS = 10_000;
const MAX_OUTPUT_BYTES = 1000;

/** What keeps it from starting, in that directory if one is given, or nothing. */
export async function reachInSandbox(
  policy: Policy,
  command: Command,
  sandbox: Sandbox,
  directory?: string,
): Promise<string | undefined> {
  const nothing = findExecutable("true", searchDirectories("", process.platform));
  if ("error" in nothing) return undefined;
  const confinement = confinementOf(policy, command);
  const outcome = await sandbox.run({
    confinement,
    executable: command.executable.path,
    startInstead: nothing.path,
    args: [],
    needs: needsOf(command.executable, programDirectories(command)),
    env: (scratch) => environmentOf(policy, command, new Map(), confinement.user !== undefined, scratch),
    cwd: directory === undefined ? undefined : belowRoot(policy, command, directory),
    stdin: Buffer.alloc(0),
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    limits: launchLimitsOf(policy, command, TIMEOUT_MS),
    queue: { concurrency: 1, waiting: 1, waitMs: TIMEOUT_MS },
    accept: (protections) => {
      const missing = command.sandbox === "required" ? missingProtections(protections, command.network) : [];
      return missing.length === 0 ? undefined : missing.join(", ");
    },
  });
  if (outcome.kind === "refused") {
    return `this machine does not give what sandbox: required asks for: ${outcome.reason}; \`portcullis doctor host\` says more`;
  }
  if (outcome.kind === "unavailable") return `the sandbox could not be started: ${outcome.reason}`;
  return outcome.kind === "ended" && outcome.ending.kind === "failed" ? outcome.ending.reason : undefined;
}

/** As a call would ask for it: from the innermost root around the directory. */
function belowRoot(policy: Policy, command: Command, directory: string): { root: string; rest: string } {
  const places = [...policy.readableRoots, ...(command.cwd === undefined ? [] : [command.cwd])].map(
    (place) => place.path,
  );
  const around =
    places.filter((place) => isWithin(directory, place)).sort((a, b) => b.length - a.length)[0] ?? directory;
  return { root: around, rest: directory === around ? "." : directory.slice(around.length).replace(/^\/+/, "") };
}

// What a script needs beside itself. A sandbox shows a program, not the directory it came with: without its interpreter or
// its package a script fails with words that say nothing about the sandbox, so this is looked at before it starts.

/** As far as the kernel itself reads. */
const MAX_FIRST_LINE_BYTES = 256;
/** Directories above a program that are looked at for its package. */
const MAX_LEVELS = 8;

/** Paths outside the program that it cannot start without; a bare name is one that was found nowhere. */
export function needsOf(executable: Executable, searched: readonly string[]): string[] {
  const words = firstWords(executable.real);
  const interpreter = interpreterOf(words, searched);
  if (interpreter === undefined) return [];
  const isNode = /^(node|nodejs)$/.test(basename(interpreter));
  const home = isNode ? packageOf(executable.real) : undefined;
  // A directory may be there and empty; this file of it is not.
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
  return searched.map((directory) => join(directory, name)).find(isProgram) ?? name;
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
  let directory = dirname(file);
  for (let level = 0; level < MAX_LEVELS && directory !== dirname(directory); level++, directory = dirname(directory)) {
    if (existsSync(join(directory, "package.json"))) return directory;
  }
  return undefined;
}
