// The client: connect to any MCP server, call its tools through a gate.

export type { ToolCall } from "./calls.js";
export type { Client, CompleteResult, ListOptions, PromptResult, ReadResult } from "./client.js";
export type { ConnectTarget, InProcessTarget, OAuthOptions } from "./connect.js";
export { connect } from "./connect.js";
export type { ConversationStats, Discovery } from "./conversation.js";
export {
  AuditFailure,
  type ChallengeInfo,
  ChallengeRequired,
  type DescribedError,
  errorObjectOf,
  McpError,
  PolicyViolation,
  ProtocolError,
  type RemoteChallenge,
  ToolFailure,
  type WaitOptions,
} from "./errors.js";
export type { ElicitationContext, ElicitationResult, InputContext, InputHandlers, Root } from "./inputs.js";
export type { RevisionName } from "./options.js";
export {
  type ClientLimits,
  type ConnectOptions,
  DEFAULT_CLIENT_LIMITS,
  DEFAULT_TIMEOUTS,
  type ListKind,
  type LogEntry,
  type Progress,
  type RequestOptions,
  type Timeouts,
} from "./options.js";
export type { CallerContext, SecureOptions, ToolSettings } from "./secure.js";
export type { ChangeEvent, Subscription, SubscriptionFilter } from "./subscriptions.js";
export { type AgentOptions, createAgent, toolset } from "./typed/agent.js";
export type { AgentConnectOptions } from "./typed/connection.js";
export { GuardrailBlocked } from "./typed/life.js";
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
} from "./typed/types.js";
