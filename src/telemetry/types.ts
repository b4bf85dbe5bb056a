// The interface of telemetry for other modules: one span a call, counters, a log. No argument, result or secret
// has a field here, so none can leave through it; a note is what an agent asked to have written down.

import type { Meter, Tracer } from "@opentelemetry/api";
import type { Level, Logger, LogOptions } from "./log.js";
import type { Metrics } from "./metrics.js";

export interface CallInfo {
  method: string;
  /** Canonical name of the tool or prompt; "" when the method has none. */
  tool: string;
  app: string;
  agent: string;
  /** A transport's kind: `stdio`, `http`, `websocket`, `tcp`, `memory`. */
  transport: string;
  /** MCP revision. */
  revision: string;
  requestId?: string | number;
  sessionId?: string;
  /** As the caller sent it (`_meta` or header), not yet checked. */
  traceparent?: string;
  tracestate?: string;
}

export interface CallEnd {
  effect: "permit" | "deny" | "challenge";
  /** One word of a small set, such as `ok`, `error`, `denied`, `timeout`. */
  outcome: string;
  /** A name of the error table. */
  errorType?: string;
  latencyMs: number;
  /** Bytes of the answer. */
  bytes: number;
  policyHash: string;
  rule?: string;
  /** The trace that the server was given, where the call reached one. */
  serverTraceId?: string;
  /** One of many that are reported together: it has no log line of its own. */
  isSummarized?: boolean;
}

export interface CallSpan {
  /** The one trace id of this call: in its error, its log lines, its span and the ledger. */
  readonly traceId: string;
  /** W3C header for calls inside this process that belong to this one. */
  readonly traceparent: string;
  /**
   * W3C header for servers. Its trace begins here: a caller chooses its trace id, and nothing that it chooses may reach a
   * server beside the intent. The span and the log line of the call name this trace.
   */
  readonly serverTraceparent: string;
  /** The caller's `tracestate` when it may travel on: well formed, and beside a valid `traceparent`. */
  readonly tracestate: string | undefined;
  /** Counts and exports the call. A second `end` does nothing. */
  end(end: CallEnd): void;
}

export interface Telemetry {
  startCall(info: CallInfo): CallSpan;
  /**
   * Puts a line into the span of the call of this application that is under way with this trace id. Callers choose
   * their trace ids, so the application is part of the name. Without such a span, or with too many notes, nothing.
   */
  note(app: string, traceId: string, level: Level, message: string): void;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Sends what is queued, within a time limit, and stops every timer. */
  shutdown(): Promise<void>;
}

export interface TelemetryOptions {
  /** Spans go to this tracer of an OpenTelemetry SDK that the embedding program set up. */
  tracer?: Tracer;
  /** Metrics go to this meter. */
  meter?: Meter;
  /** Base URL of a collector that takes OTLP over HTTP as JSON, e.g. `http://127.0.0.1:4318`. */
  otlpEndpoint?: string;
  otlp?: Partial<OtlpSettings>;
  serviceName?: string;
  serviceVersion?: string;
  /** Share of calls without a sampled parent that are exported, 0 to 1. A parent's own choice wins. */
  sampleRatio?: number;
  /** Tool names that get a series of their own; those after are counted as `other`. */
  maxTools?: number;
  log?: LogOptions;
  /** Where the `OTEL_*` variables are read; an empty object reads none. */
  env?: Readonly<Record<string, string | undefined>>;
}

/** Every limit of the exporter. */
export interface OtlpSettings {
  /** Sent with every export, for instance an authorization of the collector. Never logged. */
  headers: Readonly<Record<string, string>>;
  /** Spans that wait; when full, new ones are dropped and counted. */
  maxQueue: number;
  batchSize: number;
  /** Longest wait of a span before its batch is sent. */
  intervalMs: number;
  metricsIntervalMs: number;
  /** One attempt. */
  timeoutMs: number;
  /** Attempts at one batch before it is dropped and counted. */
  maxAttempts: number;
  /** First pause between attempts; it doubles, with jitter. */
  backoffMs: number;
  /** The longest pause, whatever `Retry-After` asks. */
  maxBackoffMs: number;
  /** How long `shutdown` may take to send what is left. */
  shutdownMs: number;
}
