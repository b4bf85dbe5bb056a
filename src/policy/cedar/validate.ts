// Everything that has to be right before a rule may decide anything, checked by Cedar's validator. This decides what Cedar
// is shown, so that 5,000 tools do not mean 5,000 times the work, and maps its answers to file, line and column.

import { conditionsIn } from "../history/source.js";
import type { PolicyAction, PolicyCatalog, Steps } from "./catalog.js";
import { type CedarSchema, CedarTrapped, type DetailedError, withCedar } from "./cedar.js";
import type { PolicyTree } from "./language/ast.js";
import { offsetOfByte } from "./language/scan.js";
import { actionsOf, entitiesOf, nameProblems, type Read, type Reads, readsOf, resolve } from "./names.js";
import { type RecordShape, shapeText } from "./shape.js";
import type { Draft } from "./source.js";
import type { PolicyProblem } from "./types.js";
import { cedarSchema, rewrite } from "./untyped.js";

interface Findings {
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

interface Checked {
  readonly draft: Draft;
  readonly tree: PolicyTree;
  readonly reads: Reads;
}

/** What stands for the head and body of a rule that the compiler does not know: it may be about anything. */
export const EVERYTHING: PolicyTree = {
  effect: "permit",
  principal: { op: "all" },
  action: { op: "all" },
  resource: { op: "all" },
  clauses: [],
  annotations: {},
};

interface TypeFindings {
  readonly problems: readonly PolicyProblem[];
  readonly warnings: readonly PolicyProblem[];
}

/** Rules that read nothing without a type, all at once; what was found, rule by rule. */
function* checkTyped(rules: readonly Checked[], catalog: PolicyCatalog): Steps<TypeFindings[]> {
  if (rules.length === 0) return [];
  const actions = yield* representing([...catalog.actions.values()], rules);
  const texts = Object.fromEntries(rules.map(({ draft }, index) => [`p${index}`, draft.text]));
  const mentioned = rules.flatMap(({ tree }) => mentionedBy(tree, catalog));
  const answer = yield* askingCedar(actions, mentioned, {}, texts);
  return rules.map(({ draft }, index) => {
    if (typeof answer === "string") return { problems: [draft.where.problem(draft.start, answer)], warnings: [] };
    const own = (found: CedarAnswer["errors"]): PolicyProblem[] =>
      distinctProblems(
        found
          .filter(({ policyId }) => policyId === `p${index}`)
          .map(({ error }) => located(draft, error, (offset) => offset, draft.text)),
      );
    return { problems: own(answer.errors), warnings: own(answer.warnings) };
  });
}

/** One rule, for actions in which it reads the same things without a type. */
function* checkUntyped(
  { draft, tree, reads }: Checked,
  actions: readonly PolicyAction[],
  open: readonly Read[],
  catalog: PolicyCatalog,
): Steps<readonly PolicyProblem[]> {
  const [first, ...more] = actions;
  // Without positions there is nothing to rewrite; the rule then meets its first wrong type at run time, as a deny.
  if (!first || open.some((read) => !read.node.span)) return [];
  const { text, standIns, original } = rewrite(draft.text, draft.start, open, [first, ...more]);
  const checked = yield* representing(actions, [{ draft, tree, reads }]);
  const answer = yield* askingCedar(checked, mentionedBy(tree, catalog), standIns, { p0: text });
  if (typeof answer === "string") return [draft.where.problem(draft.start, answer)];
  return distinctProblems(answer.errors.map(({ error }) => located(draft, error, original, text)));
}

function mentionedBy(tree: PolicyTree, catalog: PolicyCatalog): PolicyAction[] {
  return entitiesOf(tree).flatMap(({ entity }) => catalog.actions.get(entity.id) ?? []);
}

/**
 * Of the tools that no rule names and that look alike as far as any rule reads, one stands for all.
 * What a rule does not read cannot change how it types.
 */
function* representing(actions: readonly PolicyAction[], rules: readonly Checked[]): Steps<PolicyAction[]> {
  if (rules.some(({ tree }) => tree === EVERYTHING)) return [...actions];
  const named = new Set(rules.flatMap(({ tree }) => entitiesOf(tree).map(({ entity }) => entity.id)));
  const names = new Set(rules.flatMap(({ reads }) => reads.parts.map((read) => read.path[0] ?? "")));
  const whole = rules.some(({ reads }) => reads.whole);
  const kept = new Map<string, PolicyAction>();
  // Thousands of tools have a few shapes; of equal ones the same part is read.
  const projected = new Map<string, RecordShape>();
  for (const action of actions) {
    const text = shapeText(action.shape);
    const shape = projected.get(text) ?? (whole ? action.shape : project(action.shape, names));
    projected.set(text, shape);
    const key = named.has(action.name) ? `=${action.name}` : `~${action.resourceTypes.join()}${shapeText(shape)}`;
    if (!kept.has(key)) kept.set(key, { ...action, shape });
    yield;
  }
  return [...kept.values()];
}

function project(shape: RecordShape, names: ReadonlySet<string>): RecordShape {
  return { ...shape, attrs: new Map([...shape.attrs].filter(([name]) => names.has(name))) };
}

interface CedarFinding {
  readonly policyId: string;
  readonly error: DetailedError;
}

interface CedarAnswer {
  readonly errors: readonly CedarFinding[];
  readonly warnings: readonly CedarFinding[];
}

/** Actions in one question to Cedar, which answers it without interruption: thousands would take seconds. */
const ACTIONS_AT_ONCE = 100;

/** A finding about all actions together: with some of them left out it says nothing. */
const ABOUT_ALL = /unable to find an applicable action/;

/**
 * Asks about a part of the actions at a time. What is wrong for one part is wrong; that a rule applies to nothing, and
 * every warning, has to be found for all parts.
 */
function* askingCedar(
  actions: readonly PolicyAction[],
  mentioned: readonly PolicyAction[],
  standIns: Parameters<typeof cedarSchema>[2],
  policies: Record<string, string>,
): Steps<CedarAnswer | string> {
  const conditions = Object.values(policies).flatMap(conditionsIn);
  const errors: CedarAnswer["errors"][] = [];
  const warnings: CedarAnswer["errors"][] = [];
  for (let start = 0; start === 0 || start < actions.length; start += ACTIONS_AT_ONCE) {
    const part = actions.slice(start, start + ACTIONS_AT_ONCE);
    const answer = askCedar(cedarSchema(part, mentioned, standIns, conditions), policies);
    if (typeof answer === "string") return answer;
    errors.push(answer.errors);
    warnings.push(answer.warnings);
    yield;
  }
  const isAboutAll = ({ error }: CedarFinding): boolean => ABOUT_ALL.test(error.message);
  return {
    errors: [...errors.flat().filter((found) => !isAboutAll(found)), ...inAll(errors).filter(isAboutAll)],
    warnings: inAll(warnings),
  };
}

function inAll([first = [], ...others]: readonly CedarAnswer["errors"][]): CedarFinding[] {
  const keys = others.map((findings) => new Set(findings.map(keyOf)));
  return first.filter((found) => keys.every((known) => known.has(keyOf(found))));
}

function keyOf({ policyId, error }: CedarFinding): string {
  return `${policyId}:${error.sourceLocations?.[0]?.start}:${error.message}`;
}

/** A text is what went wrong with the asking itself. */
function askCedar(schema: CedarSchema, policies: Record<string, string>): CedarAnswer | string {
  try {
    const answer = withCedar((cedar) => cedar.validate({ schema, policies: { staticPolicies: policies } }));
    if (answer.type === "success") return { errors: answer.validationErrors, warnings: answer.validationWarnings };
    return `Cedar cannot check it: ${answer.errors.map((error) => error.message).join("; ")}`;
  } catch (error) {
    if (error instanceof CedarTrapped) return error.message;
    throw error;
  }
}

function located(
  draft: Draft,
  error: DetailedError,
  original: (offset: number) => number,
  shown: string,
): PolicyProblem {
  const byte = error.sourceLocations?.[0]?.start ?? 0;
  const offset = draft.start + original(offsetOfByte(shown, byte));
  const plain = (text: string): string => text.replace(/^for policy `[^`]*`, /, "");
  const message = plain(error.message);
  return draft.where.problem(offset, message, helpFor(message, plain(error.help ?? "")));
}

/** True for what a rule may not do whatever the types: read an argument that may not be there. */
function isUnguarded(problem: PolicyProblem): boolean {
  return /^attribute `.* not found$|^unable to guarantee safety/.test(problem.message);
}

function helpFor(message: string, help: string): string {
  if (!/^attribute `arguments\..* not found$/.test(message)) return help;
  return 'not every tool this rule is about has it; name the tool with action == Action::"…", or test for it with has first';
}

/** One place, one problem: Cedar reports a slip once for every tool the rule is about. */
function distinctProblems(problems: readonly PolicyProblem[]): PolicyProblem[] {
  const kept = new Map<string, PolicyProblem>();
  for (const problem of problems) {
    const key = `${problem.file}:${problem.line}:${problem.column}:${problem.message.replace(/Action::"[^"]*"/, "")}`;
    if (!kept.has(key)) kept.set(key, problem);
  }
  // Cedar reports in no order of its own.
  return [...kept.values()].sort((a, b) => a.line - b.line || a.column - b.column || (a.message < b.message ? -1 : 1));
}
