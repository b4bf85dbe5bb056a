// Agents whose capabilities, guardrails and phases the compiler checks.

export { type AgentOptions, createAgent } from "./agent.js";
export type { AgentConnectOptions } from "./connection.js";
export { GuardrailBlocked } from "./refusals.js";
export { toolset } from "./toolset.js";
export type {
  Agent,
  AgentGuardrail,
  AgentGuardrails,
  AgentPhase,
  CapabilitiesOf,
  DelegateOptions,
  GuardrailToken,
  ToolMap,
  Toolset,
  UncheckedInvocation,
} from "./types.js";
