import { describe, expect, it } from "vitest";
import { planExport } from "./environment.js";

const plan = (env: Record<string, string>, options = {}) => planExport({ env, ...options });

describe("the environment", () => {
  it("exports nothing when the environment is empty", () => {
    expect(plan({}).targets).toEqual({});
  });

  it("appends the path of each signal to the base endpoint", () => {
    const { targets } = plan({ OTEL_EXPORTER_OTLP_ENDPOINT: "https://collector.example/otlp/" });
    expect(targets.traces?.href).toBe("https://collector.example/otlp/v1/traces");
    expect(targets.metrics?.href).toBe("https://collector.example/otlp/v1/metrics");
  });

  it("uses a signal's own endpoint unchanged", () => {
    const { targets } = plan({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://a/b" });
    expect(targets.traces?.href).toBe("http://a/b");
    expect(targets.metrics).toBeUndefined();
  });

  it("turns one signal or all signals off", () => {
    const base = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://a" };
    expect(plan({ ...base, OTEL_TRACES_EXPORTER: "none" }).targets.traces).toBeUndefined();
    expect(plan({ ...base, OTEL_SDK_DISABLED: "true" }).targets).toEqual({});
  });

  it("prefers options in code, and a tracer or meter of the program replaces the exporter", () => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://env", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://env/t" };
    expect(plan(env, { otlpEndpoint: "http://code" }).targets.traces?.href).toBe("http://code/v1/traces");
    const { targets } = plan(env, { tracer: {} });
    expect(targets.traces).toBeUndefined();
    expect(targets.metrics?.href).toBe("http://env/v1/metrics");
  });

  it("reads headers, timeout, service and sampling from the environment", () => {
    const { settings, resource, sampleRatio } = plan({
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20abc, x-a = b ,broken,%=%E0%A4%A",
      OTEL_EXPORTER_OTLP_TIMEOUT: "2500",
      OTEL_SERVICE_NAME: "gate-7",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=prod",
      OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
      OTEL_TRACES_SAMPLER_ARG: "0.1",
    });
    expect(settings.headers).toEqual({ authorization: "Bearer abc", "x-a": "b" });
    expect(settings.timeoutMs).toBe(2_500);
    expect(resource).toEqual({ "service.name": "gate-7", "deployment.environment.name": "prod" });
    expect(sampleRatio).toBe(0.1);
    expect(plan({ OTEL_TRACES_SAMPLER: "always_off" }).sampleRatio).toBe(0);
    expect(plan({ OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "7" }).sampleRatio).toBe(1);
  });

  it("reports unusable variables and continues without them", () => {
    expect(plan({ OTEL_EXPORTER_OTLP_ENDPOINT: "not a url" }).problems).toHaveLength(2);
    expect(plan({ OTEL_EXPORTER_OTLP_ENDPOINT: "ftp://a" }).targets).toEqual({});
    expect(plan({ OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" }).problems[0]).toContain("4318");
    expect(plan({ OTEL_EXPORTER_OTLP_TIMEOUT: "soon" }).settings.timeoutMs).toBe(10_000);
  });
});
