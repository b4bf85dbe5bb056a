// How the process itself is doing. Asked for at a scrape; the measuring of event-loop delay begins with the first one,
// so that a figure that is not read costs nothing.

import { randomUUID } from "node:crypto";
import { type IntervalHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { planExport } from "./environment.js";
import { createLogger, type Level, type Logger } from "./log.js";
import { Metrics } from "./metrics.js";
import { Notes, OpenSpans } from "./notes.js";
import { meterCalls, type TracedCall, TracerSpans } from "./opentelemetry.js";
import { OtlpExporter } from "./otlp.js";
import { type Family, gauge } from "./series.js";
import {
  checkTracestate,
  formatTraceparent,
  isSampled,
  newSpanId,
  newTraceId,
  parseTraceparent,
  type TraceContext,
} from "./trace-context.js";
import type { CallEnd, CallInfo, CallSpan, Telemetry, TelemetryOptions } from "./types.js";

const RESOLUTION_MS = 20;
const WINDOW_MS = 10_000;

export class ProcessMetrics {
  #delay: IntervalHistogram | undefined;
  #windowBegan = Number.NEGATIVE_INFINITY;
  #window = { mean: 0, p99: 0, max: 0 };

  /** Each process of a gateway has its own. */
  families(): Family[] {
    return this.#families().map((family) => ({ ...family, across: "each" }));
  }

  #families(): Family[] {
    const memory = process.memoryUsage();
    const cpu = process.cpuUsage();
    return [
      gauge("process.memory.usage", "Resident memory", "By", memory.rss),
      gauge("v8js.memory.heap.used", "Heap in use", "By", memory.heapUsed),
      gauge("v8js.memory.external", "Memory of buffers and other objects outside the heap", "By", memory.external),
      gauge("process.uptime", "Time since the process began", "s", process.uptime()),
      { ...gauge("process.cpu.time", "Processor time used", "s", (cpu.user + cpu.system) / 1e6), type: "counter" },
      ...this.#eventLoop(),
    ];
  }

  stop(): void {
    this.#delay?.disable();
    this.#delay = undefined;
  }

  #eventLoop(): Family[] {
    if (!this.#delay) {
      this.#delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
      this.#delay.enable();
    }
    // Several readers (a scrape, an exporter) look at the same window, so none takes it away from another.
    if (performance.now() - this.#windowBegan >= WINDOW_MS) {
      const { mean, max } = this.#delay;
      this.#window = { mean: seconds(mean), p99: seconds(this.#delay.percentile(99)), max: seconds(max) };
      this.#windowBegan = performance.now();
      this.#delay.reset();
    }
    const { mean, p99, max } = this.#window;
    return [
      gauge("nodejs.eventloop.delay.mean", "Mean delay of the event loop in the last window", "s", mean),
      gauge("nodejs.eventloop.delay.p99", "99th percentile of the event loop's delay", "s", p99),
      gauge("nodejs.eventloop.delay.max", "Longest delay of the event loop in the last window", "s", max),
    ];
  }
}

/** From nanoseconds, with the sampling interval itself taken off; an empty histogram has no mean. */
function seconds(nanoseconds: number): number {
  return Number.isFinite(nanoseconds) ? Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS) / 1000 : 0;
}

const SAMPLED = 1;

export function createTelemetry(options: TelemetryOptions = {}): Telemetry {
  const log = createLogger({ ...options.log, env: options.log?.env ?? options.env });
  const metrics = new Metrics(options.maxTools);
  const process = new ProcessMetrics();
  metrics.addSource(() => process.families());
  const plan = planExport(options);
  for (const problem of plan.problems) log.warning(problem);
  const version = options.serviceVersion ?? "";
  const resource = { "service.version": version, "service.instance.id": randomUUID(), ...plan.resource };
  const exports = plan.targets.traces !== undefined || plan.targets.metrics !== undefined;
  const otlp = exports
    ? new OtlpExporter(plan.targets, plan.settings, { attributes: resource, version }, metrics, log)
    : undefined;
  const open = new OpenSpans();
  const parts: Parts = { metrics, log, open };
  if (options.meter) parts.measure = meterCalls(options.meter, metrics);
  const startCall = options.tracer
    ? tracedBy(new TracerSpans(options.tracer), parts)
    : plan.targets.traces && otlp
      ? exportedBy(otlp, plan.sampleRatio, parts)
      : (info: CallInfo) => new QuietCall(parts, info, parseParent(info));
  return {
    startCall: (info) => startCall(bounded(info)),
    note: (app, traceId, level, message) => open.note(app, traceId, level, message),
    metrics,
    log,
    async shutdown() {
      process.stop();
      await otlp?.shutdown();
    },
  };
}

/** Method, name and request id are the caller's own words: log lines and spans hold the beginning of them. */
const MAX_NAME_CHARS = 256;

function bounded(info: CallInfo): CallInfo {
  const { method, tool, requestId } = info;
  const isLong = typeof requestId === "string" && requestId.length > MAX_NAME_CHARS;
  if (method.length <= MAX_NAME_CHARS && tool.length <= MAX_NAME_CHARS && !isLong) return info;
  const cut = (text: string): string => text.slice(0, MAX_NAME_CHARS);
  return { ...info, method: cut(method), tool: cut(tool), ...(isLong ? { requestId: cut(requestId) } : {}) };
}

interface Parts {
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly open: OpenSpans;
  measure?: (info: CallInfo, end: CallEnd) => void;
}

function parseParent(info: CallInfo): TraceContext | undefined {
  return info.traceparent === undefined ? undefined : parseTraceparent(info.traceparent);
}

/** Counts and logs; subclasses add where the span goes. */
class QuietCall implements CallSpan {
  readonly traceId: string;
  readonly parts: Parts;
  readonly info: CallInfo;
  readonly parent: TraceContext | undefined;
  #ended = false;
  #header: string | undefined;
  #server: TraceContext | undefined;

  constructor(parts: Parts, info: CallInfo, parent: TraceContext | undefined, traceId?: string) {
    this.parts = parts;
    this.info = info;
    this.parent = parent;
    this.traceId = traceId ?? parent?.traceId ?? newTraceId();
    parts.metrics.callStarted();
  }

  get traceparent(): string {
    this.#header ??= formatTraceparent(this.outgoing());
    return this.#header;
  }

  get serverTraceparent(): string {
    this.#server ??= { traceId: newTraceId(), spanId: newSpanId(), flags: SAMPLED };
    return formatTraceparent(this.#server);
  }

  get tracestate(): string | undefined {
    return this.parent === undefined ? undefined : checkTracestate(this.info.tracestate);
  }

  /**
   * With no span of ours to point at, the caller's context travels on as it came. A trace that begins here is marked
   * as sampled: a server behind us that follows its parent would otherwise record nothing.
   */
  outgoing(): TraceContext {
    return this.parent ?? { traceId: this.traceId, spanId: newSpanId(), flags: SAMPLED };
  }

  end(given: CallEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    const end = this.#server === undefined ? given : { ...given, serverTraceId: this.#server.traceId };
    const { metrics, log, measure } = this.parts;
    metrics.callEnded(this.info, end);
    measure?.(this.info, end);
    const level = levelOf(end);
    if (log.enabled(level) && !end.isSummarized) logCall(log, level, this.info, end, this.traceId);
    this.finish(end);
  }

  finish(_end: CallEnd): void {}
}

class ExportedCall extends QuietCall {
  readonly #otlp: OtlpExporter;
  readonly #context: TraceContext;
  readonly #startedMs = Date.now();
  readonly #notes = new Notes();
  readonly #leave: () => void;

  constructor(
    parts: Parts,
    info: CallInfo,
    parent: TraceContext | undefined,
    otlp: OtlpExporter,
    context: TraceContext,
  ) {
    super(parts, info, parent, context.traceId);
    this.#otlp = otlp;
    this.#context = context;
    this.#leave = parts.open.add(info.app, context.traceId, this.#notes);
  }
  override outgoing(): TraceContext {
    return this.#context;
  }
  override finish(end: CallEnd): void {
    this.#leave();
    this.#otlp.add({
      info: this.info,
      end,
      context: this.#context,
      parentSpanId: this.parent?.spanId,
      traceState: this.tracestate,
      startedMs: this.#startedMs,
      notes: this.#notes.all,
    });
  }
}

class UnsampledCall extends QuietCall {
  override outgoing(): TraceContext {
    return this.parent ?? { traceId: this.traceId, spanId: newSpanId(), flags: 0 };
  }
}

class TracedCallSpan extends QuietCall {
  readonly #span: TracedCall;
  readonly #leave: () => void;
  constructor(parts: Parts, info: CallInfo, parent: TraceContext | undefined, span: TracedCall) {
    super(parts, info, parent, span.context.traceId);
    this.#span = span;
    this.#leave = parts.open.add(info.app, span.context.traceId, new Notes((note) => span.take(note)));
  }
  override outgoing(): TraceContext {
    return this.#span.context;
  }
  override finish(end: CallEnd): void {
    this.#leave();
    this.#span.end(this.info, end);
  }
}

function exportedBy(otlp: OtlpExporter, ratio: number, parts: Parts): (info: CallInfo) => CallSpan {
  // The share is taken from the trace id, so that every service that samples by it picks the same traces.
  const below = Math.round(ratio * 2 ** 32);
  return (info) => {
    const parent = parseParent(info);
    const traceId = parent?.traceId ?? newTraceId();
    const sampled = parent ? isSampled(parent.flags) : Number.parseInt(traceId.slice(24), 16) < below;
    if (!sampled) return new UnsampledCall(parts, info, parent, traceId);
    const context = { traceId, spanId: newSpanId(), flags: (parent?.flags ?? 0) | SAMPLED };
    return new ExportedCall(parts, info, parent, otlp, context);
  };
}

function tracedBy(tracer: TracerSpans, parts: Parts): (info: CallInfo) => CallSpan {
  return (info) => {
    const parent = parseParent(info);
    const span = tracer.start(info, parent);
    return span ? new TracedCallSpan(parts, info, parent, span) : new QuietCall(parts, info, parent);
  };
}

/** A call that went well is for those who debug; a refusal is worth a line; a defect or a lost record needs someone. */
function levelOf(end: CallEnd): Level {
  if (end.errorType === "AuditFailure" || end.errorType === "InternalError") return "error";
  if (end.effect !== "permit") return "notice";
  return end.errorType === undefined ? "debug" : "warning";
}

function logCall(log: Logger, level: Level, info: CallInfo, end: CallEnd, traceId: string): void {
  log.log(
    level,
    "call",
    {
      method: info.method,
      tool: info.tool,
      app: info.app,
      agent: info.agent,
      effect: end.effect,
      outcome: end.outcome,
      error: end.errorType,
      rule: end.rule,
      policy: end.policyHash,
      latency_ms: Math.round(end.latencyMs * 1000) / 1000,
      server_trace: end.serverTraceId,
    },
    traceId,
  );
}
