// Spans and numbers through the OpenTelemetry API, for a program that brings its own SDK.

import { createRequire } from "node:module";
import type * as Api from "@opentelemetry/api";
import {
  type Attributes,
  DURATION_NAME,
  durationAttributes,
  endAttributes,
  spanName,
  startAttributes,
} from "./conventions.js";
import { type Metrics, metricFailureOf } from "./metrics.js";
import { NOTE_EVENT, noteAttributes, type OperatorNote } from "./notes.js";
import { CONVENTION_BOUNDS } from "./series.js";
import type { TraceContext } from "./trace-context.js";
import type { CallEnd, CallInfo } from "./types.js";

// Loaded only when a tracer is given: without one the module costs nothing.
function loadApi(): typeof Api {
  return createRequire(import.meta.url)("@opentelemetry/api") as typeof Api;
}

export interface TracedCall {
  readonly context: TraceContext;
  take(note: OperatorNote): void;
  end(info: CallInfo, end: CallEnd): void;
}

export class TracerSpans {
  readonly #tracer: Api.Tracer;
  readonly #api = loadApi();

  constructor(tracer: Api.Tracer) {
    this.#tracer = tracer;
  }

  /** Nothing when the tracer gives spans without an id (no SDK is registered behind it). */
  start(info: CallInfo, parent: TraceContext | undefined): TracedCall | undefined {
    const { context, trace, ROOT_CONTEXT, SpanKind, isSpanContextValid } = this.#api;
    const ambient = trace.getSpanContext(context.active());
    const span = this.#tracer.startSpan(
      spanName(info),
      {
        kind: SpanKind.SERVER,
        attributes: startAttributes(info),
        // The caller's context is the parent; what surrounds the transport is a link.
        ...(parent && ambient ? { links: [{ context: ambient }] } : {}),
      },
      parent ? trace.setSpanContext(ROOT_CONTEXT, remote(parent)) : context.active(),
    );
    const own = span.spanContext();
    if (!isSpanContextValid(own)) return undefined;
    return {
      context: { traceId: own.traceId, spanId: own.spanId, flags: own.traceFlags },
      take: (note) => void span.addEvent(NOTE_EVENT, noteAttributes(note), note.atMs),
      end: (info, end) => this.#finish(span, info, end),
    };
  }

  #finish(span: Api.Span, info: CallInfo, end: CallEnd): void {
    if (span.isRecording()) {
      span.setAttributes(endAttributes(end));
      if (metricFailureOf(end) !== undefined) {
        span.updateName(spanName(info, end.errorType));
        span.setStatus({ code: this.#api.SpanStatusCode.ERROR });
      }
    }
    span.end();
  }
}

function remote(parent: TraceContext): Api.SpanContext {
  return { traceId: parent.traceId, spanId: parent.spanId, traceFlags: parent.flags, isRemote: true };
}

/** Durations as they happen; every other number when the meter asks for it. */
export function meterCalls(meter: Api.Meter, metrics: Metrics): (info: CallInfo, end: CallEnd) => void {
  const duration = meter.createHistogram<Attributes>(DURATION_NAME, {
    unit: "s",
    description: "MCP request or notification duration as seen by the receiver",
    advice: { explicitBucketBoundaries: [...CONVENTION_BOUNDS] },
  });
  observeAll(meter, metrics);
  return (info, end) => duration.record(end.latencyMs / 1000, durationAttributes(info, end));
}

function observeAll(meter: Api.Meter, metrics: Metrics): void {
  const instruments = new Map<string, Api.Observable<Attributes>>();
  for (const { name, help, unit, type } of metrics.families()) {
    if (type === "histogram") continue;
    const options = { description: help, unit: unit === "" ? "1" : unit };
    const make = type === "counter" ? meter.createObservableCounter : meter.createObservableGauge;
    instruments.set(name, make.call(meter, name, options) as Api.Observable<Attributes>);
  }
  meter.addBatchObservableCallback(
    (result) => {
      for (const family of metrics.families()) {
        const instrument = instruments.get(family.name);
        if (!instrument) continue;
        for (const point of family.points) result.observe(instrument, point.value, Object.fromEntries(point.labels));
      }
    },
    [...instruments.values()],
  );
}
