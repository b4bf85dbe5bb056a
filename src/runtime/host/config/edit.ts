// Changing a policy file: the new text is checked as a host would read it, and only a valid one takes the place of the
// old. A file that another process changed meanwhile is left alone.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as prompts from "@clack/prompts";
import type { Command } from "commander";
import { type HostPolicyProblem, type Policy, problemText } from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { paintErr } from "../../../lib/print.js";
import { outFor } from "../../options.js";
import { type HostFiles, requireFile } from "./files.js";
import { checkHostPolicy, invalidPolicy } from "./read.js";
import { writePrivately } from "./swap.js";
import { appendEntry, type ListName } from "./yaml-edit.js";

export interface Edited {
  readonly policy: Policy;
  readonly before: string;
  readonly after: string;
  /** The new lines, for output. */
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
    throw new CliError(`${files.config} was changed by another process meanwhile`, 1, "look at it, then try again");
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

function refusedEdit(
  command: Command,
  file: string,
  before: string,
  after: string,
  problems: readonly HostPolicyProblem[],
): CliError {
  const cited = problems.map((problem) => cite(problem, before.split("\n"), after.split("\n")));
  const out = outFor(command);
  if (out.json) out.data({ ok: false, file, problems: cited }, () => "");
  return new CliError(
    `${file} is unchanged, because this would make it wrong`,
    EXIT.invalidPolicy,
    cited.map(citedText).join("\n"),
  );
}

type Cited = HostPolicyProblem | (Omit<HostPolicyProblem, "line" | "column"> & { readonly edit: string });

function cite(problem: HostPolicyProblem, old: readonly string[], fresh: readonly string[]): Cited {
  let same = 0;
  while (same < old.length && old[same] === fresh[same]) same++;
  let sameAtEnd = 0;
  while (sameAtEnd < old.length - same && old.at(-1 - sameAtEnd) === fresh.at(-1 - sameAtEnd)) sameAtEnd++;
  if (problem.line <= same) return problem;
  if (problem.line > fresh.length - sameAtEnd) return { ...problem, line: problem.line - (fresh.length - old.length) };
  const { line, column: _, ...rest } = problem;
  return { ...rest, edit: (fresh[line - 1] ?? "").trim() };
}

function citedText(problem: Cited): string {
  if (!("edit" in problem)) return problemText(problem);
  const { path, edit, message, remedy } = problem;
  return `the new line \`${edit}\`${path === "" ? "" : ` (${path})`}: ${message}; ${remedy}`;
}

/** Bound of the edits in one run. */
const MAX_ROUNDS = 100;

export async function editCopy(before: string, accept: (after: string, copy: string) => Edited): Promise<Edited> {
  const directory = mkdtempSync(join(tmpdir(), "portcullis-edit-"));
  const copy = join(directory, "policy.yaml");
  writeFileSync(copy, before, { mode: 0o600 });
  for (let round = 1; ; round++) {
    try {
      runEditor(copy);
    } catch (error) {
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
    try {
      const edited = accept(readFileSync(copy, "utf8"), copy);
      rmSync(directory, { recursive: true, force: true });
      return edited;
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      if (round < MAX_ROUNDS && (await wantsToGoOn(error))) continue;
      const kept = `your text is kept in ${copy}; the policy is unchanged`;
      throw new CliError(error.message, error.exitCode, error.help === undefined ? kept : `${error.help}\n${kept}`);
    }
  }
}

function runEditor(file: string): void {
  const chosen = process.env.VISUAL || process.env.EDITOR || (process.platform === "win32" ? "notepad" : "vi");
  // `code --wait` is a program and an argument; no shell reads it.
  const [program = "vi", ...args] = chosen.trim().split(/\s+/);
  const ran = spawnSync(program, [...args, file], { stdio: "inherit" });
  if (ran.error !== undefined) {
    throw new CliError(`cannot start the editor \`${chosen}\`: ${ran.error.message}`, EXIT.error, "set EDITOR");
  }
  if (ran.status !== 0) {
    throw new CliError(
      `the editor \`${chosen}\` ended with ${ran.status ?? ran.signal}`,
      EXIT.error,
      "the policy is unchanged",
    );
  }
}

async function wantsToGoOn(error: CliError): Promise<boolean> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) return false;
  process.stderr.write(`${paintErr.red("error:")} ${error.message}\n${error.help ?? ""}\n`);
  const again = await prompts.confirm({ message: "Edit it again?" });
  return again === true;
}
