// What an agent answers when it is misused in a way that the compiler would have refused.

import type { Rule } from "../../../policy/index.js";
import { type ErrorDetail, PolicyViolation, ProtocolError } from "../errors.js";

/** A guardrail said no, or there is no valid token. Nothing ran. A decision about the task, not a broken connection. */
export class GuardrailBlocked extends PolicyViolation {
  readonly agent: string;
  readonly tool: string;
  constructor(agent: string, tool: string, reason: string, detail: ErrorDetail = {}) {
    super("GuardrailBlocked", reason, detail);
    this.agent = agent;
    this.tool = tool;
  }
}

const by = (id: string): readonly Rule[] => [{ id }];
const MAX_SHOWN = 8;

export function notHeld(agent: string, tool: unknown, held: ReadonlySet<string>): PolicyViolation {
  const names = [...held].slice(0, MAX_SHOWN).map((name) => `\`${name}\``);
  const more = held.size > MAX_SHOWN ? ` and ${held.size - MAX_SHOWN} more` : "";
  const holds = names.length === 0 ? "nothing" : `${names.join(", ")}${more}`;
  return new PolicyViolation(
    "AuthorizationError",
    `\`${String(tool)}\` is not within the capabilities of agent \`${agent}\`, which holds ${holds}`,
    { rules: by("capability"), suggestions: ["Ask an agent that holds it to make the call or to delegate it"] },
  );
}

export function noToken(agent: string, tool: string, problem: string): GuardrailBlocked {
  return new GuardrailBlocked(agent, tool, `\`${tool}\` was not called for agent \`${agent}\`: ${problem}`, {
    rules: by("guardrail.token"),
    suggestions: [`Get a token with guard(${JSON.stringify(tool)}, …) of this very agent, and spend it once`],
  });
}

export function needsGuardrail(agent: string, tool: string, why: string): GuardrailBlocked {
  return new GuardrailBlocked(agent, tool, `\`${tool}\` needs a guardrail token of agent \`${agent}\`: ${why}`, {
    rules: by("guardrail.token"),
    suggestions: [`Get a token with guard(${JSON.stringify(tool)}, …)`],
  });
}

export function wrongPhase(agent: string, what: string, problem: string): ProtocolError {
  return new ProtocolError("WrongPhase", `agent \`${agent}\` cannot ${what}: ${problem}`, { rules: by("phase") });
}

export function stale(agent: string, what: string, why: string): ProtocolError {
  return new ProtocolError("WrongPhase", `agent \`${agent}\` is stale and cannot ${what}: ${why}`, {
    rules: by("agent.stale"),
  });
}
