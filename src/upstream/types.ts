// What the gateway sees of a downstream MCP server: one way to ask, whatever the server speaks and however it is
// reached. Ids and progress tokens towards the server are made here and never leave this module.

import type { Containment, ServerProtections, ServerSandbox } from "../host/index.js";
import type { ByteBudget, JsonObject, TimeShare } from "../mcp/index.js";
import type {
  Credentials,
  SessionAnswer,
  SessionCall,
  SessionChange,
  SessionConnection,
  SessionContext,
  SessionCounts,
  SessionLimits,
  SessionTimeouts,
} from "../mcp/session/index.js";
import type { Dialer } from "./dialer.js";

export type UpstreamState = "idle" | "starting" | "ready" | "failed" | "stopped";

export interface Upstream {
  readonly name: string;
  readonly state: UpstreamState;
  /** What was negotiated; undefined until the first connection. A restarted server may speak another. */
  readonly revision: string | undefined;
  /** Starts the server if it has to; resolves when it can be called. Calls do this by themselves. */
  start(): Promise<void>;
  /** Everything the server offers, all pages. Read once for each connection and again after a change. */
  catalogue(): Promise<Catalogue>;
  /**
   * One request, one answer. Rejects with a Fault when there is no answer: the server cannot be reached, is in
   * trouble (circuit open), answered nonsense, ran out of time, or the call was cancelled. `fault.detail.extra`
   * then has `server` and `delivered`: false when the request certainly never reached the server.
   */
  request(call: UpstreamCall): Promise<UpstreamAnswer>;
  /** Subscribes to changes of this resource; resolves to a function that ends it. */
  watch(uri: string): Promise<() => Promise<void>>;
  /** The listener must not throw. Returns a function that ends it. */
  onChange(listener: (change: UpstreamChange) => void): () => void;
  health(): UpstreamHealth;
  /** Ends the calls under way, then the server with everything it started. For good. */
  close(): Promise<void>;
}

export interface UpstreamCall extends SessionCall {
  /**
   * The definition that the call was decided for. The call then waits until the server's definitions were read on the
   * connection it is sent on, and is sent only when this one is among them. `any`: nothing in particular is expected.
   */
  readonly expects?: ExpectedDefinition;
}

export type ExpectedDefinition =
  | { readonly kind: "tool" | "prompt" | "template"; readonly name: string; readonly definition: JsonObject }
  | "any";

/** The server's own definitions as it sent them, unknown fields included. None of it is to be trusted. */
export interface Catalogue {
  readonly revision: string;
  readonly serverInfo: JsonObject | undefined;
  readonly instructions: string | undefined;
  readonly capabilities: JsonObject;
  readonly tools: readonly JsonObject[];
  readonly resources: readonly JsonObject[];
  readonly resourceTemplates: readonly JsonObject[];
  readonly prompts: readonly JsonObject[];
}

export type {
  CallHooks,
  Cancellation,
  Credentials,
  CredentialsRefused,
  QuestionMethod,
  ServerErrorObject,
} from "../mcp/session/index.js";
export type UpstreamAnswer = SessionAnswer;
export type UpstreamChange = SessionChange;

export interface UpstreamHealth {
  readonly state: UpstreamState;
  readonly transport: TransportName;
  readonly revision: string | undefined;
  readonly circuit: "closed" | "open" | "half-open";
  /** When the next try is allowed, while the circuit is open; milliseconds since 1970. */
  readonly retryAt: number | undefined;
  readonly inFlight: number;
  readonly queued: number;
  readonly counts: Readonly<UpstreamCounts>;
  /** How often the connection was made again after it had been lost. */
  readonly restarts: number;
  /** The cause is for the operator alone: it may hold anything that the server wrote. */
  readonly lastError: { readonly at: number; readonly message: string; readonly cause?: string } | undefined;
  /** stdio: the end of what the server wrote to stderr. */
  readonly stderr: string;
  readonly pid: number | undefined;
  /** stdio: how its last process ended by itself. */
  readonly exit: string | undefined;
  /** stdio: what makes sure that nothing the server started outlives it. */
  readonly containment: Containment | undefined;
  /** stdio: what is in force between the server and the rest of the machine. */
  readonly sandbox: ServerProtections | undefined;
}

export interface UpstreamCounts extends SessionCounts {
  calls: number;
  results: number;
  /** JSON-RPC errors: the server is well and says no. */
  errors: number;
  failures: number;
  timeouts: number;
  cancelled: number;
  /** Never sent: circuit open, queue full. */
  refused: number;
}

export type TransportName = "stdio" | "http" | "sse" | "websocket" | "tcp";

export type UpstreamTarget =
  | StdioTarget
  | { readonly transport: "http" | "sse" | "websocket"; readonly url: string }
  | { readonly transport: "http"; readonly url: string; readonly openapi: OpenApiSource }
  | { readonly transport: "tcp"; readonly host: string; readonly port: number };

/** The document of an API whose operations are below the target's address. */
export interface OpenApiSource {
  /** An address, or an absolute path. */
  readonly document: string;
  readonly choice: OperationChoice;
}

export interface OperationChoice {
  /** Operations by id, tool name or `METHOD /path`. */
  readonly isIncluded: (names: readonly string[]) => boolean;
  /** Tool names by operation id. */
  readonly names: Readonly<Record<string, string>>;
}

export interface StdioTarget {
  readonly transport: "stdio";
  readonly command: string;
  readonly args?: readonly string[];
  readonly cwd?: string;
  /** On top of a small base (PATH, HOME, LANG …); nothing else of our own environment is passed on. */
  readonly env?: Readonly<Record<string, string>>;
  /** What must hold the server together with all it starts; the best available by default. */
  readonly containment?: Containment;
  /** What stands between the server and the gateway's files and processes; nothing unless given. */
  readonly sandbox?: ServerSandbox;
}

export interface UpstreamOptions {
  readonly name: string;
  readonly target: UpstreamTarget;
  /** Speak this revision or none. Found out otherwise. */
  readonly revision?: string;
  readonly clientInfo?: { readonly name: string; readonly version: string };
  /** What we say in a handshake that clients can do: sampling, elicitation, roots. Nothing by default. */
  readonly clientCapabilities?: JsonObject;
  readonly credentials?: Credentials;
  /** Needed for every transport but stdio. */
  readonly dialer?: Dialer;
  readonly limits?: Partial<UpstreamLimits>;
  readonly timeouts?: Partial<UpstreamTimeouts>;
  /** Charged with the messages of the server that are not complete. */
  readonly budget?: ByteBudget | undefined;
  /** Charged with the time that reading from the server takes. */
  readonly share?: TimeShare | undefined;
}

export interface UpstreamLimits extends SessionLimits {
  /** Calls waiting for their turn; one more is refused. */
  readonly maxQueued: number;
  /** Entries of each kind in the catalogue, pages of each list, and what all pages together cost in memory. */
  readonly maxEntries: number;
  readonly maxPages: number;
  readonly maxCatalogueBytes: number;
  readonly maxWatched: number;
  readonly stderrBytes: number;
  /** Failures in a row that open the circuit. */
  readonly failuresToOpen: number;
}

export interface UpstreamTimeouts extends SessionTimeouts {
  /** How long a server may be silent to `server/discover` before the older handshake is tried as well. */
  readonly discoverMs: number;
  /** A server over the network that has not answered is connected to again, and asked again for its lists, so often. */
  readonly againMs: number;
  /** For each list of the catalogue. */
  readonly listMs: number;
  /** For all pages of all lists. */
  readonly catalogueMs: number;
  /** Without a call for so long the server is stopped; 0: never. The next call starts it again. */
  readonly idleMs: number;
  /** stdio: between closing its input and SIGTERM, and between that and SIGKILL. */
  readonly leaveMs: number;
  readonly graceMs: number;
  /** First pause after a failure, doubled up to the longest. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
}

/** What everything about one server has in common. */
export interface UpstreamContext extends SessionContext {
  readonly counts: UpstreamCounts;
  readonly limits: UpstreamLimits;
  readonly timeouts: UpstreamTimeouts;
}

// A connection to a server, with the facts of the process behind it where there is one.

export interface UpstreamConnection extends SessionConnection {
  readonly process?: ProcessFacts | undefined;
  /** For the operator: what of the server cannot be used, and why. */
  readonly notes?: string;
}

export interface ProcessFacts {
  readonly pid: number | undefined;
  readonly exit: string | undefined;
  readonly stderrTail: string;
  readonly containment: Containment;
  readonly protections: ServerProtections;
}

// A bound on everything, with a default.

export const DEFAULT_UPSTREAM_LIMITS: UpstreamLimits = {
  maxMessageBytes: 4 * 1024 * 1024,
  maxDepth: 128,
  maxInFlight: 256,
  maxQueued: 1_024,
  maxMessagesPerCall: 10_000,
  maxQuestions: 16,
  maxUnsentBytes: 16 * 1024 * 1024,
  maxNonsense: 100,
  maxEntries: 10_000,
  maxPages: 1_000,
  maxCatalogueBytes: 32 * 1024 * 1024,
  maxWatched: 1_000,
  connections: 128,
  maxResumes: 5,
  stderrBytes: 16 * 1024,
  failuresToOpen: 5,
};

export const DEFAULT_UPSTREAM_TIMEOUTS: UpstreamTimeouts = {
  startMs: 30_000,
  discoverMs: 5_000,
  againMs: 2_000,
  listMs: 10_000,
  catalogueMs: 60_000,
  questionMs: 5 * 60_000,
  idleMs: 0,
  leaveMs: 1_000,
  graceMs: 2_000,
  backoffMs: 500,
  maxBackoffMs: 30_000,
};
