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
  it("the trace id comes from a valid traceparent, otherwise it is fresh", () => {
    const telemetry = quiet();
    expect(telemetry.startCall({ ...INFO, traceparent: PARENT }).traceId).toBe(TRACE);
    const broken = telemetry.startCall({ ...INFO, traceparent: "00-0-0-0", tracestate: "a=b" });
    expect(broken.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(broken.traceId).not.toBe(telemetry.startCall(INFO).traceId);
    expect(broken.tracestate).toBeUndefined();
  });

  it("the caller's context travels on as it came, for there is no span of ours to point at", () => {
    const span = quiet().startCall({ ...INFO, traceparent: PARENT, tracestate: "rojo=1" });
    expect(span.traceparent).toBe(PARENT);
    expect(span.tracestate).toBe("rojo=1");
  });

  it("a fresh trace has one header however often it is asked for", () => {
    const span = quiet().startCall(INFO);
    expect(span.traceparent).toBe(span.traceparent);
    expect(span.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-01$`));
  });

  it("a second end counts nothing", () => {
    const telemetry = quiet();
    const span = telemetry.startCall(INFO);
    span.end(OK);
    span.end(OK);
    const families = telemetry.metrics.families();
    expect(families.find((f) => f.name === "portcullis.calls")?.points[0]?.value).toBe(1);
    expect(families.find((f) => f.name === "portcullis.calls.in_flight")?.points[0]?.value).toBe(0);
  });

  it("a call that is refused or fails leaves a line with its trace id, one that goes well does not", () => {
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

  it("a call is a server span by the conventions, and its trace id is the one everybody sees", () => {
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

  it("the caller's context is the parent", () => {
    const { exporter, telemetry } = traced();
    const span = telemetry.startCall({ ...INFO, traceparent: PARENT });
    expect(span.traceId).toBe(TRACE);
    span.end(OK);
    expect(exporter.getFinishedSpans()[0]?.parentSpanContext).toMatchObject({
      spanId: "00f067aa0ba902b7",
      isRemote: true,
    });
  });

  it("a failure sets the status and the error type, in the convention's word for a failed tool", () => {
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

  it("a call that the sampler leaves out still has one trace id", () => {
    const { exporter, telemetry } = traced(new AlwaysOffSampler());
    const span = telemetry.startCall(INFO);
    expect(span.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-00$`));
    span.end(OK);
    expect(exporter.getFinishedSpans()).toHaveLength(0);
  });

  it("a note of an agent is an event of its own call's span, escaped, without secrets and within bounds", () => {
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

  it("a tracer with nothing behind it leaves the trace ids to us", () => {
    const telemetry = quiet({ tracer: trace.getTracer("nobody registered a provider") });
    const span = telemetry.startCall(INFO);
    expect(span.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(span.traceId).not.toBe("0".repeat(32));
  });

  it("a prompt is named as a prompt, and a resource's URI is in no span", () => {
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
  it("durations are recorded as they happen and the other numbers when the meter asks", () => {
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
