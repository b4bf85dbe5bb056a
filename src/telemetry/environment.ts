// The variables that every OpenTelemetry program reads, as far as we have what they set. An option given in code wins.

import type { Attributes } from "./conventions.js";
import { DEFAULT_OTLP, type OtlpTargets } from "./otlp.js";
import type { OtlpSettings, TelemetryOptions } from "./types.js";

export interface ExportPlan {
  readonly targets: OtlpTargets;
  readonly settings: OtlpSettings;
  readonly resource: Attributes;
  readonly sampleRatio: number;
  /** What could not be used, for the log. */
  readonly problems: readonly string[];
}

type Environment = Readonly<Record<string, string | undefined>>;

export function planExport(options: TelemetryOptions): ExportPlan {
  const env: Environment = options.env ?? process.env;
  const problems: string[] = [];
  const settings = {
    ...DEFAULT_OTLP,
    headers: pairs(env.OTEL_EXPORTER_OTLP_HEADERS),
    ...whole(env.OTEL_EXPORTER_OTLP_TIMEOUT, "timeoutMs"),
    ...whole(env.OTEL_METRIC_EXPORT_INTERVAL, "metricsIntervalMs"),
    ...options.otlp,
  };
  const resource: Attributes = {
    ...pairs(env.OTEL_RESOURCE_ATTRIBUTES),
    "service.name": options.serviceName ?? env.OTEL_SERVICE_NAME ?? "portcullis",
  };
  return { targets: targets(options, env, problems), settings, resource, sampleRatio: ratio(options, env), problems };
}

function targets(options: TelemetryOptions, env: Environment, problems: string[]): OtlpTargets {
  const out: { traces?: URL; metrics?: URL } = {};
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === "true") return out;
  if (env.OTEL_EXPORTER_OTLP_PROTOCOL === "grpc") {
    problems.push("OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not spoken here; name the collector's OTLP/HTTP port (4318)");
  }
  const traces = endpoint(options, env, "TRACES", "v1/traces", problems);
  const metrics = endpoint(options, env, "METRICS", "v1/metrics", problems);
  if (traces && options.tracer === undefined) out.traces = traces;
  if (metrics && options.meter === undefined) out.metrics = metrics;
  return out;
}

/** A signal's own variable is used as it stands; to the base the signal's path is added. */
function endpoint(
  options: TelemetryOptions,
  env: Environment,
  signal: "TRACES" | "METRICS",
  path: string,
  problems: string[],
): URL | undefined {
  if (env[`OTEL_${signal}_EXPORTER`] === "none") return undefined;
  const own = options.otlpEndpoint === undefined ? env[`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`] : undefined;
  const base = options.otlpEndpoint ?? env.OTEL_EXPORTER_OTLP_ENDPOINT;
  const text = own || (base && `${base.replace(/\/+$/, "")}/${path}`);
  if (!text) return undefined;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && (url.protocol === "http:" || url.protocol === "https:")) return url;
  problems.push(`the OTLP endpoint for ${signal.toLowerCase()} is not an http or https URL; nothing is exported`);
  return undefined;
}

function ratio(options: TelemetryOptions, env: Environment): number {
  if (options.sampleRatio !== undefined) return options.sampleRatio;
  const sampler = env.OTEL_TRACES_SAMPLER ?? "";
  if (sampler.endsWith("always_off")) return 0;
  const share = sampler.endsWith("traceidratio") ? Number(env.OTEL_TRACES_SAMPLER_ARG ?? "1") : 1;
  return share >= 0 && share <= 1 ? share : 1;
}

/** `key=value,key=value` with percent-encoded values; a pair that cannot be read is left out. */
function pairs(text: string | undefined): Record<string, string> {
  const out: Record<string, string> = {};
  for (const pair of (text ?? "").split(",").slice(0, 64)) {
    const at = pair.indexOf("=");
    const key = pair.slice(0, Math.max(at, 0)).trim();
    if (key === "") continue;
    try {
      out[key] = decodeURIComponent(pair.slice(at + 1).trim());
    } catch {
      // Percent signs that encode nothing: the pair is left out.
    }
  }
  return out;
}

function whole<K extends "timeoutMs" | "metricsIntervalMs">(
  text: string | undefined,
  key: K,
): { [name in K]?: number } {
  if (text === undefined || !/^\d{1,7}$/.test(text) || Number(text) === 0) return {};
  return { [key]: Number(text) } as { [name in K]?: number };
}
