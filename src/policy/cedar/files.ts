// Policies from disk: files that end in `.cedar`, or folders of them, in an order that does not depend on the disk.

import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { loadPolicy } from "./load.js";
import { PolicyInvalid, type PolicyProblem, type PolicySet, type PolicySource, type ToolSummary } from "./types.js";

export interface PolicyFileLimits {
  readonly maxFiles?: number;
  /** Of all the files together. */
  readonly maxBytes?: number;
}

const DEFAULT_MAX_FILES = 1000;
const DEFAULT_MAX_BYTES = 16 * 1024 * 1024;
const SUFFIX = ".cedar";

/** Throws PolicyInvalid; a path that cannot be read is a problem like any other, never an empty policy. */
export async function loadPolicyFiles(
  paths: readonly string[],
  tools: readonly ToolSummary[],
  limits: PolicyFileLimits = {},
): Promise<PolicySet> {
  return loadPolicy(await readPolicyFiles(paths, limits), tools);
}

/** The text of every file, in order; nothing is loaded yet. */
export async function readPolicyFiles(
  paths: readonly string[],
  limits: PolicyFileLimits = {},
): Promise<PolicySource[]> {
  const { maxFiles = DEFAULT_MAX_FILES, maxBytes = DEFAULT_MAX_BYTES } = limits;
  const problems: PolicyProblem[] = [];
  const files: string[] = [];
  for (const path of paths) files.push(...(await filesAt(path, problems)));
  const distinct = [...new Set(files)];
  if (distinct.length > maxFiles) {
    throw new PolicyInvalid([problem(paths.join(", "), `more than ${maxFiles} policy files`, "name fewer folders")]);
  }
  const sources: PolicySource[] = [];
  let bytes = 0;
  for (const file of distinct) {
    const text = await readText(file, maxBytes - bytes, problems);
    bytes += Buffer.byteLength(text);
    sources.push({ file, text });
  }
  if (problems.length > 0) throw new PolicyInvalid(problems);
  return sources;
}

async function filesAt(path: string, problems: PolicyProblem[]): Promise<string[]> {
  try {
    if ((await stat(path)).isDirectory()) {
      const names = (await readdir(path)).filter((name) => name.endsWith(SUFFIX) && !name.startsWith("."));
      return names.sort().map((name) => join(path, name));
    }
    if (path.endsWith(SUFFIX)) return [path];
    problems.push(problem(path, `is not a ${SUFFIX} file`, `give the file a name that ends in ${SUFFIX}`));
  } catch (error) {
    problems.push(problem(path, `cannot be read: ${(error as Error).message}`, "check the path and its permissions"));
  }
  return [];
}

async function readText(file: string, maxBytes: number, problems: PolicyProblem[]): Promise<string> {
  try {
    const { size } = await stat(file);
    if (size > maxBytes) throw new Error("the policy files together are too large");
    const bytes = await readFile(file);
    const text = bytes.toString("utf8");
    // A byte that is no UTF-8 would be read as something else than what is on disk.
    if (!Buffer.from(text).equals(bytes)) throw new Error("the file is not valid UTF-8");
    return text;
  } catch (error) {
    problems.push(problem(file, `cannot be read: ${(error as Error).message}`, "check the file"));
    return "";
  }
}

function problem(file: string, message: string, help: string): PolicyProblem {
  return { file, line: 0, column: 0, message, help };
}
