// Everything that has to be right before a rule may decide anything.

import type { PolicyAction, PolicyCatalog } from "./catalog.js";
import { actionsOf, entitiesOf, nameProblems } from "./names.js";
import { type Read, readsOf, resolve } from "./reads.js";
import type { Draft } from "./source.js";
import type { Steps } from "./steps.js";
import { type Checked, checkTyped, checkUntyped, EVERYTHING, isUnguarded, representing } from "./typecheck.js";
import type { PolicyProblem } from "./types.js";

export interface Findings {
  readonly problems: PolicyProblem[];
  readonly warnings: PolicyProblem[];
}

/** So many ways of being untyped are checked for one rule; a wrong type in the rest is an error, hence a deny, at run time. */
const MAX_GROUPS = 64;
/** A rule over more kinds of tools than this is not looked at tool by tool. */
const MAX_KINDS = 200;

export function* validating(drafts: readonly Draft[], catalog: PolicyCatalog): Steps<Findings> {
  const findings: Findings = { problems: [], warnings: [] };
  const typed: Checked[] = [];
  for (const draft of drafts) {
    const tree = draft.tree ?? EVERYTHING;
    const rule: Checked = { draft, tree, reads: readsOf(tree) };
    const problems = [...nameProblems(draft, tree, rule.reads, catalog), ...approvalProblems(rule)];
    const groups = groupByOpenReads(rule, actionsOf(tree, catalog));
    if (problems.length > 0) findings.problems.push(...problems);
    else if (groups.size === 1 && groups.has("")) typed.push(rule);
    else {
      const found: PolicyProblem[] = [];
      for (const { actions, open } of [...groups.values()].slice(0, MAX_GROUPS)) {
        found.push(...(yield* checkUntyped(rule, actions, open, catalog)));
      }
      yield* report(rule, found, catalog, findings);
    }
    yield;
  }
  for (const [index, { problems, warnings }] of (yield* checkTyped(typed, catalog)).entries()) {
    findings.warnings.push(...warnings);
    yield* report(typed[index] as Checked, problems, catalog, findings);
  }
  return findings;
}

function* report(
  rule: Checked,
  problems: readonly PolicyProblem[],
  catalog: PolicyCatalog,
  findings: Findings,
): Steps<void> {
  if (problems.length === 0) return;
  const excused = yield* excuse(rule, problems, catalog);
  if (excused) findings.warnings.push(...excused);
  else findings.problems.push(...problems);
}

/**
 * A rule about many tools that is right for some and names none of those it is wrong for. One server with an odd
 * `path` must not be able to keep the operator's rule from loading; calls to that tool are denied as errors.
 */
function* excuse(
  rule: Checked,
  problems: readonly PolicyProblem[],
  catalog: PolicyCatalog,
): Steps<PolicyProblem[] | undefined> {
  const kinds = yield* representing(actionsOf(rule.tree, catalog), [rule]);
  if (problems.some(isUnguarded) || kinds.length > MAX_KINDS) return undefined;
  const named = new Set(entitiesOf(rule.tree).map(({ entity }) => entity.id));
  const warnings: PolicyProblem[] = [];
  let isRightSomewhere = false;
  for (const action of kinds) {
    const found = yield* checkUntyped(rule, [action], openReads(rule, action), catalog);
    if (found.length > 0 && named.has(action.name)) return undefined;
    if (found.length === 0) {
      isRightSomewhere ||= rule.reads.parts.every((read) => resolve(action, read).status === "declared");
    }
    for (const problem of found) {
      warnings.push({
        ...problem,
        message: `${problem.message}, in ${action.name}; calls that get this far will be denied`,
        help: `leave it out with action != Action::${JSON.stringify(action.name)} && …`,
      });
    }
  }
  return isRightSomewhere ? warnings : undefined;
}

/** `context.approved` is true only for a challenge that was approved, so anywhere else it is a mistake. */
function approvalProblems({ draft, reads }: Checked): PolicyProblem[] {
  const at = reads.approved?.span?.start ?? draft.start;
  if (draft.meta.challenge && !reads.approved && draft.tree) {
    const help = "add unless { context.approved }; without it no approval can ever let the call through";
    return [draft.where.problem(draft.start, "a challenge that does not read context.approved", help)];
  }
  if (draft.meta.challenge || !reads.approved) return [];
  const message =
    reads.approved.kind === "var" ? "context is used as a whole" : "context.approved is only ever true for a challenge";
  const help =
    reads.approved.kind === "var"
      ? "name the part that is meant, such as context.arguments.path"
      : 'mark the rule with @outcome("challenge") @approvers("…")';
  return [draft.where.problem(at, message, help)];
}

/** The actions a rule is about, by which of its reads have no type there. */
function groupByOpenReads(
  rule: Checked,
  actions: readonly PolicyAction[],
): Map<string, { actions: PolicyAction[]; open: Read[] }> {
  const groups = new Map<string, { actions: PolicyAction[]; open: Read[] }>();
  if (actions.length === 0) groups.set("", { actions: [], open: [] });
  for (const action of actions) {
    const open = openReads(rule, action);
    const key = open.map((read) => rule.reads.parts.indexOf(read)).join(",");
    const group = groups.get(key);
    if (group) group.actions.push(action);
    else groups.set(key, { actions: [action], open });
  }
  return groups;
}

function openReads({ reads }: Checked, action: PolicyAction): Read[] {
  return reads.parts.filter((read) => resolve(action, read).status === "open");
}
