// For tests alone: the same request through Cedar's own evaluator, in Cedar's own semantics.

import { withCedar } from "./cedar.js";
import { encodeRecord } from "./encode.js";
import { requestFor, toCedarJson } from "./fallback.js";
import type { Frame } from "./frame.js";

export interface OracleAnswer {
  readonly allow: boolean;
  readonly reasons: string[];
  readonly errors: string[];
}

/** INVARIANT: every argument has a Cedar form. */
export function askOracle(
  policies: Readonly<Record<string, string>>,
  frame: Frame,
  tools: readonly string[],
): OracleAnswer {
  const context = {
    arguments: toCedarJson(encodeRecord(frame.input.arguments, frame.info.shape, "")),
    approved: frame.approved,
    transport: frame.input.transport,
  };
  const answer = withCedar((cedar) =>
    cedar.isAuthorized({
      ...requestFor(frame, tools),
      context: context as unknown as Record<string, never>,
      policies: { staticPolicies: { ...policies } },
    }),
  );
  if (answer.type === "failure") throw new Error(answer.errors.map((error) => error.message).join("; "));
  const { decision, diagnostics } = answer.response;
  return {
    allow: decision === "allow",
    reasons: [...diagnostics.reason].sort(),
    errors: diagnostics.errors.map((error) => error.policyId).sort(),
  };
}
