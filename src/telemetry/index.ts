export { visible } from "../lib/visible.js";
export type { Level, Logger, LogOptions } from "./log.js";
export {
  combineFamilies,
  countersOf,
  type Family,
  gauge,
  PROMETHEUS_CONTENT_TYPE,
  renderPrometheus,
} from "./series.js";
export { createTelemetry } from "./telemetry.js";
export { traceIdFrom } from "./trace-context.js";
export type { CallEnd, CallInfo, CallSpan, OtlpSettings, Telemetry, TelemetryOptions } from "./types.js";
