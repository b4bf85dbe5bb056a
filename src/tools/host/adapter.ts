// The one adapter from the host's decisions and outcomes to those of the gateway, for the three host tools and for core.*.

import type { CmdContext, Denial, DenialCode, DirectoryDecision, HostOutcome } from "../../host/index.js";
import { type ErrorType, Fault } from "../../mcp/index.js";
import type { CallContext } from "../../mcp/server/index.js";
import { type CheckResult, deny, PERMIT } from "../../policy/index.js";

const ERROR_TYPES: Readonly<Record<DenialCode, ErrorType>> = {
  POLICY_DENY: "PolicyDeny",
  INVALID_ARGS: "ValidationError",
  TIMEOUT: "ToolTimeout",
  IO_ERROR: "IoError",
  INTERNAL: "InternalError",
};

export function hostCheckResult(decision: DirectoryDecision): CheckResult {
  if (decision.effect === "permit") return { ...PERMIT, rules: [{ id: decision.rule }] };
  const { code, rule, reason, field, suggestions } = decision.denial;
  return deny(ERROR_TYPES[code], rule, reason, { field, suggestions });
}

/** `hostFault` is a denial as a fault. What a command had written before its time limit goes with it as `partial`. */
export function hostFault(tool: string, denial: Denial, partial?: unknown): Fault {
  const { code, reason, rule, field, suggestions, timeoutMs } = denial;
  const timedOut = code === "TIMEOUT" ? { timedOut: true, tool_name: tool, timeout_ms: timeoutMs } : {};
  const extra = { ...timedOut, ...(partial === undefined ? {} : { partial }) };
  return new Fault(ERROR_TYPES[code], reason, { rule, field, suggestions, extra });
}

/** `hostResult` is the result of a call that was done; throws the fault of one that was not. */
export function hostResult<R>(tool: string, outcome: Pick<HostOutcome<R>, "ok"> & HostOutcome<R>): R {
  if (outcome.ok) return outcome.result;
  throw hostFault(tool, outcome.denial, outcome.partial);
}

/** `outputProgress` reports the output of a command as progress of its call. */
export function outputProgress(context: CallContext): NonNullable<CmdContext["onOutput"]> {
  let seen = 0;
  return (stream, chunk) => {
    seen += chunk.length;
    context.progress(seen, undefined, `${stream}: ${seen} bytes`);
  };
}
