// The types that policy, guardrails, limits and checks share.

import type { ErrorType, Fault, JsonObject } from "../mcp/index.js";
import type { Obligation, ResourceType } from "./cedar/types.js";
import type { DelegationChain } from "./delegation/chain.js";

/** Worst wins: deny < challenge < permit. */
export type Effect = "permit" | "challenge" | "deny";

/** `Principal` is the authenticated caller; nothing that the client declares about itself is part of it. */
export interface Principal {
  readonly app: string;
  readonly agent: string;
  /** The agent of the credential, where a delegation makes the caller another one: two holders are two callers. */
  readonly holder?: string;
  /** Tools this caller may reach; undefined means all that its application has. */
  readonly tools?: { has(tool: string): boolean };
  /** Resources, by URI, and prompts, by name, that this caller may reach; undefined means all. */
  readonly resources?: { has(uri: string): boolean; readonly isEmpty?: boolean };
  readonly prompts?: { has(name: string): boolean; readonly isEmpty?: boolean };
  /** Tools that lists show to this caller; those it may reach, unless given. */
  readonly shown?: { has(tool: string): boolean };
  /** The user behind the agent, where the credential names one. */
  readonly user?: string;
  /** The groups that the issuer of the credential says it is in; none unless given. */
  readonly groups?: readonly string[];
  /** Which key or token it came with, never the secret itself: for limits, caches and the record. */
  readonly credential?: string;
  /** The fault for a caller that needs more scope for this tool: it names where to get it. */
  readonly stepUp?: (tool: string) => Fault | undefined;
  /** When the key, token or delegation it came with ends, in steady time; undefined where it does not. */
  readonly expiresAt?: number;
  /** Limits of that credential. */
  readonly limits?: { readonly perMinute?: number; readonly perHour?: number };
  /** Scopes of its credential, for policies to read. */
  readonly scope: readonly string[];
  /** How it was identified: `local`, `key`, `oauth`, `delegation`. */
  readonly via: string;
  /** Where a workflow is served: by which delegations this caller came to hold what it holds. */
  readonly delegation?: DelegationChain;
}

export interface Rule {
  readonly id: string;
  readonly file?: string;
  readonly line?: number;
}

/** `Check` contributes one result to the decision; the strictest result wins. */
export interface CheckResult {
  readonly effect: Effect;
  readonly rules: readonly Rule[];
  /** For the caller. */
  readonly reason: string;
  readonly type?: ErrorType;
  readonly field?: string;
  readonly suggestions?: readonly string[];
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly approvers?: readonly string[];
  readonly obligations?: readonly Obligation[];
}

export const PERMIT: CheckResult = { effect: "permit", rules: [], reason: "" };

export function deny(type: ErrorType, ruleId: string, reason: string, more: Partial<CheckResult> = {}): CheckResult {
  return { effect: "deny", rules: [{ id: ruleId }], reason, type, ...more };
}

/** What a call is about, for policy and guardrails. */
export interface CallTarget {
  /** Cedar resource type. */
  readonly type: ResourceType;
  /** Canonical name or uri. */
  readonly name: string;
  /** Policy action: the tool's canonical name, or the method. */
  readonly action: string;
  /** Which server behind which connection will run it. */
  readonly binding: string;
  readonly server: string;
  readonly definitionHash: string;
  readonly tags: readonly string[];
  /** Declared by an operator; a server's own annotation never sets it. */
  readonly readOnly: boolean;
  readonly noGuardrailRequired: boolean;
  /** Harmless by construction (a list, a log level): permitted by a built-in rule, recorded without waiting. */
  readonly builtin: boolean;
  /** Set on a request of `server` to a client: `name` is then the agent (`app/agent`) whose client would be asked. */
  readonly serverRequest?: ServerRequest;
}

interface ServerRequest {
  /** What the call in flight is about, which the request belongs to. */
  readonly tool: string;
  /** Scopes of the asked agent's credential, and the user behind it. */
  readonly scope: readonly string[];
  readonly user?: string | undefined;
  readonly groups?: readonly string[] | undefined;
  /** An in-process server is the operator's own code: its requests need no permit, and a forbid still holds. */
  readonly permittedUnlessForbidden: boolean;
}

export interface PolicyInput {
  readonly principal: Principal;
  readonly method: string;
  readonly target: CallTarget;
  readonly arguments: JsonObject;
  readonly transport: string;
  /** Session of a revision that has sessions. */
  readonly session?: string | undefined;
  /** Under which the call is found in every log. */
  readonly trace?: string;
}
