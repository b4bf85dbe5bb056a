// A server that counts everything that really reached it, behind a policy that says something different of each part.

import { type Ledger, openLedger } from "../../src/ledger/index.js";
import { createServer, type RunOptions, type Server } from "../../src/server.js";

export interface Counting {
  server: Server;
  /** How often something ran, by what it was. */
  readonly reached: Map<string, number>;
}

export const POLICY = `
@id("open") permit (principal, action in [Action::"open.write", Action::"resources/read", Action::"prompts/get", Action::"completion/complete", Action::"resources/subscribe"], resource);
@id("closed-things") forbid (principal, action in [Action::"resources/read", Action::"resources/subscribe"], resource == Resource::"count://closed");
@id("closed-prompts") forbid (principal, action in [Action::"prompts/get", Action::"completion/complete"], resource == Prompt::"closed");
@id("ask") @outcome("challenge") @approvers("operators") forbid (principal, action == Action::"asked.write", resource) unless { context.approved };
@id("ask-resource") @outcome("challenge") @approvers("operators") forbid (principal, action == Action::"resources/read", resource == Resource::"count://asked") unless { context.approved };
@id("ask-prompt") @outcome("challenge") @approvers("operators") forbid (principal, action == Action::"prompts/get", resource == Prompt::"asked") unless { context.approved };
@id("asked") permit (principal, action == Action::"asked.write", resource);
`;

export function countingServer(options: RunOptions = {}): Counting {
  const reached = new Map<string, number>();
  const count = (what: string): string => {
    reached.set(what, (reached.get(what) ?? 0) + 1);
    return what;
  };
  const server = createServer({ name: "counting", version: "1.0.0" }, { policy: POLICY, ...options });
  const schema = {
    type: "object",
    properties: { text: { type: "string", maxLength: 1000 } },
    required: ["text"],
    additionalProperties: false,
  } as const;
  for (const kind of ["open", "closed", "asked"]) {
    server
      .tool(`${kind}.write`, kind, schema, () => count(`tools/call ${kind}`), { noGuardrailRequired: true })
      .resource(`count://${kind}`, kind, () => count(`resources/read ${kind}`))
      .prompt(kind, kind, { name: {} }, () => count(`prompts/get ${kind}`), {
        complete: { name: () => [count(`completion/complete ${kind}`)] },
      });
  }
  // Has no guardrail, and nobody said that it needs none.
  server.tool("bare.write", "bare", schema, () => count("tools/call bare"));
  return { server, reached };
}

/** A ledger that takes nothing any more. */
export async function brokenLedger(dir: string): Promise<Ledger> {
  const ledger = await openLedger({ dir, origin: "example.com/broken" });
  await ledger.close();
  return ledger;
}
