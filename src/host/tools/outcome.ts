// What a tool function returns, and the decision before it runs.

import { pathText, type Shape, type ShapeProblem } from "../../mcp/index.js";
import type { AuditClock, AuditFacts, AuditSummary, ToolName } from "../audit.js";
import { type Denial, denial, quoteValue } from "../denial.js";
import type { LocatedPlace } from "../paths/locate.js";
import type { SandboxMode } from "../policy/document.js";
import type { Policy } from "../policy/policy.js";

export type HostOutcome<R> =
  | { readonly ok: true; readonly result: R; readonly audit: AuditSummary }
  | {
      readonly ok: false;
      readonly denial: Denial;
      readonly audit: AuditSummary;
      /** Output of a command before its time limit. */
      readonly partial?: R;
    };

/** What an allowed call would do, for an explanation before it happens. */
export type Would =
  | { readonly tool: "fs.read"; readonly path: string; readonly offset: number; readonly bytes: number }
  | { readonly tool: "fs.write"; readonly path: string; readonly bytes: number; readonly replaces: boolean }
  | {
      readonly tool: "cmd.run";
      readonly commandId: string;
      readonly program: string;
      readonly args: readonly string[];
      readonly cwd: string | undefined;
      readonly env: Readonly<Record<string, string>>;
      readonly timeoutMs: number;
      readonly maxOutputBytes: number;
      readonly network: boolean;
      readonly sandbox: SandboxMode;
      /** Writable roots that are open to it, and those inside them that are not. */
      readonly writes: readonly string[];
      readonly exceptIn: readonly string[];
      readonly maxFileBytes: number;
    };

/** The host policy as a check of the gate. It runs before any effect; execution checks again. */
export type HostDecision =
  | { readonly effect: "permit"; readonly rule: string; readonly would?: Would }
  | { readonly effect: "deny"; readonly rule: string; readonly denial: Denial };

export interface HostCallContext {
  readonly signal?: AbortSignal;
  readonly reqId?: string;
}

export function checkArguments<T>(shape: Shape<T>, args: unknown): T | Denial {
  const problems: ShapeProblem[] = [];
  const checked = shape.check(args, [], problems);
  if (checked !== undefined) return checked;
  const [first] = problems;
  const field = first === undefined ? "" : pathText(first.path);
  const shown = field === "" ? "arguments" : quoteValue(field);
  return denial(
    "INVALID_ARGS",
    "schema",
    `${shown}: ${first?.message ?? "is not valid"}`,
    field === "" ? {} : { field: field.slice(0, 200) },
  );
}

/** `allowedRoots ~/code (policy.yaml:7)`: which list, which directory, and where the operator wrote it. */
export function placeRule(list: "allowedRoots" | "writeRules", place: LocatedPlace | undefined): string {
  if (place === undefined) return list;
  return `${list} ${place.written}${place.origin === undefined ? "" : ` (${place.origin})`}`;
}

export function denyHostCall(denied: Denial): HostDecision {
  return { effect: "deny", rule: denied.rule, denial: denied };
}

/** An error while deciding or executing is a denial too; its text may name paths and stays with the operator. */
export function internalDenial(error: unknown): Denial {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  return denial("INTERNAL", "internal", `the host failed${typeof code === "string" ? ` (${code})` : ""}`);
}

export class Reporter {
  readonly #clock: AuditClock;
  readonly #tool: ToolName;
  readonly #policy: Policy;
  readonly #reqId: string | undefined;

  constructor(clock: AuditClock, tool: ToolName, policy: Policy, context: HostCallContext) {
    this.#clock = clock;
    this.#tool = tool;
    this.#policy = policy;
    this.#reqId = context.reqId;
  }

  done<R>(result: R, facts: AuditFacts): HostOutcome<R> {
    return { ok: true, result, audit: this.#clock.summary(this.#tool, this.#policy, facts, undefined, this.#reqId) };
  }

  denied<R>(denied: Denial, facts: AuditFacts, partial?: R): HostOutcome<R> {
    const audit = this.#clock.summary(this.#tool, this.#policy, facts, denied, this.#reqId);
    return partial === undefined ? { ok: false, denial: denied, audit } : { ok: false, denial: denied, audit, partial };
  }
}
