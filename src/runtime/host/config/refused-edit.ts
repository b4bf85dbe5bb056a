// An edit that would make a policy wrong. Nothing was written, so what is new is cited by its text, what was there before
// by the line where it really stands.

import type { Command } from "commander";
import { type HostPolicyProblem, problemText } from "../../../host/index.js";
import { CliError, EXIT } from "../../../lib/exit.js";
import { outFor } from "../../options.js";

export function refusedEdit(
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
    cited.map(told).join("\n"),
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

function told(problem: Cited): string {
  if (!("edit" in problem)) return problemText(problem);
  const { path, edit, message, remedy } = problem;
  return `the new line \`${edit}\`${path === "" ? "" : ` (${path})`}: ${message}; ${remedy}`;
}
