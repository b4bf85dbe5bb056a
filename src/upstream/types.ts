// What the gateway sees of a downstream MCP server: one way to ask, whatever the server speaks and however it is
// reached. Ids and progress tokens towards the server are made here and never leave this room.

import type { ByteBudget, Fault, JsonObject, JsonValue, TimeShare } from "../mcp/index.js";
import type { ServerProtections, ServerSandbox } from "../host/index.js";
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
  /** Asks to be told when this resource changes; resolves to a function that ends it. */
  watch(uri: string): Promise<() => Promise<void>>;
  /** The listener must not throw. Returns a function that ends it. */
  onChange(listener: (change: UpstreamChange) => void): () => void;
  health(): UpstreamHealth;
  /** Ends the calls under way, then the server with everything it started. For good. */
  close(): Promise<void>;
}

export interface UpstreamCall {
  readonly method: string;
  /**
   * The text of an object with everything that travels in `params` except `_meta`; it goes out as it is.
   * INVARIANT (the caller's): valid JSON, an object, without a key `_meta`.
   */
  readonly params: string;
  /** The text of an object with the `_meta` entries that travel. Those of the protocol itself are refused. */
  readonly meta?: string;
  /** Trace context for `_meta`, where there is one. */
  readonly trace?: { readonly traceparent?: string; readonly tracestate?: string; readonly baggage?: string };
  /** What the call is about: tool or prompt name, resource uri. Becomes `Mcp-Name` where the revision has it. */
  readonly name?: string;
  /** More HTTP headers for this call, such as `Mcp-Param-*`. Lower-case names. Other transports have none. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The text of what this call's client can do. 2026-07-28 alone; sampling, elicitation, roots are absent unless said. */
  readonly capabilities?: string;
  /** The level of log messages wanted for this call; 2026-07-28 alone. */
  readonly logLevel?: string;
  /** From now to the answer; stands still while a question waits for its answer. 0: the caller keeps the time. */
  readonly timeoutMs: number;
  /** Tells when nobody waits any more; the server is then told as well. The gateway's `Cancel` has this shape. */
  readonly cancel?: Cancellation;
  readonly hooks?: CallHooks;
  /**
   * The definition that the call was decided for. The call then waits until the server's definitions were read on the
   * connection it is sent on, and is sent only when this one is among them. `any`: nothing in particular is expected.
   */
  readonly expects?: ExpectedDefinition;
}

export type ExpectedDefinition =
  | { readonly kind: "tool" | "prompt" | "template"; readonly name: string; readonly definition: JsonObject }
  | "any";

export interface Cancellation {
  readonly fault: Fault | undefined;
  onAbort(listener: (fault: Fault) => void): void;
}

/** What may come back before the answer. Without a hook the message is refused or dropped, and counted. */
export interface CallHooks {
  /** `params` of the notification without its token: that one is ours, and the caller has its own. */
  progress?(params: JsonObject): void;
  log?(params: JsonObject): void;
  /**
   * A legacy server asks the client. A Fault that it rejects with is the answer's error, anything else becomes one
   * that says nothing. `stop` says that nobody waits for the answer any more.
   */
  ask?(method: QuestionMethod, params: JsonObject, stop: AbortSignal): Promise<JsonObject>;
}

export type QuestionMethod = "sampling/createMessage" | "elicitation/create" | "roots/list";

/** `text` is what the server wrote, byte for byte unless a key of the result was there twice; `value` is the same, parsed. */
export type UpstreamAnswer =
  | { readonly kind: "result"; readonly text: string; readonly value: JsonObject; readonly values?: number }
  /** A JSON-RPC error of the server, `text` being that of the error object. */
  | { readonly kind: "error"; readonly text: string; readonly error: ServerErrorObject };

export interface ServerErrorObject {
  readonly code: number;
  readonly message: string;
  readonly data?: JsonValue;
}

/** The server's own definitions as it sent them, fields nobody here knows included. None of it is to be trusted. */
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

export type UpstreamChange = "tools" | "resources" | "prompts" | { readonly resource: string };

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
  /** How often the connection was made anew after it had been lost. */
  readonly restarts: number;
  readonly lastError: { readonly at: number; readonly message: string } | undefined;
  /** stdio: the end of what the server wrote to stderr. */
  readonly stderr: string;
  readonly pid: number | undefined;
  /** stdio: what makes sure that nothing the server started outlives it. */
  readonly containment: Containment | undefined;
  /** stdio: what is in force between the server and the rest of the machine. */
  readonly sandbox: ServerProtections | undefined;
}

export interface UpstreamCounts {
  calls: number;
  results: number;
  /** JSON-RPC errors: the server is well and says no. */
  errors: number;
  failures: number;
  timeouts: number;
  cancelled: number;
  /** Never sent: circuit open, queue full. */
  refused: number;
  /** Answers that fit no call under way: late, given twice, or made up. */
  strayAnswers: number;
  /** What is no JSON-RPC message. */
  malformed: number;
  /** Messages of the server that belong to no call, or that the call has no hook for. */
  refusedMessages: number;
}

export type Containment = "cgroup" | "pid-namespace" | "process-group";

export type TransportName = "stdio" | "http" | "sse" | "websocket" | "tcp";

export type UpstreamTarget =
  | StdioTarget
  | { readonly transport: "http" | "sse" | "websocket"; readonly url: string }
  | { readonly transport: "tcp"; readonly host: string; readonly port: number };

export interface StdioTarget {
  readonly transport: "stdio";
  readonly command: string;
  readonly args?: readonly string[];
  readonly cwd?: string;
  /** On top of a small base (PATH, HOME, LANG …); nothing else of our own environment is passed on. */
  readonly env?: Readonly<Record<string, string>>;
  /** What must hold the server together with all it starts; the best that can be had unless said. */
  readonly containment?: Containment;
  /** What stands between the server and the gateway's files and processes; nothing unless given. */
  readonly sandbox?: ServerSandbox;
}

/** What identifies us to the server; one Upstream has one, so calls of different users never share a connection. */
export interface Credentials {
  /**
   * Headers for one request of this method, at the server's address or at another path there. Called for every request, so
   * it should be quick.
   */
  headers(
    method: "POST" | "GET" | "DELETE",
    path?: string,
  ): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /** The server said 401 or 403. True when the request should be tried once more, with new headers. */
  refused?(challenge: CredentialsRefused): Promise<boolean>;
}

export interface CredentialsRefused {
  readonly status: number;
  readonly wwwAuthenticate: string | undefined;
  /** `DPoP-Nonce`, for proofs that are made anew. */
  readonly dpopNonce: string | undefined;
}

export interface UpstreamOptions {
  readonly name: string;
  readonly target: UpstreamTarget;
  /** Speak this revision or none. Found out otherwise. */
  readonly revision?: string;
  readonly clientInfo?: { readonly name: string; readonly version: string };
  /** What we say in a handshake that clients can do: sampling, elicitation, roots. Nothing unless said. */
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

export interface UpstreamLimits {
  /** Largest message, either way. */
  readonly maxMessageBytes: number;
  readonly maxDepth: number;
  /** Calls at the server at once. With 1 every message of a legacy stdio server has exactly one owner. */
  readonly maxInFlight: number;
  /** Calls waiting for their turn; one more is refused. */
  readonly maxQueued: number;
  /**
   * Messages of one call before its answer, within ten seconds; more end it. And as many on one connection that are
   * no call's; more end the connection.
   */
  readonly maxMessagesPerCall: number;
  /** Questions of one call waiting for their answer. */
  readonly maxQuestions: number;
  /** Bytes on their way to a server that does not read. */
  readonly maxUnsentBytes: number;
  /** Nonsense (malformed texts, stray answers) on one connection within ten seconds; more end the connection. */
  readonly maxNonsense: number;
  /** Entries of each kind in the catalogue, pages of each list, and what all pages together cost in memory. */
  readonly maxEntries: number;
  readonly maxPages: number;
  readonly maxCatalogueBytes: number;
  readonly maxWatched: number;
  /** HTTP: connections kept at most. */
  readonly connections: number;
  /** HTTP, older revisions: attempts to pick up a broken stream. */
  readonly maxResumes: number;
  readonly stderrBytes: number;
  /** Failures in a row that open the circuit. */
  readonly failuresToOpen: number;
}

export interface UpstreamTimeouts {
  /** To start, connect and agree on a revision. */
  readonly startMs: number;
  /** How long a server may be silent to `server/discover` before the older handshake is tried as well. */
  readonly discoverMs: number;
  /** For each list of the catalogue. */
  readonly listMs: number;
  /** For all pages of all lists. */
  readonly catalogueMs: number;
  /** A question of the server to the client. */
  readonly questionMs: number;
  /** Without a call for so long the server is stopped; 0: never. The next call starts it again. */
  readonly idleMs: number;
  /** stdio: between closing its input and SIGTERM, and between that and SIGKILL. */
  readonly leaveMs: number;
  readonly graceMs: number;
  /** First pause after a failure, doubled up to the longest. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
}
