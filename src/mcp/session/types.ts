// What a caller sees of one session with one MCP server: requests as texts, answers as the server wrote them.

import type { ByteBudget, Fault, JsonObject, JsonValue, Notification, TimeShare } from "../index.js";
import type { SessionAgreement } from "./negotiate.js";

export interface SessionCall {
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
  /**
   * The client that the call is made for. What a server on a shared connection says while several calls of one client are
   * in flight, and of no other, goes to that client.
   */
  readonly client?: string;
  /** From now to the answer; stands still while a question waits for its answer. 0: the caller keeps the time. */
  readonly timeoutMs: number;
  /** Progress starts the clock again, but the whole call may not take longer than this. */
  readonly totalMs?: number;
  /** Fires when the answer is not awaited any more; the server is then notified as well. The gateway's `Cancel` has this shape. */
  readonly cancel?: Cancellation;
  readonly hooks?: CallHooks;
}

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
   * that says nothing. `stop` says that the answer is not awaited any more.
   */
  ask?(method: QuestionMethod, params: JsonObject, stop: AbortSignal): Promise<JsonObject>;
}

export type QuestionMethod = "sampling/createMessage" | "elicitation/create" | "roots/list";

/** `text` is what the server wrote, byte for byte unless a key of the result was there twice; `value` is the same, parsed. */
export type SessionAnswer =
  | { readonly kind: "result"; readonly text: string; readonly value: JsonObject; readonly values?: number }
  /** A JSON-RPC error of the server, `text` being that of the error object. */
  | { readonly kind: "error"; readonly text: string; readonly error: ServerErrorObject; readonly status?: number };

export interface ServerErrorObject {
  readonly code: number;
  readonly message: string;
  readonly data?: JsonValue;
}

export type SessionChange = "tools" | "resources" | "prompts" | { readonly resource: string };

export interface SessionConnection {
  readonly agreement: SessionAgreement;
  /** INVARIANT: never throws; what fails is in the promise. */
  call(call: SessionCall): Promise<SessionAnswer>;
  /** 2026-07-28: a listen request; resolves or rejects when it has ended, `acknowledged` when it has begun. */
  listen(call: SessionCall, acknowledged: ListenEvents["acknowledged"], more?: ListenExtras): Promise<SessionAnswer>;
  /** Several requests in one text; only where the revision has batches. */
  batch(calls: readonly SessionCall[]): Promise<SessionAnswer>[];
  /** `params` is the text of an object. */
  notify(method: string, params?: string): Promise<void>;
  /** Requests in flight fail; with a fault, the server is told that they are given up because of it. */
  close(fault?: Fault): Promise<void>;
}

/** What the server sends about one listen request. */
export interface ListenEvents extends ListenExtras {
  acknowledged(params: JsonObject): void;
}

export interface ListenExtras {
  /** A change that names this request. Every change is reported to `ConnectionEvents.change` as well. */
  change?(change: SessionChange): void;
  /** The server ends the stream with a notification. */
  ended?(): void;
}

/** Answers a request of the server; see `CallHooks.ask`. */
export type AnswerRequest = NonNullable<CallHooks["ask"]>;

export interface ConnectionEvents {
  /** `isAddressed`: it names the listen request that it belongs to. */
  change(change: SessionChange, isAddressed: boolean): void;
  /** The server had lost our session and a new one has begun: what it was asked to tell, it has to be asked again. */
  renewed(): void;
  /** HTTP without a session: no connection is left, so the next one may lead to another process. */
  disconnected(isByAgreement: boolean): void;
  /** Rejects when a call that is to be sent a second time must not be: the definitions are others now. */
  mayResend(call: SessionCall): Promise<void>;
  /** Once, when the connection is of no more use; never after `close`. */
  lost(fault: Fault): void;
  /** Answers every request of the server. Without it a request has to belong to one call, whose own hook answers. */
  ask?: AnswerRequest;
  /** Takes log messages and notifications that are not known here. Without it they belong to one call, or are rejected. */
  notification?(message: Notification): void;
  /** A request of the server in a revision that has none. */
  unexpectedRequest?(): void;
}

/** What everything about one server has in common. */
export interface SessionContext {
  readonly server: string;
  readonly counts: SessionCounts;
  readonly limits: SessionLimits;
  readonly timeouts: SessionTimeouts;
  /** What the server makes us keep of messages that are not complete. */
  readonly budget: ByteBudget | undefined;
  /** What reading from the server costs the main thread; absent where there is one application. */
  readonly share: TimeShare | undefined;
}

export interface SessionLimits {
  /** Largest message, either way. */
  readonly maxMessageBytes: number;
  readonly maxDepth: number;
  /** Values in one message; unless given, 100,000, and 400,000 while a list is being read. */
  readonly maxValues?: number;
  /** Calls at the server at once. With 1 every message of a legacy stdio server has exactly one owner. */
  readonly maxInFlight: number;
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
  /** HTTP: connections kept at most. */
  readonly connections: number;
  /** HTTP, older revisions: attempts to pick up a broken stream. */
  readonly maxResumes: number;
}

export interface SessionTimeouts {
  /** To start, connect and agree on a revision. */
  readonly startMs: number;
  /** A question of the server to the client. */
  readonly questionMs: number;
}

export interface SessionCounts {
  /** Answers that fit no call under way: late, given twice, or made up. */
  strayAnswers: number;
  /** Texts that are not JSON-RPC messages. */
  malformed: number;
  /** Messages of the server that belong to no call, or that the call has no hook for. */
  refusedMessages: number;
}

/** What identifies us to the server; one Upstream has one, so calls of different users never share a connection. */
export interface Credentials {
  /**
   * Headers for one request of this method, at the server's address or at another path there. Called for every request, so
   * it should be quick.
   */
  headers(method: string, path?: string): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>;
  /** The server said 401 or 403. True when the request should be tried once more, with new headers. */
  refused?(challenge: CredentialsRefused): Promise<boolean>;
}

export interface CredentialsRefused {
  readonly status: number;
  readonly wwwAuthenticate: string | undefined;
  /** `DPoP-Nonce`, for new proofs. */
  readonly dpopNonce: string | undefined;
}

export interface PersistentTransport {
  /** Resolves when texts can be sent. Rejects with a Fault. */
  open(events: PersistentTransportEvents): Promise<void>;
  /** Throws a Fault, or rejects, when the server does not take what we send, or is gone. */
  send(text: string): void | Promise<void>;
  close(): Promise<void>;
}

export interface PersistentTransportEvents {
  message(text: string): void;
  /** Bytes that are no text. */
  malformed(why: string): void;
  /** A text over the size limit, of which a few characters from both ends are known. */
  oversized(hint: string): void;
  /** Once, when the other side went away. */
  closed(why: string): void;
}

/** A queue in front of a server that does not read is memory of ours. */
export interface UnsentLimit {
  readonly maxUnsentBytes: number;
  readonly toFault: () => Fault;
}
