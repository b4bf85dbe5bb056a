// OTLP's JSON form: ids in hex, enumerations as numbers, 64-bit integers as decimal strings, lowerCamelCase names.

import { type Attributes, endAttributes, errorTypeName, SCOPE_NAME, spanName, startAttributes } from "./conventions.js";
import { metricFailureOf } from "./metrics.js";
import type { OperatorNote } from "./notes.js";
import { NOTE_EVENT, noteAttributes } from "./notes.js";
import { BOUNDS, CONVENTION_BOUNDS, type Family, FINE_BOUNDS, type Point } from "./series.js";
import type { TraceContext } from "./trace-context.js";
import type { CallEnd, CallInfo } from "./types.js";

const KIND_SERVER = 2;
const STATUS_ERROR = 2;
const CUMULATIVE = 2;
/** The span's `flags` say whether its parent is remote: bit 8 "known", bit 9 "is". */
const REMOTE_KNOWN = 0x100;
const REMOTE = 0x200;

export interface SpanRecord {
  readonly info: CallInfo;
  readonly end: CallEnd;
  readonly context: TraceContext;
  readonly parentSpanId: string | undefined;
  readonly traceState: string | undefined;
  readonly startedMs: number;
  readonly notes: readonly OperatorNote[];
}

export interface OtlpResource {
  readonly attributes: Attributes;
  readonly version: string;
}

export function spansBody(resource: OtlpResource, records: readonly SpanRecord[]): string {
  const scopeSpans = [{ scope: { name: SCOPE_NAME, version: resource.version }, spans: records.map(encodeSpan) }];
  return JSON.stringify({ resourceSpans: [{ resource: encodeResource(resource), scopeSpans }] });
}

export function metricsBody(
  resource: OtlpResource,
  families: readonly Family[],
  startedMs: number,
  nowMs: number,
): string {
  const metrics = families
    .filter((family) => family.points.length > 0)
    .map((family) => encodeFamily(family, nanos(startedMs), nanos(nowMs)));
  const scopeMetrics = [{ scope: { name: SCOPE_NAME, version: resource.version }, metrics }];
  return JSON.stringify({ resourceMetrics: [{ resource: encodeResource(resource), scopeMetrics }] });
}

function encodeResource(resource: OtlpResource): object {
  return { attributes: encodeAttributes(resource.attributes) };
}

function encodeSpan(record: SpanRecord): object {
  const { info, end, context, parentSpanId } = record;
  return {
    traceId: context.traceId,
    spanId: context.spanId,
    parentSpanId,
    traceState: record.traceState,
    flags: context.flags | REMOTE_KNOWN | (parentSpanId === undefined ? 0 : REMOTE),
    name: spanName(info, end.errorType),
    kind: KIND_SERVER,
    startTimeUnixNano: nanos(record.startedMs),
    endTimeUnixNano: nanos(record.startedMs + (end.latencyMs > 0 ? end.latencyMs : 0)),
    attributes: encodeAttributes({ ...startAttributes(info), ...endAttributes(end) }),
    events: record.notes.length === 0 ? undefined : record.notes.map(encodeNote),
    status: metricFailureOf(end) === undefined ? {} : { code: STATUS_ERROR },
  };
}

function encodeNote(note: OperatorNote): object {
  return { timeUnixNano: nanos(note.atMs), name: NOTE_EVENT, attributes: encodeAttributes(noteAttributes(note)) };
}

function encodeFamily(family: Family, start: string, now: string): object {
  const about = { name: family.name, description: family.help, unit: family.unit === "" ? "1" : family.unit };
  switch (family.type) {
    case "gauge":
      return { ...about, gauge: { dataPoints: family.points.map((point) => encodeNumber(point, start, now)) } };
    case "counter":
      return {
        ...about,
        sum: {
          aggregationTemporality: CUMULATIVE,
          isMonotonic: true,
          dataPoints: family.points.map((point) => encodeNumber(point, start, now)),
        },
      };
    case "histogram":
      return {
        ...about,
        histogram: {
          aggregationTemporality: CUMULATIVE,
          dataPoints: family.points.map((point) => encodeHistogram(point, start, now)),
        },
      };
  }
}

function encodeNumber(point: Point, start: string, now: string): object {
  return { ...encodePoint(point, start, now), asDouble: point.value };
}

/** With the convention's bounds: our finer ones below are added up. */
function encodeHistogram(point: Point, start: string, now: string): object {
  const { counts, sum, count } = point.histogram as NonNullable<Point["histogram"]>;
  const fine = FINE_BOUNDS.length + 1;
  const merged = [counts.slice(0, fine).reduce((a, b) => a + b, 0), ...counts.slice(fine, BOUNDS.length + 1)];
  return {
    ...encodePoint(point, start, now),
    count: String(count),
    sum,
    bucketCounts: merged.map(String),
    explicitBounds: CONVENTION_BOUNDS,
  };
}

function encodePoint(point: Point, start: string, now: string): object {
  const attributes: Attributes = {};
  for (const [name, value] of point.labels) attributes[name] = name === "error.type" ? errorTypeName(value) : value;
  return { startTimeUnixNano: start, timeUnixNano: now, attributes: encodeAttributes(attributes) };
}

function encodeAttributes(attributes: Attributes): object[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === "string" ? { stringValue: value.toWellFormed() } : { doubleValue: value },
  }));
}

/** Microseconds are the precision of a double here. */
function nanos(milliseconds: number): string {
  return `${Math.round(milliseconds * 1000)}000`;
}
