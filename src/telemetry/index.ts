export { createLogger, type Fields, isLevel, type Level, type Logger, type LogOptions, type LogStream } from "./log.js";
export { Metrics } from "./metrics.js";
export { PROMETHEUS_CONTENT_TYPE, renderPrometheus } from "./prometheus.js";
export { createTelemetry } from "./telemetry.js";
export {
  checkTracestate,
  formatTraceparent,
  newSpanId,
  newTraceId,
  parseTraceparent,
  type TraceContext,
  traceIdFrom,
} from "./trace-context.js";
export type { CallEnd, CallInfo, CallSpan, OtlpSettings, Telemetry, TelemetryOptions } from "./types.js";
export { visible } from "./visible.js";
