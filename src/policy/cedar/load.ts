// From text to a set that answers. Everything that can be wrong is found here, all of it at once, so that a set
// that loads is a set that can be trusted to mean what it says.

import { createHash } from "node:crypto";
import { eventsIn, type PastFormula } from "../history/formula.js";
import { historyProblems } from "../history/rules.js";
import { decideFrame, denyRequest } from "./authorize.js";
import { PolicyCatalog, run, runInSlices, type Steps } from "./catalog.js";
import { explainRule, outlookFor } from "./explain.js";
import { argumentsProblem, Frame, TOOL_GROUP } from "./frame.js";
import { didYouMean, entitiesOf } from "./names.js";
import { type CedarRule, candidateRules, makeRule, type RuleOptions, type Slice, Slices } from "./rule.js";
import { shapeOfArguments, shapeText } from "./shape.js";
import { type Draft, type PolicyFileLimits, readPolicyFiles, readSource } from "./source.js";
import {
  type Explanation,
  type Outlook,
  type OutlookRequest,
  type PolicyDecision,
  PolicyInvalid,
  type PolicyProblem,
  type PolicyRequest,
  type PolicySet,
  type PolicySource,
  type PolicyText,
  type ToolSummary,
} from "./types.js";
import { validating } from "./validate.js";

/** More rules than this are rejected: the path is probably wrong. */
const MAX_RULES = 20_000;
const MAX_TOOLS = 100_000;

export interface LoadPolicyOptions {
  /**
   * A rule that names a tool which is not there: a mistake, unless the rules are shared by many applications that each
   * have some of the tools. Then it is a warning, and the rule is kept for the day the tool comes.
   */
  unknownTools?: "refuse" | "warn";
}

/** Throws PolicyInvalid with every problem there is. */
export function loadPolicy(
  sources: readonly PolicySource[],
  tools: readonly ToolSummary[],
  options: LoadPolicyOptions = {},
): PolicySet {
  return run(loading(sources, tools, options));
}

/** Throws PolicyInvalid; a path that cannot be read is a problem like any other, never an empty policy. */
export async function loadPolicyFiles(
  paths: readonly string[],
  tools: readonly ToolSummary[],
  limits: PolicyFileLimits = {},
): Promise<PolicySet> {
  return loadPolicy(await readPolicyFiles(paths, limits), tools);
}

/** The same, with calls of others answered meanwhile. */
export function loadPolicyInSlices(
  sources: readonly PolicySource[],
  tools: readonly ToolSummary[],
  options: LoadPolicyOptions = {},
): Promise<PolicySet> {
  return runInSlices(loading(sources, tools, options));
}

function* loading(
  sources: readonly PolicySource[],
  tools: readonly ToolSummary[],
  options: LoadPolicyOptions,
): Steps<PolicySet> {
  if (tools.length > MAX_TOOLS) throw new PolicyInvalid([limitProblem(`more than ${MAX_TOOLS} tools`)]);
  for (const tool of tools) {
    // Shapes and their texts are kept for each schema, so that what follows finds them made.
    shapeText(shapeOfArguments(tool.inputSchema));
    yield;
  }
  let catalog = yield* PolicyCatalog.steps(tools);
  const { drafts, problems } = readSources(sources);
  if (problems.length > 0 || catalog.problems.length > 0) throw new PolicyInvalid([...catalog.problems, ...problems]);
  yield;
  const absent = options.unknownTools === "warn" ? absentTools(drafts, catalog) : [];
  if (absent.length > 0) catalog = yield* PolicyCatalog.steps([...tools, ...absent.map(({ tool }) => tool)]);
  const wrong = historyProblems(drafts, catalog);
  if (wrong.length > 0) throw new PolicyInvalid(wrong);
  const findings = yield* validating(drafts, catalog);
  if (findings.problems.length > 0) throw new PolicyInvalid(findings.problems);
  const catalogText = yield* catalog.canonicalTextSteps();
  const warnings = [...absent.map(({ warning }) => warning), ...findings.warnings];
  return new LoadedPolicy(drafts, catalog, warnings, {}, catalogText);
}

/** Tools that rules name and no server offers: treated as of any shape, so that the rest of the rule is checked. */
function absentTools(
  drafts: readonly Draft[],
  catalog: PolicyCatalog,
): { readonly tool: ToolSummary; readonly warning: PolicyProblem }[] {
  const found = new Map<string, { tool: ToolSummary; warning: PolicyProblem }>();
  for (const draft of drafts) {
    const events = draft.conditions.flatMap(({ formula }) => eventsIn(formula));
    const named = [
      ...(draft.tree ? entitiesOf(draft.tree) : []),
      ...events.map(({ type, action: id, at }) => ({ entity: { type, id }, span: { start: at, end: at } })),
    ];
    for (const { entity, span } of named) {
      const isTool = entity.type === "Tool" || (entity.type === "Action" && entity.id !== TOOL_GROUP);
      if (!isTool || catalog.actions.has(entity.id) || found.has(entity.id)) continue;
      const warning = draft.where.problem(
        span?.start ?? draft.start,
        `there is no tool or method ${entity.id} here`,
        didYouMean(entity.id, catalog.actions.keys(), 'Action::"') || "the rule applies once there is one",
      );
      found.set(entity.id, { tool: { name: entity.id, server: "", inputSchema: {} }, warning });
    }
  }
  return [...found.values()];
}

export function readSources(sources: readonly PolicySource[]): { drafts: Draft[]; problems: PolicyProblem[] } {
  let conditions = 0;
  const read = sources.map((source) => {
    const found = readSource(source, conditions);
    conditions += found.conditions;
    return found;
  });
  const drafts = read.flatMap((each) => each.drafts);
  const problems = read.flatMap((each) => each.problems);
  const byId = new Map<string, Draft>();
  for (const draft of drafts) {
    const first = byId.get(draft.id);
    if (first) problems.push(draft.where.problem(draft.start, `the id ${draft.id} is taken`, sameId(draft, first)));
    else byId.set(draft.id, draft);
  }
  if (drafts.length > MAX_RULES) problems.push(limitProblem(`more than ${MAX_RULES} rules`));
  return { drafts, problems };
}

function sameId(draft: Draft, first: Draft): string {
  const where = `${first.where.file}:${first.where.at(first.start).line}`;
  const how = draft.meta.id === undefined ? 'add @id("…") or rename the file' : "give one of them another @id";
  return `by the rule at ${where}; ${how}`;
}

function limitProblem(message: string): PolicyProblem {
  return { file: "policy", line: 0, column: 0, message, help: "split what is served" };
}

/** A set of rules over a catalog, without Cedar's validation: the tests compare these with Cedar itself. */
export class LoadedPolicy implements PolicySet {
  readonly hash: string;
  readonly rules: readonly PolicyText[];
  readonly warnings: readonly PolicyProblem[];
  readonly usesWasmFallbackFor: readonly string[];
  readonly conditions: readonly PastFormula[];
  readonly #catalog: PolicyCatalog;
  readonly #slices: Slices;

  constructor(
    drafts: readonly Draft[],
    catalog: PolicyCatalog,
    warnings: readonly PolicyProblem[] = [],
    options: RuleOptions = {},
    catalogText = catalog.canonicalText(),
  ) {
    const rules = drafts.map((draft) => makeRule(draft, options));
    this.conditions = drafts.flatMap((draft) => draft.conditions.map(({ formula }) => formula));
    this.rules = rules.map(({ id, file, line, effect, text, digest }) => ({ id, file, line, effect, text, digest }));
    this.warnings = warnings;
    this.usesWasmFallbackFor = rules.filter((rule) => rule.byCedar).map((rule) => rule.id);
    this.hash = hashOf(rules, catalogText);
    this.#catalog = catalog;
    this.#slices = new Slices(rules, catalog);
  }

  decide = (request: PolicyRequest): PolicyDecision => {
    try {
      const prepared = this.prepare(request);
      if (typeof prepared === "string") return denyRequest(prepared);
      return decideFrame(prepared.lists, prepared.frame, request.approvedRules);
    } catch (error) {
      return denyRequest(`deciding failed: ${error instanceof Error ? error.message : String(error)}`);
    }
  };

  explain = (request: PolicyRequest): Explanation => {
    const decision = this.decide(request);
    const prepared = this.prepare(request);
    if (typeof prepared === "string") return { decision, rules: [] };
    const approved = new Set(request.approvedRules);
    const rules = prepared.slice.all.map((rule) => {
      prepared.frame.approved = rule.meta.challenge && approved.has(rule.id);
      return explainRule(rule, prepared.frame);
    });
    return { decision, rules };
  };

  outlook = (request: OutlookRequest): Outlook => {
    try {
      const prepared = this.prepare({ transport: "", ...request, arguments: {} });
      if (typeof prepared === "string") return "never";
      const known = { transport: request.transport !== undefined, people: request.groups !== undefined };
      return outlookFor(prepared.lists, prepared.frame, known);
    } catch {
      // What cannot be foreseen is left to the decision itself.
      return "possible";
    }
  };

  /** The frame and the rules for it, or why the request cannot be decided at all. */
  prepare(request: PolicyRequest): { frame: Frame; lists: (readonly CedarRule[])[]; slice: Slice } | string {
    const slice = this.#slices.get(request.action);
    if (!slice) return `policy knows no tool or method ${request.action}`;
    if (slice.action.isServerRequest !== (request.serverRequest !== undefined)) {
      return `${request.action} ${slice.action.isServerRequest ? "is" : "is not"} a request of a server`;
    }
    // Otherwise "a/b" of "c" and "b/c" of "a" would be one principal.
    if (request.app === "" || request.app.includes("/")) return `the application name ${request.app} cannot be used`;
    const refused = argumentsProblem(request.arguments) ?? (request.forwarded && argumentsProblem(request.forwarded));
    if (refused !== undefined) return refused;
    const frame = new Frame(withDefaults(request, slice), slice.action, this.#catalog.isTool);
    return { frame, lists: candidateRules(slice, request), slice };
  }
}

/** What the request leaves out about its tool is taken from the catalog. */
function withDefaults(request: PolicyRequest, { action: { tool } }: Slice): PolicyRequest {
  const { resource } = request;
  if (!tool || resource.type !== "Tool" || resource.id !== tool.name) return request;
  if (resource.server !== undefined && resource.tags !== undefined && resource.readOnly !== undefined) return request;
  return {
    ...request,
    resource: {
      ...resource,
      server: resource.server ?? tool.server,
      tags: resource.tags ?? tool.tags ?? [],
      readOnly: resource.readOnly ?? tool.readOnly ?? false,
    },
  };
}

function hashOf(rules: readonly CedarRule[], catalogText: string): string {
  const lines = rules.map((rule) => `${JSON.stringify(rule.id)} ${rule.digest}`).sort();
  return createHash("sha256")
    .update(`${lines.join("\n")}\n\n${catalogText}`)
    .digest("hex");
}

const NO_POLICY = "no policy is loaded, so everything is denied";

/** For a gate without a policy. */
export const noPolicy: PolicySet = {
  hash: createHash("sha256").update("no policy").digest("hex"),
  rules: [],
  warnings: [],
  usesWasmFallbackFor: [],
  conditions: [],
  decide: () => ({ effect: "deny", rules: [], reason: NO_POLICY, approvers: [], obligations: [], errors: [] }),
  explain: (request) => ({ decision: noPolicy.decide(request), rules: [] }),
  outlook: () => "never",
};
