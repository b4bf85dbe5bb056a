// Rules against the tools. Cedar's validator does the typing; this decides what it is shown, so that 5,000 tools do
// not mean 5,000 times the work, and brings its answers back to file, line and column.

import type { Action, Catalog } from "./catalog.js";
import { CedarTrapped, type CedarSchema, type DetailedError, withCedar } from "./cedar.js";
import type { PolicyTree } from "./language/ast.js";
import { offsetOfByte } from "./language/position.js";
import { actionsOf, entitiesOf, nameProblems } from "./names.js";
import { type Read, type Reads, readsOf, resolve } from "./reads.js";
import { cedarSchema } from "./schema.js";
import { type RecordShape, shapeText } from "./shape.js";
import type { Draft } from "./source.js";
import type { PolicyProblem } from "./types.js";
import { rewrite } from "./untyped.js";

export interface Findings {
  readonly problems: PolicyProblem[];
  readonly warnings: PolicyProblem[];
}

/** So many ways of being untyped are checked for one rule; a wrong type in the rest is an error, hence a deny, at run time. */
const MAX_GROUPS = 64;

interface Checked {
  readonly draft: Draft;
  readonly tree: PolicyTree;
  readonly reads: Reads;
}

export function validateDrafts(drafts: readonly Draft[], catalog: Catalog): Findings {
  const findings: Findings = { problems: [], warnings: [] };
  const plain: Checked[] = [];
  for (const draft of drafts) {
    // A rule that the compiler does not cover is shown to Cedar as it is.
    const tree = draft.tree ?? EVERYTHING;
    const checked = { draft, tree, reads: readsOf(tree) };
    const problems = [...nameProblems(draft, tree, checked.reads, catalog), ...approvalProblems(checked)];
    findings.problems.push(...problems);
    if (problems.length > 0) continue;
    const groups = groupByOpenReads(checked, actionsOf(tree, catalog));
    if (groups.size === 1 && groups.has("")) plain.push(checked);
    else {
      for (const { actions, open } of [...groups.values()].slice(0, MAX_GROUPS)) {
        validateGroup(checked, actions, open, catalog, findings);
      }
    }
  }
  validatePlain(plain, catalog, findings);
  return findings;
}

const EVERYTHING: PolicyTree = {
  effect: "permit",
  principal: { op: "all" },
  action: { op: "all" },
  resource: { op: "all" },
  clauses: [],
  annotations: {},
};

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

interface Group {
  readonly actions: Action[];
  readonly open: readonly Read[];
}

/** The actions a rule is about, by which of its reads have no type there. */
function groupByOpenReads({ reads }: Checked, actions: readonly Action[]): Map<string, Group> {
  const groups = new Map<string, Group>();
  if (actions.length === 0) groups.set("", { actions: [], open: [] });
  for (const action of actions) {
    const open = reads.arguments.filter((read) => resolve(action.shape, read).status === "open");
    const key = open.map((read) => reads.arguments.indexOf(read)).join(",");
    const group = groups.get(key);
    if (group) group.actions.push(action);
    else groups.set(key, { actions: [action], open });
  }
  return groups;
}

function validatePlain(plain: readonly Checked[], catalog: Catalog, findings: Findings): void {
  if (plain.length === 0) return;
  const actions = representatives([...catalog.actions.values()], plain);
  const texts = Object.fromEntries(plain.map(({ draft }, index) => [`p${index}`, draft.text]));
  const answer = askCedar(cedarSchema(actions, []), texts);
  if (typeof answer === "string") {
    findings.problems.push(...plain.map(({ draft }) => draft.where.problem(draft.start, answer)));
    return;
  }
  const place = ({ policyId, error }: { policyId: string; error: DetailedError }): PolicyProblem | undefined => {
    const draft = plain[Number(policyId.slice(1))]?.draft;
    return draft && located(draft, error, (offset) => offset, draft.text);
  };
  findings.problems.push(...distinct(answer.errors.map(place)));
  findings.warnings.push(...distinct(answer.warnings.map(place)));
}

function validateGroup(
  checked: Checked,
  actions: readonly Action[],
  open: readonly Read[],
  catalog: Catalog,
  findings: Findings,
): void {
  const { draft } = checked;
  const [first, ...more] = actions;
  // Without positions there is nothing to rewrite; the rule then meets its first wrong type at run time, as a deny.
  if (!first || open.some((read) => !read.node.span)) return;
  const { text, standIns, original } = rewrite(draft.text, draft.start, open, [first, ...more]);
  const mentioned = entitiesOf(checked.tree).flatMap(({ entity }) => catalog.actions.get(entity.id) ?? []);
  const schema = cedarSchema(representatives(actions, [checked]), mentioned, standIns);
  const answer = askCedar(schema, { p0: text });
  if (typeof answer === "string") {
    findings.problems.push(draft.where.problem(draft.start, answer));
    return;
  }
  findings.problems.push(...distinct(answer.errors.map(({ error }) => located(draft, error, original, text))));
}

/**
 * Of the tools that no rule names and that look alike as far as any rule reads, one stands for all.
 * What a rule does not read cannot change how it types.
 */
function representatives(actions: readonly Action[], rules: readonly Checked[]): Action[] {
  if (rules.some(({ tree }) => tree === EVERYTHING)) return [...actions];
  const named = new Set(rules.flatMap(({ tree }) => entitiesOf(tree).map(({ entity }) => entity.id)));
  const names = new Set(rules.flatMap(({ reads }) => reads.arguments.map((read) => read.path[0] ?? "")));
  const whole = rules.some(({ reads }) => reads.whole);
  const kept = new Map<string, Action>();
  for (const action of actions) {
    const shape = whole ? action.shape : project(action.shape, names);
    const key = named.has(action.name) ? `=${action.name}` : `~${action.resourceTypes.join()}${shapeText(shape)}`;
    if (!kept.has(key)) kept.set(key, { ...action, shape });
  }
  return [...kept.values()];
}

function project(shape: RecordShape, names: ReadonlySet<string>): RecordShape {
  return { ...shape, attrs: new Map([...shape.attrs].filter(([name]) => names.has(name))) };
}

interface CedarAnswer {
  readonly errors: readonly { policyId: string; error: DetailedError }[];
  readonly warnings: readonly { policyId: string; error: DetailedError }[];
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

function helpFor(message: string, help: string): string {
  if (!/^attribute `arguments\..* not found$/.test(message)) return help;
  return 'not every tool this rule is about has it; name the tool with action == Action::"…", or test for it with has first';
}

/** One place, one problem: Cedar reports a slip once for every tool the rule is about. */
function distinct(problems: readonly (PolicyProblem | undefined)[]): PolicyProblem[] {
  const kept = new Map<string, PolicyProblem>();
  for (const problem of problems) {
    if (!problem) continue;
    const key = `${problem.file}:${problem.line}:${problem.column}:${problem.message.replace(/Action::"[^"]*"/, "")}`;
    if (!kept.has(key)) kept.set(key, problem);
  }
  return [...kept.values()];
}
