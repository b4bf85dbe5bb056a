import { type Context, type Meter, trace } from "@opentelemetry/api";
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { describe, expect, it } from "vitest";
import { createTelemetry } from "./telemetry.js";
import type { CallEnd, CallInfo, TelemetryOptions } from "./types.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = `00-${TRACE}-00f067aa0ba902b7-01`;
const INFO: CallInfo = {
  method: "tools/call",
  tool: "fs.read",
  app: "blog",
  agent: "writer",
  transport: "http",
  revision: "2026-07-28",
  requestId: 7,
  sessionId: "session-that-is-secret",
};
const OK: CallEnd = {
  effect: "permit",
  outcome: "ok",
  latencyMs: 3,
  bytes: 100,
  policyHash: "sha256:p",
  rule: "allow-read",
};

function quiet(options: TelemetryOptions = {}) {
  return createTelemetry({ env: {}, log: { level: "emergency" }, ...options });
}

describe("with nothing configured", () => {
  it("takes the trace id from a valid traceparent and makes one otherwise", () => {
    const telemetry = quiet();
    expect(telemetry.startCall({ ...INFO, traceparent: PARENT }).traceId).toBe(TRACE);
    const broken = telemetry.startCall({ ...INFO, traceparent: "00-0-0-0", tracestate: "a=b" });
    expect(broken.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(broken.traceId).not.toBe(telemetry.startCall(INFO).traceId);
    expect(broken.tracestate).toBeUndefined();
  });

  it("forwards the caller's trace context unchanged when no span is exported", () => {
    const span = quiet().startCall({ ...INFO, traceparent: PARENT, tracestate: "rojo=1" });
    expect(span.traceparent).toBe(PARENT);
    expect(span.tracestate).toBe("rojo=1");
  });

  it("returns one header for a fresh trace however often it is read", () => {
    const span = quiet().startCall(INFO);
    expect(span.traceparent).toBe(span.traceparent);
    expect(span.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-01$`));
  });

  it("counts a call once when it is ended twice", () => {
    const telemetry = quiet();
    const span = telemetry.startCall(INFO);
    span.end(OK);
    span.end(OK);
    const families = telemetry.metrics.families();
    expect(families.find((f) => f.name === "portcullis.calls")?.points[0]?.value).toBe(1);
    expect(families.find((f) => f.name === "portcullis.calls.in_flight")?.points[0]?.value).toBe(0);
  });

  it("logs a denied or failed call with its trace id, and no successful one", () => {
    const lines: string[] = [];
    const telemetry = createTelemetry({ env: {}, log: { stream: { write: (text: string) => lines.push(text) } } });
    telemetry.startCall(INFO).end(OK);
    expect(lines).toEqual([]);
    const span = telemetry.startCall(INFO);
    span.end({ ...OK, effect: "deny", outcome: "denied", errorType: "PolicyDeny", rule: "no-read" });
    const line = JSON.parse(lines[0] as string);
    expect(line).toMatchObject({
      level: "notice",
      trace_id: span.traceId,
      fields: { tool: "fs.read", rule: "no-read" },
    });
    telemetry.startCall(INFO).end({ ...OK, outcome: "error", errorType: "AuditFailure" });
    expect(JSON.parse(lines[1] as string).level).toBe("error");
  });
});

describe("with a tracer of an OpenTelemetry SDK", () => {
  function traced(sampler?: AlwaysOffSampler) {
    const exporter = new InMemorySpanExporter();
    const provider = new BasicTracerProvider({
      spanProcessors: [new SimpleSpanProcessor(exporter)],
      ...(sampler ? { sampler } : {}),
    });
    return { exporter, telemetry: quiet({ tracer: provider.getTracer("test") }) };
  }

  it("exports a call as a server span of the conventions, under its trace id [U13]", () => {
    const { exporter, telemetry } = traced();
    const span = telemetry.startCall(INFO);
    span.end(OK);
    const [finished] = exporter.getFinishedSpans();
    expect(finished?.spanContext().traceId).toBe(span.traceId);
    expect(span.traceparent).toBe(`00-${span.traceId}-${finished?.spanContext().spanId}-01`);
    expect(finished?.name).toBe("tools/call fs.read");
    expect(finished?.kind).toBe(1);
    expect(finished?.status.code).toBe(0);
    expect(finished?.attributes).toEqual({
      "mcp.method.name": "tools/call",
      "mcp.protocol.version": "2026-07-28",
      "gen_ai.tool.name": "fs.read",
      "gen_ai.operation.name": "execute_tool",
      "jsonrpc.request.id": "7",
      "mcp.session.id": expect.stringMatching(/^sha256:[0-9a-f]{16}$/),
      "network.transport": "tcp",
      "network.protocol.name": "http",
      "portcullis.app": "blog",
      "portcullis.agent": "writer",
      "portcullis.effect": "permit",
      "portcullis.outcome": "ok",
      "portcullis.policy": "sha256:p",
      "portcullis.rule": "allow-read",
    });
    expect(JSON.stringify(finished?.attributes)).not.toContain("session-that-is-secret");
  });

  it("makes the caller's context the parent of the span", () => {
    const { exporter, telemetry } = traced();
    const span = telemetry.startCall({ ...INFO, traceparent: PARENT });
    expect(span.traceId).toBe(TRACE);
    span.end(OK);
    expect(exporter.getFinishedSpans()[0]?.parentSpanContext).toMatchObject({
      spanId: "00f067aa0ba902b7",
      isRemote: true,
    });
  });

  it("sets the status and the error type of the conventions for a failure", () => {
    const { exporter, telemetry } = traced();
    telemetry.startCall(INFO).end({ ...OK, outcome: "error", errorType: "ToolExecution" });
    telemetry
      .startCall({ ...INFO, tool: "made-up" })
      .end({ ...OK, effect: "deny", outcome: "error", errorType: "ToolNotFound" });
    telemetry.startCall(INFO).end({ ...OK, outcome: "tool_error" });
    const [failed, unknown, answered] = exporter.getFinishedSpans();
    expect(answered?.status.code).toBe(2);
    expect(answered?.attributes["error.type"]).toBe("tool_error");
    expect(failed?.status.code).toBe(2);
    expect(failed?.attributes["error.type"]).toBe("tool_error");
    expect(unknown?.name).toBe("tools/call");
  });

  it("keeps one trace id for a call that is not sampled", () => {
    const { exporter, telemetry } = traced(new AlwaysOffSampler());
    const span = telemetry.startCall(INFO);
    expect(span.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-00$`));
    span.end(OK);
    expect(exporter.getFinishedSpans()).toHaveLength(0);
  });

  it("adds a note as an event of its own call's span, escaped, bounded and without secrets", () => {
    const { exporter, telemetry } = traced();
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const other = telemetry.startCall({ ...INFO, app: "other", traceparent });
    const beside = telemetry.startCall({ ...INFO, traceparent });
    const span = telemetry.startCall({ ...INFO, traceparent });
    telemetry.note(INFO.app, span.traceId, "warning", "a\nb \u202e Bearer abcdefgh12345");
    for (let i = 0; i < 100; i++) telemetry.note(INFO.app, span.traceId, "info", "x".repeat(5_000));
    beside.end(OK);
    span.end(OK);
    other.end(OK);
    telemetry.note(INFO.app, span.traceId, "info", "too late");
    const events = exporter.getFinishedSpans().map((finished) => finished.events);
    expect(events.map((list) => list.length)).toEqual([0, 32, 0]);
    expect(events[1]?.[0]).toMatchObject({
      name: "log",
      attributes: {
        "portcullis.note.level": "warning",
        "portcullis.note.message": "a\\u000ab \\u202e Bearer [redacted]",
      },
    });
    expect(String(events[1]?.[1]?.attributes?.["portcullis.note.message"]).length).toBe(1_025);
  });

  it("makes trace ids itself when the tracer has no provider", () => {
    const telemetry = quiet({ tracer: trace.getTracer("no provider is registered") });
    const span = telemetry.startCall(INFO);
    expect(span.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(span.traceId).not.toBe("0".repeat(32));
  });

  it("names prompts as prompts, and no span holds a resource's URI", () => {
    const { exporter, telemetry } = traced();
    telemetry.startCall({ ...INFO, method: "prompts/get", tool: "greet", transport: "stdio" }).end(OK);
    telemetry.startCall({ ...INFO, method: "resources/read", tool: "file:///etc/passwd" }).end(OK);
    telemetry.startCall({ ...INFO, method: "fs.read", tool: "fs.read", transport: "tcp" }).end(OK);
    const [prompt, resource, plain] = exporter.getFinishedSpans();
    expect(prompt?.name).toBe("prompts/get greet");
    expect(prompt?.attributes).toMatchObject({ "gen_ai.prompt.name": "greet", "network.transport": "pipe" });
    expect(resource?.name).toBe("resources/read");
    expect(JSON.stringify(resource?.attributes)).not.toContain("passwd");
    expect(plain?.name).toBe("fs.read");
  });
});

describe("with a meter", () => {
  it("records durations at once and the other figures when the meter reads them", () => {
    const recorded: [number, unknown][] = [];
    const observed = new Map<string, number>();
    let histogramOptions: unknown;
    let collect: (result: { observe(instrument: { name: string }, value: number): void }, context?: Context) => void =
      () => {};
    const instrument = (name: string) => ({ name });
    const meter = {
      createHistogram(_name: string, options: unknown) {
        histogramOptions = options;
        return { record: (value: number, attributes: unknown) => recorded.push([value, attributes]) };
      },
      createObservableCounter: instrument,
      createObservableGauge: instrument,
      addBatchObservableCallback: (callback: typeof collect) => {
        collect = callback;
      },
    } as unknown as Meter;
    const telemetry = quiet({ meter });
    telemetry.startCall(INFO).end(OK);
    collect({ observe: (source, value) => observed.set(source.name, value) });
    expect(histogramOptions).toMatchObject({
      unit: "s",
      advice: { explicitBucketBoundaries: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] },
    });
    expect(recorded).toEqual([
      [
        0.003,
        {
          "mcp.method.name": "tools/call",
          "mcp.protocol.version": "2026-07-28",
          "gen_ai.tool.name": "fs.read",
          "gen_ai.operation.name": "execute_tool",
          "network.transport": "tcp",
          "network.protocol.name": "http",
        },
      ],
    ]);
    expect(observed.get("portcullis.calls")).toBe(1);
    expect(observed.get("process.memory.usage")).toBeGreaterThan(1e6);
  });
});
