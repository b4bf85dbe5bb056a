// The first Cedar policy of a host: it permits the three tools, so that policy.yaml alone decides until the operator adds
// rules. It is written out a second time as a loaded set: starting Cedar for it would take longer than all the rest.

import { createHash } from "node:crypto";
import type { PolicyDecision, PolicyRequest, PolicySet } from "../../policy/index.js";
import type { StarterPolicy } from "../starters.js";

export const HOST_APP = "host";
export const HOST_TOOLS: ReadonlySet<string> = new Set(["fs.read", "fs.write", "cmd.run"]);

const NAME = "host.cedar";
const RULE = `@id("host")
permit (
  principal in App::"host",
  action in [Action::"fs.read", Action::"fs.write", Action::"cmd.run"],
  resource
);`;
const TEXT = `// What policy.yaml permits, these rules permit too. Add rules here to forbid more, to ask for an approval
// (@outcome("challenge")) or to cut and redact results; edit the file, and it applies at once.
// policy.yaml still decides: a rule here never opens what it denies.
${RULE}
`;

const RULE_LINE = TEXT.split("\n").indexOf('@id("host")') + 1;
const PERMITTED = { id: "host", file: NAME, line: RULE_LINE };

/** INVARIANT: the set decides every request as the text does. */
export const HOST_STARTER: StarterPolicy & { readonly set: PolicySet } = { name: NAME, text: TEXT, set: loaded() };

function loaded(): PolicySet {
  const covers = ({ app, action, serverRequest }: Pick<PolicyRequest, "app" | "action" | "serverRequest">): boolean =>
    app === HOST_APP && HOST_TOOLS.has(action) && serverRequest === undefined;
  const decide = (request: PolicyRequest): PolicyDecision => {
    const nothingMore = { approvers: [], obligations: [], errors: [] };
    return covers(request)
      ? { effect: "permit", rules: [PERMITTED], reason: "", ...nothingMore }
      : { effect: "deny", rules: [], reason: "no matching rule", ...nothingMore };
  };
  const digest = createHash("sha256").update(RULE).digest("hex");
  return {
    hash: digest,
    rules: [{ ...PERMITTED, effect: "permit", text: RULE, digest }],
    warnings: [],
    usesWasmFallbackFor: [],
    conditions: [],
    decide,
    explain: (request) => ({ decision: decide(request), rules: [] }),
    outlook: (request) => (covers(request) ? "possible" : "never"),
  };
}
