// What a tool function gives back, and what the gate hears when it only asks.

import { type AuditClock, type AuditFacts, type AuditSummary, type ToolName } from "../audit.js";
import { type Denial, denial, quoteValue } from "../denial.js";
import type { LocatedPlace } from "../paths/index.js";
import type { Policy, SandboxMode } from "../policy/index.js";
import { pathText, type ShapeProblem, type Shape } from "../../mcp/index.js";

export type HostOutcome<R> =
  | { readonly ok: true; readonly result: R; readonly audit: AuditSummary }
  | {
      readonly ok: false;
      readonly denial: Denial;
      readonly audit: AuditSummary;
      /** What a command had said before its time ran out. */
      readonly partial?: R;
    };

/** What an allowed call would do, for whoever asks before it happens. */
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
      /** Zones that are open to it, and those inside them that are not. */
      readonly writes: readonly string[];
      readonly exceptIn: readonly string[];
      readonly maxFileBytes: number;
    };

/** The policy's voice in the gate's decision. Nothing has happened yet, and executing checks again. */
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

/** `allowedRoots ~/code (policy.yaml:7)`: which list, which folder, and where the operator wrote it. */
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
