// The shipped rules of information flow, as Cedar like every other rule.

import { quoteString } from "../cedar/language/scan.js";
import type { FlowLabels } from "./labels.js";

const FLOW_RULES_FILE = "flow.cedar (shipped)";

/** The rules for an application with these labels, by file name; none where the operator wrote `rules: none`. */
export function flowRules(labels: FlowLabels | undefined): Readonly<Record<string, string>> {
  if (labels === undefined || labels.rules === "none") return {};
  const approvers = quoteString((labels.approvers ?? ["operators"]).join(", "));
  return {
    [FLOW_RULES_FILE]: `// A call that sends or changes something, with a destination or payload out of untrusted content.
@id("flow.untrusted-origin")
@outcome("challenge")
@approvers(${approvers})
@reason("a destination or a payload of this call was in untrusted content and in nothing trusted")
forbid (principal, action in Action::"tools/call", resource)
when {
  !context.flow.does.isEmpty() &&
  (context.flow.destination == "untrusted" || context.flow.payload == "untrusted")
}
unless { context.approved };

// A call that sends something outside, after private data was read.
@id("flow.private-data")
@outcome("challenge")
@approvers(${approvers})
@reason("this call sends outside, and private data was read before it")
forbid (principal, action in Action::"tools/call", resource)
when { context.flow.does.contains("sends-outside") && context.flow.private }
unless { context.approved };
`,
  };
}
