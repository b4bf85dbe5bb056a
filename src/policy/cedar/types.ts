// What others see of the policy language: a set of rules that answers, explains itself, and never changes.

import type { JsonObject } from "../../mcp/index.js";
import type { PastFormula } from "../history/formula.js";
import type { LoadedCheck } from "../reload.js";

/** One file of Cedar text; messages name it by `file`. */
export interface PolicySource {
  readonly file: string;
  readonly text: string;
}

/** The facts of a tool that policy uses. */
export interface ToolSummary {
  /** Canonical name; it is the Cedar action. */
  readonly name: string;
  readonly server: string;
  readonly inputSchema: JsonObject | boolean;
  readonly tags?: readonly string[];
  /** Declared by the operator, never by a server. */
  readonly readOnly?: boolean;
}

export interface PolicyProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
  /** What to do about it; empty when there is nothing to add. */
  readonly help: string;
}

/** `Agent` is the resource of a server's request to a client: the agent whose client would be asked. */
export type ResourceType = "Tool" | "Resource" | "Prompt" | "Method" | "Agent";

export interface PolicyResource {
  readonly type: ResourceType;
  readonly id: string;
  readonly server?: string;
  readonly tags?: readonly string[];
  readonly readOnly?: boolean;
  /** Of an `Agent`: the scopes of its credential, and the user behind it. */
  readonly scope?: readonly string[];
  readonly user?: string | undefined;
  readonly groups?: readonly string[] | undefined;
}

export interface PolicyRequest {
  readonly app: string;
  readonly agent: string;
  readonly scope: readonly string[];
  /** The user behind the agent; a rule that reads it where there is none is an error. */
  readonly user?: string | undefined;
  /** The groups of that user; none unless given. */
  readonly groups?: readonly string[] | undefined;
  /** Canonical tool name, or one of `METHODS`. */
  readonly action: string;
  readonly resource: PolicyResource;
  readonly arguments: JsonObject;
  /** What travels beside the arguments (`_meta`, `inputResponses`, further allowed fields); nothing unless given. */
  readonly forwarded?: JsonObject;
  /** What is known of the conversation and of where the arguments came from; a rule that reads it without is an error. */
  readonly flow?: JsonObject;
  /** Set on a server's request to a client: `server` is then the principal, and `tool` the call it belongs to. */
  readonly serverRequest?: { readonly server: string; readonly tool: string };
  readonly transport: string;
  /** When it is decided, in milliseconds of the epoch; a rule that reads it without is an error. */
  readonly now?: number | undefined;
  /** Whether the condition over past events of that number holds; throws where that is not known. */
  readonly history?: (condition: number) => boolean;
  /** The rules that an approver approved for this very call; only that exact set counts. */
  readonly approvedRules?: readonly string[];
}

export interface PolicyRule {
  readonly id: string;
  readonly file: string;
  readonly line: number;
}

export type Obligation =
  | { readonly kind: "redact"; readonly pattern?: string; readonly field?: string; readonly name?: string }
  | { readonly kind: "cap"; readonly maxBytes: number };

export interface PolicyDecision {
  readonly effect: "permit" | "deny" | "challenge";
  /** The rules that made the difference; empty when nothing permits. */
  readonly rules: PolicyRule[];
  /** For the caller: no file, no line. */
  readonly reason: string;
  readonly approvers: string[];
  readonly obligations: Obligation[];
  /** For the operator: why a rule could not be evaluated. Never empty on a deny that an error caused. */
  readonly errors: string[];
}

/** The part of a rule that settled it. */
export interface DecidingPart {
  readonly part: "principal" | "action" | "resource" | "when" | "unless" | "rule";
  readonly text: string;
  readonly line: number;
  readonly column: number;
}

/** What a part of a condition came to in this request. */
export interface ExplainedValue {
  readonly expression: string;
  /** In Cedar's notation, cut where it is long; undefined when there is none. */
  readonly value?: string;
  /** Why there is no value: the attribute is missing or has no Cedar form. */
  readonly problem?: string;
}

export interface ExplainedRule extends PolicyRule {
  readonly effect: "permit" | "forbid";
  readonly matched: boolean;
  readonly decidedBy: DecidingPart;
  /** The values that the deciding part read. */
  readonly values: readonly ExplainedValue[];
  readonly error?: string;
}

export interface Explanation {
  readonly decision: PolicyDecision;
  /** Every rule whose action fits the request. */
  readonly rules: ExplainedRule[];
}

/**
 * A request before there are arguments. A transport that is left out may be any; where `groups` are left out, so may the
 * user and its groups.
 */
export type OutlookRequest = Omit<PolicyRequest, "arguments" | "transport" | "approvedRules" | "history" | "now"> & {
  readonly transport?: string;
};

/** What a caller can hope for before the arguments are known. */
export type Outlook = "never" | "challenge" | "possible";

/** A rule as it was written, for listings and comparisons. */
export interface PolicyText extends PolicyRule {
  readonly effect: "permit" | "forbid";
  readonly text: string;
  /** Equal exactly when two rules mean the same by their syntax tree and annotations. */
  readonly digest: string;
}

/** Immutable: a reload makes a new one. */
export interface PolicySet {
  /** Names the rules and the tools they were checked against; comments and layout do not count. */
  readonly hash: string;
  readonly rules: readonly PolicyText[];
  /** Not wrong, but worth a look. */
  readonly warnings: readonly PolicyProblem[];
  /** Ids of the rules that run on Cedar's own evaluator because the compiler does not cover them. */
  readonly usesWasmFallbackFor: readonly string[];
  /** The conditions over past events, by their numbers; none in most sets. */
  readonly conditions: readonly PastFormula[];
  /** Checks that are in force with these rules and are replaced together with them. */
  readonly checks?: readonly LoadedCheck[];
  /** Never throws: an error while deciding is a deny. */
  decide(request: PolicyRequest): PolicyDecision;
  explain(request: PolicyRequest): Explanation;
  outlook(request: OutlookRequest): Outlook;
}

/** A policy that must not be loaded. Every problem is listed, not only the first. */
export class PolicyInvalid extends Error {
  readonly code = "POLICY_INVALID";
  readonly problems: readonly PolicyProblem[];
  constructor(problems: readonly PolicyProblem[]) {
    super(problems.map(describeProblem).join("\n"));
    this.name = "PolicyInvalid";
    this.problems = problems;
  }
}

export function describeProblem(problem: PolicyProblem): string {
  const help = problem.help === "" ? "" : ` (${problem.help})`;
  // What is wrong with a whole file, or with a tool, has no line.
  const place = problem.line > 0 ? `:${problem.line}:${problem.column}` : "";
  return `${problem.file}${place}: ${problem.message}${help}`;
}
