// Changing a policy file: the new text is checked as a host would read it, and only a valid one takes the place of the
// old. A file that somebody else changed meanwhile is left alone.

import { readFileSync, realpathSync } from "node:fs";
import type { Command } from "commander";
import type { Policy, HostPolicyProblem } from "../../../host/index.js";
import { CliError } from "../../../lib/exit.js";
import { appendEntry, type ListName } from "./append.js";
import { type HostFiles, requireFile } from "./files.js";
import { checkHostPolicy, invalidPolicy } from "./read.js";
import { refusedEdit } from "./refused-edit.js";
import { writePrivately } from "./swap.js";

export interface Edited {
  readonly policy: Policy;
  readonly before: string;
  readonly after: string;
  /** What is new, for a person to see. */
  readonly added: readonly string[];
}

export function readText(config: string): string {
  requireFile(config);
  try {
    return readFileSync(config, "utf8");
  } catch (error) {
    throw new CliError(`cannot read ${config}: ${(error as Error).message}`);
  }
}

type Refuse = (problems: readonly HostPolicyProblem[]) => CliError;

/** INVARIANT: what stands in the file afterwards is a policy that a host would start with. */
export function replacePolicy(files: HostFiles, before: string, after: string, refuse: Refuse): Edited {
  const checked = checkHostPolicy(after, files);
  if (!checked.ok) throw refuse(checked.problems);
  const now = readText(files.config);
  if (now !== before) {
    throw new CliError(`${files.config} was changed by somebody else meanwhile`, 1, "look at it, then try again");
  }
  if (after !== before) writePrivately(realpathSync(files.config), after, { replace: true });
  return { policy: checked.policy, before, after, added: changedLines(before, after) };
}

/** The text after it. */
export type PolicyEdit = (text: string) => string;

export function adding(list: ListName, value: unknown): PolicyEdit {
  return (text) => appendEntry(text, list, value);
}

/** All of them or none. */
export function editPolicy(command: Command, files: HostFiles, edits: readonly PolicyEdit[]): Edited {
  const before = readText(files.config);
  // A file that is wrong already would get the blame for the entry.
  const checked = checkHostPolicy(before, files);
  if (!checked.ok) throw invalidPolicy(command, files.config, checked.problems);
  const added: string[] = [];
  let after = before;
  for (const edit of edits) {
    const next = edit(after);
    added.push(...changedLines(after, next));
    after = next;
  }
  const refuse: Refuse = (problems) => refusedEdit(command, files.config, before, after, problems);
  return { ...replacePolicy(files, before, after, refuse), added };
}

/** The lines between the first and the last difference, as they are now. */
function changedLines(before: string, after: string): string[] {
  const old = before.split("\n");
  const fresh = after.split("\n");
  let start = 0;
  while (start < old.length && old[start] === fresh[start]) start++;
  let end = 0;
  while (end < old.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end++;
  return fresh.slice(start, fresh.length - end).filter((line) => line.trim() !== "");
}

export const WHEN_IT_HOLDS =
  "A host that is running keeps the policy it has: restart it in your client, or send SIGHUP to one started with --reload.";
