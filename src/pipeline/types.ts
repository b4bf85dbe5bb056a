import type { LedgerEntry, OutcomeEntry } from "../ledger/index.js";
import {
  DEFAULT_MAX_VALUES,
  type JsonObject,
  type JsonValue,
  type RequestId,
  type RetainedBytes,
  type Revision,
} from "../mcp/index.js";
import type { LogLevel, ServerDefinition, ToolResult, Validation } from "../mcp/server/index.js";
import type { CallTarget, Decision, Gate, Principal } from "../policy/index.js";
import type { CallSpan, Telemetry } from "../telemetry/index.js";
import type { RunContext } from "./call-context.js";
import type { CallsInFlight, Refusals } from "./calls-in-flight.js";
import type { Cancel } from "./cancel.js";
import type { ClientRequest } from "./client-request.js";
import type { StateCipher } from "./encrypted-state.js";
import type { Forwards } from "./route.js";

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
  /** An unused session ends after this time. */
  sessionIdleMs: number;
  maxListenStreams: number;
  /** Largest result text; more is cut where it can be cut and refused where it cannot. */
  maxResultBytes: number;
  /** Entries in one page of a list. */
  pageSize: number;
  toolTimeoutMs: number;
  /** Validation of the arguments and the result of one call of an upstream tool. */
  validationTimeoutMs: number;
  /** How long a request to the client may stay open. */
  askTimeoutMs: number;
  /** How long a call that needs an approval waits before it is answered as pending. */
  challengeWaitMs: number;
  /** How deep tools may call tools. */
  maxCallDepth: number;
  /** Refused calls of one credential that are decided and recorded each; past it they are refused unseen. */
  refusalsPerMinute: number;
  /** Bytes of callers that are kept: messages until they are answered, replay buffers, unsent answers. */
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
  validationTimeoutMs: 5_000,
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

/** The part of a ledger that calls are recorded in. A returned promise is awaited before the call continues. */
interface CallLedger {
  append(entry: LedgerEntry): Promise<unknown>;
  appendSoon(entry: LedgerEntry): Promise<unknown> | void;
  appendOutcome(entry: OutcomeEntry): Promise<unknown> | undefined;
}

/** `Pipeline` is what the calls of one application, or of one client, share. */
export interface Pipeline {
  readonly gate: Gate;
  /** Absent only where a library user chose to keep no ledger. */
  readonly ledger: CallLedger | undefined;
  /** Record calls that were not permitted, and approvals, too. False only where a library user did not choose it. */
  readonly recordDenials: boolean;
  /** Keep the arguments in the ledger, for replay. */
  readonly keepArguments: boolean;
  readonly telemetry: CallTelemetry;
  readonly limits: GatewayLimits;
  /** What callers make this process keep. */
  readonly retained: RetainedBytes;
  readonly calls: CallsInFlight;
  readonly refusals: Refusals;
  readonly stateCipher: StateCipher;
  /** The page of an approval request, as callers see its URL. */
  readonly approvalUrl?: ((challenge: string) => string | undefined) | undefined;
  /** Further addresses of the approval page, which no server may ask users to open. */
  readonly approvalAddresses?: (() => readonly string[]) | undefined;
  /** Called for every call that found its tool and was not permitted, before it is answered. */
  readonly onDenied?: ((call: DeniedCall) => void) | undefined;
  /** Routes a request that has no route yet, or throws the fault that answers it. */
  resolveRoute(principal: Principal, method: string, params: JsonObject): Route;
  /** A tool calls a tool: same caller, same gate, one level deeper. */
  callTool(outer: CallRequest, tool: string, args: JsonObject): Promise<ToolResult>;
  /** Sends a server's request to the client of a call in flight: the server's own action, decided and recorded as such. */
  sendClientRequest(request: ClientRequest): Promise<JsonObject>;
}

/** The part of telemetry that calls use. */
export interface CallTelemetry extends Pick<Telemetry, "startCall"> {
  readonly log: Pick<Telemetry["log"], "debug" | "warning" | "error">;
  readonly metrics: {
    readonly shed: Pick<Telemetry["metrics"]["shed"], "inc">;
    readonly droppedFields: Pick<Telemetry["metrics"]["droppedFields"], "add">;
  };
}

/** What `routeFor` resolves methods and names against. */
export interface RouteTable {
  readonly server: ServerDefinition;
  /** Declared by the operator: the decision of such a tool is written without waiting for the disk. */
  readonly readOnlyTools: ReadonlySet<string>;
  /** Declared by the operator: tools that need no guardrail. */
  readonly unguardedTools: ReadonlySet<string>;
  readonly limits: Pick<GatewayLimits, "toolTimeoutMs">;
}

interface DeniedCall {
  readonly principal: Principal;
  readonly tool: string;
  readonly arguments: JsonObject;
  readonly trace: string;
  readonly decision: Decision;
}

/** `Route` is what a request is about, and how it would run. */
export interface Route extends CallTarget {
  readonly arguments: JsonObject;
  readonly timeoutMs: number;
  readonly hasOutputSchema: boolean;
  /** Fields beside the arguments that the server receives; every foreign field unless given. */
  readonly forwards?: Forwards | undefined;
  /** Those fields themselves, where the caller's own process made the route; otherwise the request's parameters have them. */
  readonly forwarded?: JsonObject;
  validate(args: JsonObject): Validation | Promise<Validation>;
  validateOutput(value: JsonValue | undefined): Validation | Promise<Validation>;
  run(context: RunContext): Promise<JsonObject | RawResult> | JsonObject | RawResult;
}

/**
 * A result that is already text: the inside of the result object, without its braces. `value` is the same, parsed,
 * where it came from an upstream server.
 */
export class RawResult {
  readonly inside: string;
  readonly value: JsonObject | undefined;
  constructor(inside: string, value?: JsonObject) {
    this.inside = inside;
    this.value = value;
  }
}

/** `Relayed` is set on tools, resources and prompts of upstream servers: how they are reached. */
export interface Relayed {
  /** As the operator named it. */
  readonly server: string;
  /** Which server behind which connection: part of the intent. */
  readonly binding: string;
  readonly forwards: Forwards;
  relay(context: RunContext): Promise<JsonObject | RawResult>;
}

/** `ClientSession` is the session of a client whose revision has sessions. */
export interface ClientSession {
  readonly id: string;
  onEnd(listener: () => void): void;
}

/** `Conversation` reaches the caller while its call runs. */
export interface Conversation {
  readonly session?: ClientSession;
  readonly clientCapabilities: JsonObject;
  readonly logLevel: LogLevel | undefined;
  /** A notification that belongs to this call. False when the reader is slow. */
  notify(method: string, params: JsonObject): boolean;
  drained(): Promise<void>;
  /** A request to the client, where the revision has them. */
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
  /** Session of a revision that has sessions. */
  readonly session?: string | undefined;
  readonly cancel: Cancel;
  /** The result as text, in the form of the caller's revision. */
  readonly render: (result: JsonObject | RawResult) => string;
  readonly span: CallSpan;
  /** Nesting of tools that call tools. */
  readonly depth: number;
}

/** `SILENT` is the conversation of a call that has no client to notify. */
export const SILENT: Conversation = {
  clientCapabilities: {},
  logLevel: undefined,
  notify: () => true,
  drained: () => Promise.resolve(),
};
