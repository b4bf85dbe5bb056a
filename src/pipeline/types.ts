import type { Decision, Gate, Principal, CallTarget } from "../policy/index.js";
import type { Identify } from "../auth/index.js";
import type { Ledger } from "../ledger/index.js";
import {
  DEFAULT_MAX_VALUES,
  type JsonObject,
  type JsonValue,
  type RequestId,
  type RetainedBytes,
  type Revision,
} from "../mcp/index.js";
import type { CallSpan, Telemetry } from "../telemetry/index.js";
import type { LogLevel, ServerDefinition, ToolResult, Validation } from "../mcp/server/index.js";
import type { CallsInFlight } from "./calls-in-flight.js";
import type { Cancel } from "./cancel.js";
import type { ClientRequest } from "./client-request.js";
import type { Forwards } from "./forward.js";
import type { Lists } from "./lists.js";
import type { Refusals } from "./refusals.js";
import type { RunContext } from "./call-context.js";
import type { StateCipher } from "./encrypted-state.js";

export interface GatewayLimits {
  /** Nesting of a message. */
  maxDepth: number;
  /** Values (members, items) in a message. */
  maxValues: number;
  maxBatch: number;
  /** Requests under way on one connection or session. */
  maxOpenRequests: number;
  maxSessions: number;
  /** Of them, by one agent: the oldest that is idle makes room for the next. */
  maxAgentSessions: number;
  /** A session nobody uses is forgotten. */
  sessionIdleMs: number;
  maxListenStreams: number;
  /** Largest result text; more is cut where it can be cut and refused where it cannot. */
  maxResultBytes: number;
  /** Entries in one page of a list. */
  pageSize: number;
  toolTimeoutMs: number;
  /** How long a question to the client may stay open. */
  askTimeoutMs: number;
  /** How long a challenged call waits for a person before it is answered as pending. */
  challengeWaitMs: number;
  /** How deep tools may call tools. */
  maxCallDepth: number;
  /** Refused calls of one credential that are decided and recorded each; past it they are refused unseen. */
  refusalsPerMinute: number;
  /** Bytes of callers that are kept beyond a turn: messages until they are answered, replay buffers, unsent answers. */
  maxRetainedBytes: number;
  /** Of them, those of one application, and of one agent. */
  maxAppRetainedBytes: number;
  maxAgentRetainedBytes: number;
  /** Calls in flight in this process. */
  maxCalls: number;
  /** Of them, those of one application, and of one agent. */
  maxAppCalls: number;
  maxAgentCalls: number;
  /** A request that waited longer for its turn is refused. */
  queueDeadlineMs: number;
  /** Requests of one upstream server to clients (sampling, elicitation, roots). */
  serverRequestsPerMinute: number;
  /** Size of one such request, as JSON. */
  maxClientRequestBytes: number;
}

export const DEFAULT_GATEWAY_LIMITS: GatewayLimits = {
  maxDepth: 128,
  maxValues: DEFAULT_MAX_VALUES,
  maxBatch: 100,
  maxOpenRequests: 256,
  maxSessions: 10_000,
  maxAgentSessions: 200,
  sessionIdleMs: 30 * 60_000,
  maxListenStreams: 1_000,
  maxResultBytes: 4 * 1024 * 1024,
  pageSize: 1_000,
  toolTimeoutMs: 30_000,
  askTimeoutMs: 5 * 60_000,
  challengeWaitMs: 0,
  maxCallDepth: 8,
  refusalsPerMinute: 3_000,
  maxRetainedBytes: 160 * 1024 * 1024,
  maxAppRetainedBytes: 64 * 1024 * 1024,
  maxAgentRetainedBytes: 32 * 1024 * 1024,
  maxCalls: 4_096,
  maxAppCalls: 2_048,
  maxAgentCalls: 1_024,
  queueDeadlineMs: 5_000,
  serverRequestsPerMinute: 60,
  maxClientRequestBytes: 1024 * 1024,
};

export interface Gateway {
  readonly server: ServerDefinition;
  readonly gate: Gate;
  /** Absent only where a library user chose to keep no ledger. */
  readonly ledger: Ledger | undefined;
  readonly identify: Identify;
  readonly telemetry: Telemetry;
  readonly limits: GatewayLimits;
  /** What callers make this process keep. */
  readonly retained: RetainedBytes;
  readonly calls: CallsInFlight;
  /** Tools that are also plain JSON-RPC methods, without a handshake. */
  readonly plainMethods: ReadonlySet<string>;
  /** Said by the operator: the decision of such a tool is written without waiting for the disk. */
  readonly readOnlyTools: ReadonlySet<string>;
  /** Said by the operator for tools of others that need no guardrail. */
  readonly unguardedTools: ReadonlySet<string>;
  /** Keep the arguments in the ledger, for replay. */
  readonly keepArguments: boolean;
  /** Where a person answers a challenge, as callers may be told. */
  readonly approvalUrl?: ((challenge: string) => string | undefined) | undefined;
  /** Further addresses of the page where calls are approved, which no server may send people to. */
  readonly approvalAddresses?: (() => readonly string[]) | undefined;
  /** Called for every call that found its tool and was not permitted, before it is answered. */
  readonly onDenied?: ((call: DeniedCall) => void) | undefined;
  readonly seal: StateCipher;
  readonly lists: Lists;
  readonly refusals: Refusals;
  /** A tool calls a tool: same caller, same gate, one level deeper. */
  callTool(outer: CallRequest, tool: string, args: JsonObject): Promise<ToolResult>;
  /** A server asks the client of a call in flight: the server's own action, decided and recorded as such. */
  askClient(request: ClientRequest): Promise<JsonObject>;
}

export interface DeniedCall {
  readonly principal: Principal;
  readonly tool: string;
  readonly arguments: JsonObject;
  readonly trace: string;
  readonly decision: Decision;
}

/** A proposal that found its way: what it is about, and how it would run. */
export interface Route extends CallTarget {
  readonly arguments: JsonObject;
  readonly timeoutMs: number;
  readonly hasOutputSchema: boolean;
  /** Fields beside the arguments that the server receives; every foreign field unless given. */
  readonly forwards?: Forwards;
  validate(args: JsonObject): Validation | Promise<Validation>;
  validateOutput(value: JsonValue | undefined): Validation | Promise<Validation>;
  run(context: RunContext): Promise<JsonObject | RawResult> | JsonObject | RawResult;
}

/**
 * A result that is already text: the inside of the result object, without its braces. `value` is the same, parsed,
 * where it came from a downstream server: what has to look into it looks there.
 */
export class RawResult {
  readonly inside: string;
  readonly value: JsonObject | undefined;
  constructor(inside: string, value?: JsonObject) {
    this.inside = inside;
    this.value = value;
  }
}

/** How what a downstream server does is reached; on tools, resources and prompts that are not ours. */
export interface Relayed {
  /** As the operator named it. */
  readonly server: string;
  /** Which server behind which connection: part of the intent. */
  readonly binding: string;
  readonly forwards: Forwards;
  relay(context: RunContext): Promise<JsonObject | RawResult>;
}

/** The way back to whoever proposed the call. */
export interface Conversation {
  readonly clientCapabilities: JsonObject;
  readonly logLevel: LogLevel | undefined;
  /** A notification that belongs to this call. False when the reader is slow. */
  notify(method: string, params: JsonObject): boolean;
  drained(): Promise<void>;
  /** A question to the client, where the revision has them. */
  request?(method: string, params: JsonObject, cancel: Cancel): Promise<JsonObject>;
}

export interface CallRequest {
  readonly principal: Principal;
  readonly method: string;
  readonly params: JsonObject;
  /** Set where the endpoint itself is the target (lists, log levels, subscriptions). */
  readonly route?: Route;
  readonly requestId: RequestId | undefined;
  readonly revision: Revision;
  readonly transport: string;
  readonly conversation: Conversation;
  readonly cancel: Cancel;
  /** The result as text, in the words of the caller's revision. */
  readonly render: (result: JsonObject | RawResult) => string;
  readonly span: CallSpan;
  /** How many tools have called tools to get here. */
  readonly depth: number;
}

export type JsonRecord = Record<string, JsonValue>;

/** `SILENT` is the conversation of a call that has no client to notify. */
export const SILENT: Conversation = {
  clientCapabilities: {},
  logLevel: undefined,
  notify: () => true,
  drained: () => Promise.resolve(),
};
