import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { createTelemetry } from "./telemetry.js";
import type { CallEnd, CallInfo, OtlpSettings, Telemetry, TelemetryOptions } from "./types.js";

interface Attribute {
  key: string;
  value: { stringValue?: string; doubleValue?: number };
}
interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  traceState?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: Attribute[];
  status: { code?: number };
}

/** A collector that reads OTLP's JSON strictly and answers as it is told. */
class TestCollector {
  readonly spans: Span[] = [];
  readonly metrics: {
    name: string;
    sum?: unknown;
    gauge?: unknown;
    histogram?: { dataPoints: Record<string, unknown>[] };
  }[] = [];
  readonly requests: { path: string; headers: IncomingMessage["headers"] }[] = [];
  readonly problems: string[] = [];
  answer: (response: ServerResponse) => void = (response) =>
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  readonly #server: Server = createServer((request, response) => this.#take(request, response));

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }
  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    let text = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => {
      text += chunk;
    });
    request.on("end", () => {
      this.requests.push({ path: request.url ?? "", headers: request.headers });
      if (request.method !== "POST") this.problems.push(`method ${request.method}`);
      if (request.headers["content-type"] !== "application/json") this.problems.push("content type");
      const body = JSON.parse(text);
      if (request.url === "/v1/traces") this.#takeSpans(body);
      else if (request.url === "/v1/metrics") this.#takeMetrics(body);
      else this.problems.push(`path ${request.url}`);
      this.answer(response);
    });
  }

  #takeSpans(body: {
    resourceSpans: {
      resource: { attributes: Attribute[] };
      scopeSpans: { scope: { name: string }; spans: Span[] }[];
    }[];
  }): void {
    for (const { resource, scopeSpans } of body.resourceSpans) {
      if (attribute(resource.attributes, "service.name") !== "portcullis") this.problems.push("service.name");
      for (const { spans } of scopeSpans) {
        if (spans.length === 0) this.problems.push("an empty envelope");
        for (const span of spans) this.#checkSpan(span);
      }
    }
  }

  #checkSpan(span: Span): void {
    const { problems } = this;
    if (!/^[0-9a-f]{32}$/i.test(span.traceId) || /^0+$/.test(span.traceId)) problems.push("traceId");
    if (!/^[0-9a-f]{16}$/i.test(span.spanId) || /^0+$/.test(span.spanId)) problems.push("spanId");
    if (span.parentSpanId !== undefined && !/^[0-9a-f]{16}$/.test(span.parentSpanId)) problems.push("parentSpanId");
    if (!Number.isInteger(span.kind)) problems.push("kind is not a number");
    for (const time of [span.startTimeUnixNano, span.endTimeUnixNano]) {
      if (typeof time !== "string" || !/^\d{19}$/.test(time)) problems.push(`time ${time}`);
    }
    if (BigInt(span.endTimeUnixNano) < BigInt(span.startTimeUnixNano)) problems.push("ends before it starts");
    for (const { key, value } of span.attributes) {
      if (typeof key !== "string" || Object.keys(value).length !== 1) problems.push(`attribute ${key}`);
    }
    if (new Set(span.attributes.map((a) => a.key)).size !== span.attributes.length) problems.push("an attribute twice");
    this.spans.push(span);
  }

  #takeMetrics(body: { resourceMetrics: { scopeMetrics: { metrics: TestCollector["metrics"] }[] }[] }): void {
    for (const { scopeMetrics } of body.resourceMetrics) {
      for (const { metrics } of scopeMetrics) {
        for (const metric of metrics) {
          if ([metric.sum, metric.gauge, metric.histogram].filter((x) => x !== undefined).length !== 1) {
            this.problems.push(`data of ${metric.name}`);
          }
          for (const point of metric.histogram?.dataPoints ?? []) this.#checkHistogram(point);
          this.metrics.push(metric);
        }
      }
    }
  }

  #checkHistogram(point: Record<string, unknown>): void {
    const counts = point.bucketCounts as string[];
    const bounds = point.explicitBounds as number[];
    if (counts.length !== bounds.length + 1) this.problems.push("bucket counts");
    if (counts.reduce((sum, count) => sum + BigInt(count), 0n) !== BigInt(point.count as string))
      this.problems.push("count");
  }
}

function attribute(attributes: Attribute[], key: string): string | number | undefined {
  const value = attributes.find((a) => a.key === key)?.value;
  return value?.stringValue ?? value?.doubleValue;
}

const INFO: CallInfo = {
  method: "tools/call",
  tool: "fs.read",
  app: "blog",
  agent: "writer",
  transport: "stdio",
  revision: "2025-11-25",
  requestId: "r-1",
};
const OK: CallEnd = { effect: "permit", outcome: "ok", latencyMs: 2.5, bytes: 10, policyHash: "sha256:p" };
const FAST: Partial<OtlpSettings> = {
  intervalMs: 10,
  backoffMs: 5,
  maxBackoffMs: 20,
  timeoutMs: 500,
  shutdownMs: 1_000,
};

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

async function collector(): Promise<{ collector: TestCollector; url: string }> {
  const collector = new TestCollector();
  const url = await collector.start();
  open.push(() => collector.stop());
  return { collector, url };
}

function exporting(url: string, options: TelemetryOptions = {}): Telemetry {
  const telemetry = createTelemetry({
    env: {},
    otlpEndpoint: url,
    log: { level: "emergency" },
    ...options,
    otlp: { ...FAST, ...options.otlp },
  });
  open.push(() => telemetry.shutdown());
  return telemetry;
}

function dropped(telemetry: Telemetry): number {
  const family = telemetry.metrics.families().find((f) => f.name === "portcullis.telemetry.dropped");
  return family?.points.find((p) => p.labels[0]?.[1] === "traces")?.value ?? 0;
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 1_000; i++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error("it did not come to pass within 5 s");
}

describe("a collector", () => {
  it("exports the notes of a call as events of its span", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url);
    const span = telemetry.startCall(INFO);
    telemetry.note(INFO.app, span.traceId, "notice", "half way");
    telemetry.note("other", span.traceId, "notice", "not mine");
    span.end(OK);
    await until(() => it.spans.length === 1);
    expect(it.problems).toEqual([]);
    const [event, ...rest] = (it.spans[0] as unknown as { events: Record<string, unknown>[] }).events;
    expect(rest).toEqual([]);
    expect(event).toMatchObject({ name: "log", timeUnixNano: expect.stringMatching(/^\d{19}$/) });
    expect(event?.attributes).toEqual([
      { key: "portcullis.note.level", value: { stringValue: "notice" } },
      { key: "portcullis.note.message", value: { stringValue: "half way" } },
    ]);
  });

  it("exports each call as a span that OTLP's JSON form allows", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url);
    const span = telemetry.startCall({
      ...INFO,
      traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
      tracestate: "rojo=1",
    });
    expect(span.traceparent).toMatch(/^00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01$/);
    span.end({ ...OK, effect: "deny", outcome: "denied", errorType: "PolicyDeny", rule: "no-read" });
    await until(() => it.spans.length === 1);
    expect(it.problems).toEqual([]);
    const sent = it.spans[0] as Span;
    expect(sent).toMatchObject({
      traceId: span.traceId,
      parentSpanId: "00f067aa0ba902b7",
      traceState: "rojo=1",
      name: "tools/call fs.read",
      kind: 2,
      status: { code: 2 },
    });
    expect(span.traceparent).toContain(sent.spanId);
    expect(BigInt(sent.endTimeUnixNano) - BigInt(sent.startTimeUnixNano)).toBe(2_500_000n);
    expect(Object.fromEntries(sent.attributes.map((a) => [a.key, a.value.stringValue]))).toEqual({
      "mcp.method.name": "tools/call",
      "mcp.protocol.version": "2025-11-25",
      "portcullis.app": "blog",
      "portcullis.agent": "writer",
      "gen_ai.tool.name": "fs.read",
      "gen_ai.operation.name": "execute_tool",
      "jsonrpc.request.id": "r-1",
      "network.transport": "pipe",
      "portcullis.effect": "deny",
      "portcullis.outcome": "denied",
      "portcullis.policy": "sha256:p",
      "portcullis.rule": "no-read",
      "error.type": "PolicyDeny",
    });
  });

  it("exports many calls in few requests, with the configured headers", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(`${url}/`, { otlp: { batchSize: 100, headers: { "x-tenant": "t1" } } });
    for (let i = 0; i < 1_000; i++) telemetry.startCall(INFO).end(OK);
    await until(() => it.spans.length === 1_000);
    expect(it.requests.length).toBeLessThanOrEqual(11);
    expect(it.requests[0]?.headers["x-tenant"]).toBe("t1");
    expect(new Set(it.spans.map((s) => s.spanId)).size).toBe(1_000);
    expect(dropped(telemetry)).toBe(0);
  });

  it("exports the metrics of the conventions, with their bounds", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url, { otlp: { metricsIntervalMs: 20 } });
    telemetry.startCall(INFO).end(OK);
    telemetry.startCall(INFO).end({ ...OK, latencyMs: 15, errorType: "ToolExecution", outcome: "error" });
    await until(() => it.metrics.some((m) => m.name === "mcp.server.operation.duration"));
    expect(it.problems).toEqual([]);
    const points = it.metrics.find((m) => m.name === "mcp.server.operation.duration")?.histogram?.dataPoints ?? [];
    expect(points[0]).toMatchObject({
      count: "1",
      sum: 0.0025,
      explicitBounds: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300],
      bucketCounts: ["1", ...Array.from({ length: 14 }, () => "0")],
    });
    expect(points[1]).toMatchObject({ bucketCounts: ["0", "1", ...Array.from({ length: 13 }, () => "0")] });
    expect(attribute(points[1]?.attributes as Attribute[], "error.type")).toBe("tool_error");
    expect(it.metrics.some((m) => m.name === "portcullis.calls")).toBe(true);
  });

  it("exports what is still queued when the program ends", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url, { otlp: { intervalMs: 60_000 } });
    for (let i = 0; i < 700; i++) telemetry.startCall(INFO).end(OK);
    await telemetry.shutdown();
    expect(it.spans).toHaveLength(700);
    expect(it.requests.at(-1)?.path).toBe("/v1/metrics");
  });

  it("exports no argument, result or session id", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url);
    telemetry
      .startCall({ ...INFO, sessionId: "secret-session", method: "resources/read", tool: "file:///secret" })
      .end(OK);
    await until(() => it.spans.length === 1);
    expect(JSON.stringify(it.spans)).not.toContain("secret");
  });
});

describe("sampling", () => {
  it("samples as the parent of a trace was sampled", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url, { sampleRatio: 0 });
    const left = telemetry.startCall({
      ...INFO,
      traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
    });
    expect(left.traceparent).toBe("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
    left.end(OK);
    telemetry.startCall({ ...INFO, traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }).end(OK);
    telemetry.startCall(INFO).end(OK);
    await telemetry.shutdown();
    expect(it.spans).toHaveLength(1);
  });

  it("samples the configured share of traces that begin here", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url, { sampleRatio: 0.25, otlp: { maxQueue: 100_000 } });
    for (let i = 0; i < 4_000; i++) telemetry.startCall(INFO).end(OK);
    await telemetry.shutdown();
    // Binomial with n = 4000, p = 1/4: beyond 8 standard deviations of 27.4 is out of the question.
    expect(it.spans.length).toBeGreaterThan(780);
    expect(it.spans.length).toBeLessThan(1_220);
  });
});

describe("a collector that is away", () => {
  it("drops and counts spans when the collector is unreachable, and delays no call", async () => {
    const { collector: gone, url } = await collector();
    await gone.stop();
    open.length = 0;
    const lines: string[] = [];
    const telemetry = exporting(url, {
      otlp: { maxQueue: 50, batchSize: 10, maxAttempts: 2 },
      log: { stream: { write: (text: string) => lines.push(text) } },
    });
    for (let i = 0; i < 500; i++) telemetry.startCall(INFO).end(OK);
    expect(dropped(telemetry)).toBe(450);
    await telemetry.shutdown();
    expect(dropped(telemetry)).toBe(500);
    expect(lines.filter((line) => line.includes("collector"))).toHaveLength(1);
  });

  it("abandons a collector that hangs after the timeout, and shutdown keeps its limit", async () => {
    const { collector: it, url } = await collector();
    it.answer = () => {};
    const telemetry = exporting(url, { otlp: { timeoutMs: 50, maxAttempts: 1, shutdownMs: 100 } });
    telemetry.startCall(INFO).end(OK);
    await until(() => dropped(telemetry) === 1);
    telemetry.startCall(INFO).end(OK);
    await telemetry.shutdown();
    expect(dropped(telemetry)).toBe(2);
  });

  it("exports the queue when the collector is reachable again", async () => {
    const { collector: it, url } = await collector();
    let refusals = 0;
    it.answer = (response) => {
      if (++refusals <= 2) response.writeHead(503, { "retry-after": "0" }).end();
      else response.writeHead(200).end("{}");
    };
    const telemetry = exporting(url, { otlp: { maxAttempts: 5 } });
    telemetry.startCall(INFO).end(OK);
    await until(() => it.requests.filter((r) => r.path === "/v1/traces").length === 3);
    await telemetry.shutdown();
    expect(dropped(telemetry)).toBe(0);
    expect(new Set(it.spans.map((s) => s.spanId)).size).toBe(1);
  });

  it("does not retry data that the collector refuses permanently", async () => {
    const { collector: it, url } = await collector();
    it.answer = (response) => response.writeHead(400).end();
    const telemetry = exporting(url);
    telemetry.startCall(INFO).end(OK);
    await until(() => dropped(telemetry) === 1);
    expect(it.requests.filter((r) => r.path === "/v1/traces")).toHaveLength(1);
  });

  it("counts the spans of a partial success that were rejected", async () => {
    const { collector: it, url } = await collector();
    it.answer = (response) => response.writeHead(200).end('{"partialSuccess":{"rejectedSpans":"3"}}');
    const telemetry = exporting(url);
    for (let i = 0; i < 5; i++) telemetry.startCall(INFO).end(OK);
    await until(() => dropped(telemetry) === 3);
    expect(it.requests.filter((r) => r.path === "/v1/traces")).toHaveLength(1);
  });

  it("drops spans, and only spans, when an OTLP header is invalid", async () => {
    const { url } = await collector();
    const telemetry = exporting(url, { otlp: { headers: { "x-key": "a\nb" }, metricsIntervalMs: 10 } });
    telemetry.startCall(INFO).end(OK);
    await until(() => dropped(telemetry) === 1);
  });

  it("exports the other metrics when one figure cannot be read", async () => {
    const { collector: it, url } = await collector();
    const telemetry = exporting(url, { otlp: { metricsIntervalMs: 10 } });
    let breaks = true;
    telemetry.metrics.addSource(() => {
      if (breaks) throw new Error("no figure");
      return [];
    });
    await new Promise((resolve) => setTimeout(resolve, 40));
    expect(it.metrics).toEqual([]);
    breaks = false;
    await until(() => it.metrics.length > 0);
  });

  it("cuts off a response of the collector that does not end", async () => {
    const { collector: it, url } = await collector();
    it.answer = (response) => {
      response.writeHead(200);
      response.write("x".repeat(200_000));
    };
    const telemetry = exporting(url, { otlp: { maxAttempts: 1, timeoutMs: 60_000 } });
    telemetry.startCall(INFO).end(OK);
    await until(() => dropped(telemetry) === 1);
  });
});
