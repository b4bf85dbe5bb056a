// What a caller may set, and what holds when nothing is set.

import type { JsonObject, Notification } from "../index.js";
import type { Implementation, LogLevel } from "../server/index.js";
import { DEFAULT_LIMITS } from "../transports/index.js";
import type { OAuthOptions } from "./connect.js";
import type { InputHandlers } from "./inputs.js";
import type { SecureOptions } from "./secure.js";

export interface Timeouts {
  /** A tool, a resource, a prompt, a completion. Progress starts the clock again, up to `totalMs`. */
  toolMs: number;
  /** Discovery and lists, a page at a time; and how long the first probe may stay unanswered. */
  discoveryMs: number;
  validationMs: number;
  /** The whole of getting connected; a server started by a package runner needs its time. */
  connectMs: number;
  /** The longest any request may take, whatever progress it reports. */
  totalMs: number;
  /** How long a handler (often a person) may take to answer the server. */
  inputMs: number;
}

export const DEFAULT_TIMEOUTS: Timeouts = {
  toolMs: 30_000,
  discoveryMs: 2_000,
  validationMs: 5_000,
  connectMs: 30_000,
  totalMs: 600_000,
  inputMs: 600_000,
};

export interface ClientLimits {
  /** Largest message sent. */
  maxMessageBytes: number;
  /** Requests on the wire at once; more wait, and more than `maxQueued` waiting are refused. */
  maxInFlight: number;
  maxQueued: number;
  /** Nesting of a message that arrives. */
  maxDepth: number;
  /** Pages of one list. */
  maxPages: number;
  /** Entries of one list. */
  maxItems: number;
  /** Times a call may come back asking for input. */
  maxRounds: number;
  /** Questions in one such answer, and server requests being answered at once. */
  maxInputs: number;
  /** Open listen streams. */
  maxListens: number;
  /** Calls in one JSON-RPC batch, and calls of one `batchCalls` on the wire at once in other revisions. */
  maxBatch: number;
  maxConcurrent: number;
  /** Attempts to pick a broken event stream up again. */
  maxResumes: number;
}

export const DEFAULT_CLIENT_LIMITS: ClientLimits = {
  maxMessageBytes: DEFAULT_LIMITS.maxMessageBytes,
  maxInFlight: 64,
  maxQueued: 1_024,
  maxDepth: 128,
  maxPages: 100,
  maxItems: 20_000,
  maxRounds: 8,
  maxInputs: 16,
  maxListens: 16,
  maxBatch: 50,
  maxConcurrent: 8,
  maxResumes: 5,
};

export type ListKind = "tools" | "resources" | "prompts";

export interface LogEntry {
  level: LogLevel;
  logger?: string;
  data: unknown;
}

export interface ConnectOptions extends SecureOptions {
  clientInfo?: Implementation;
  /** Speak exactly this revision; without it the best that both sides know. */
  revision?: RevisionName;
  /** HTTP and WebSocket: headers to send along, such as `authorization`; a function is asked before every request. */
  headers?: Readonly<Record<string, string>> | (() => Record<string, string> | Promise<Record<string, string>>);
  /** HTTP: get and renew access tokens as the server asks for them. */
  auth?: OAuthOptions;
  handlers?: InputHandlers;
  /** Capabilities to declare beside those that follow from the handlers. */
  capabilities?: JsonObject;
  /** Values of `resultType` that an extension adds and that this caller understands. */
  resultTypes?: readonly string[];
  timeouts?: Partial<Timeouts>;
  limits?: Partial<ClientLimits>;
  /** Ask the server for log messages of this level and above. */
  logLevel?: LogLevel;
  onLog?: (entry: LogEntry) => void;
  onListChanged?: (kind: ListKind) => void;
  onResourceUpdated?: (uri: string) => void;
  /** Every notification that nothing here consumes. */
  onNotification?: (message: Notification) => void;
  /** Something odd that did not stop the work, such as a tool that had to be left out. */
  onWarning?: (message: string) => void;
  onClose?: (error?: Error) => void;
}

export interface Progress {
  progress: number;
  total?: number;
  message?: string;
}

export interface RequestOptions {
  timeoutMs?: number;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
  /** More `_meta` for the request, such as `traceparent`. */
  meta?: JsonObject;
}

/** The revisions that this client speaks. */
export type RevisionName = "2026-07-28" | "2025-11-25" | "2025-06-18" | "2025-03-26";
