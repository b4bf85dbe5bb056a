// One line per call in the form of the host document: what was asked, what was decided, hashes instead of contents.

import { createHash } from "node:crypto";
import type { Policy } from "./policy/policy.js";

export type ToolName = "fs.read" | "fs.write" | "cmd.run";

export interface AuditSummary {
  readonly ts: string;
  readonly tool: ToolName;
  readonly decision: "allow" | "deny";
  readonly policyHash: string;
  readonly durationMs: number;
  readonly reqId?: string;
  readonly client?: string;
  /** Why not, or why it failed. */
  readonly code?: string;
  readonly rule?: string;
  readonly path?: string;
  readonly cwd?: string;
  readonly bytes?: number;
  readonly sha256?: string;
  readonly commandId?: string;
  readonly argsSha256?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly exitCode?: number | null;
  readonly timedOut?: boolean;
  readonly truncated?: boolean;
  readonly warning?: "OUTPUT_TRUNCATED";
}

export interface AuditFacts {
  path?: string | undefined;
  cwd?: string | undefined;
  bytes?: number | undefined;
  sha256?: string | undefined;
  commandId?: string | undefined;
  args?: readonly string[] | undefined;
  env?: ReadonlyMap<string, string> | undefined;
  exitCode?: number | null | undefined;
  timedOut?: boolean | undefined;
  truncated?: boolean | undefined;
}

/** Why a call was denied: by the host itself, or by another check. */
type Denied = { readonly code: string; readonly rule: string };

const MAX_LOGGED_CHARS = 1024;
const REDACTED = "[redacted]";

export class AuditClock {
  readonly #started = performance.now();
  readonly #ts = new Date().toISOString();

  /** A denial before anything ran is a deny; one after (timeout, I/O) is an allowed call that failed. */
  summary(
    tool: ToolName,
    policy: Policy,
    facts: AuditFacts,
    denied: Denied | undefined,
    reqId: string | undefined,
  ): AuditSummary {
    const isDeny = denied !== undefined && denied.code !== "TIMEOUT" && facts.exitCode === undefined;
    const { redact } = policy.logging;
    const shown = (name: "path" | "cwd", text: string | undefined): object =>
      text === undefined ? {} : { [name]: redact.includes(name) ? REDACTED : cut(text) };
    return {
      ts: this.#ts,
      ...(reqId === undefined ? {} : { reqId }),
      tool,
      decision: isDeny ? "deny" : "allow",
      ...(policy.client === undefined ? {} : { client: policy.client }),
      ...(denied === undefined ? {} : { code: denied.code, rule: denied.rule }),
      ...shown("path", facts.path),
      ...shown("cwd", facts.cwd),
      ...(facts.bytes === undefined ? {} : { bytes: facts.bytes }),
      ...(facts.sha256 === undefined ? {} : { sha256: facts.sha256 }),
      ...(facts.commandId === undefined ? {} : { commandId: cut(facts.commandId) }),
      ...(facts.args === undefined || redact.includes("args")
        ? {}
        : { argsSha256: sha256(JSON.stringify(facts.args)) }),
      ...(facts.env === undefined || facts.env.size === 0 ? {} : { env: shownEnv(facts.env, redact.includes("env")) }),
      ...(facts.exitCode === undefined ? {} : { exitCode: facts.exitCode }),
      ...(facts.timedOut === undefined ? {} : { timedOut: facts.timedOut }),
      ...(facts.truncated === true ? { truncated: true, warning: "OUTPUT_TRUNCATED" as const } : {}),
      policyHash: policy.hash,
      durationMs: Math.round(performance.now() - this.#started),
    };
  }
}

/** The line of a call that was refused before any tool saw it: nothing is known but what was asked. */
export function deniedSummary(
  tool: ToolName,
  policy: Policy,
  args: unknown,
  denied: Denied,
  reqId: string | undefined,
): AuditSummary {
  const asked = (field: string): string | undefined => {
    const value = typeof args === "object" && args !== null ? (args as Record<string, unknown>)[field] : undefined;
    return typeof value === "string" ? value : undefined;
  };
  const facts = { path: asked("path"), cwd: asked("cwd"), commandId: asked("commandId") };
  return new AuditClock().summary(tool, policy, facts, denied, reqId);
}

/** What is longer is cut, and its hash stands beside what is left. */
function cut(text: string): string {
  return text.length <= MAX_LOGGED_CHARS ? text : `${text.slice(0, MAX_LOGGED_CHARS)}… (sha256 ${sha256(text)})`;
}

function shownEnv(env: ReadonlyMap<string, string>, hidden: boolean): Record<string, string> {
  return Object.fromEntries(Array.from(env, ([name, value]) => [name, hidden ? REDACTED : cut(value)]));
}

export function sha256(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}
