import { describe, expect, it } from "vitest";
import { Metrics } from "./metrics.js";
import { renderPrometheus } from "./series.js";
import { createTelemetry } from "./telemetry.js";
import type { CallEnd, CallInfo } from "./types.js";

interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}
interface Parsed {
  types: Map<string, string>;
  samples: Sample[];
}

/** Reads the text format by its grammar and refuses what a scraper may refuse. */
function parse(text: string): Parsed {
  if (!text.endsWith("\n")) throw new Error("the last line must end with a line feed");
  const types = new Map<string, string>();
  const samples: Sample[] = [];
  const helped = new Set<string>();
  let current = "";
  const closed = new Set<string>();
  for (const line of text.slice(0, -1).split("\n")) {
    const meta = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)$/.exec(line);
    if (meta) {
      const [, kind, name, rest] = meta as unknown as [string, string, string, string];
      if (name !== current) {
        if (closed.has(name)) throw new Error(`the lines of ${name} are not in one group`);
        if (current !== "") closed.add(current);
        current = name;
      }
      if (kind === "HELP") {
        if (helped.has(name)) throw new Error(`two HELP lines for ${name}`);
        if (/\\(?![\\n])/.test(rest)) throw new Error(`a bad escape in the help of ${name}`);
        helped.add(name);
      } else {
        if (types.has(name)) throw new Error(`two TYPE lines for ${name}`);
        if (!["counter", "gauge", "histogram", "summary", "untyped"].includes(rest)) throw new Error(`type ${rest}`);
        types.set(name, rest);
      }
      continue;
    }
    if (line.startsWith("#") || line === "") throw new Error(`a line that says nothing: ${JSON.stringify(line)}`);
    samples.push(parseSample(line, current));
  }
  checkSamples(types, samples);
  return { types, samples };
}

function parseSample(line: string, family: string): Sample {
  const name = /^[a-zA-Z_:][a-zA-Z0-9_:]*/.exec(line)?.[0] ?? "";
  if (![family, `${family}_bucket`, `${family}_sum`, `${family}_count`].includes(name)) {
    throw new Error(`${name} stands under ${family}`);
  }
  let at = name.length;
  const labels: Record<string, string> = {};
  if (line[at] === "{") {
    at++;
    while (line[at] !== "}") {
      const match = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\"n])*)"(,(?=[a-zA-Z_])|(?=}))/.exec(line.slice(at));
      if (!match) throw new Error(`labels of ${JSON.stringify(line)}`);
      const [whole, label, raw] = match as unknown as [string, string, string];
      if (Object.hasOwn(labels, label)) throw new Error(`label ${label} twice`);
      labels[label] = raw.replace(/\\([\\"n])/g, (_all, c: string) => (c === "n" ? "\n" : c));
      at += whole.length;
    }
    at++;
  }
  const value = /^ (NaN|[+-]Inf|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/.exec(line.slice(at))?.[1];
  if (value === undefined) throw new Error(`value of ${JSON.stringify(line)}`);
  return { name, labels, value: Number(value.replace("Inf", "Infinity")) };
}

function checkSamples(types: Map<string, string>, samples: Sample[]): void {
  const seen = new Set<string>();
  for (const { name, labels, value } of samples) {
    const key = `${name} ${JSON.stringify(Object.entries(labels).sort())}`;
    if (seen.has(key)) throw new Error(`the same series twice: ${key}`);
    seen.add(key);
    if (types.get(name) === "counter" && (!name.endsWith("_total") || value < 0)) throw new Error(`counter ${name}`);
  }
  for (const [name, type] of types) if (type === "histogram") checkHistogram(name, samples);
}

function checkHistogram(name: string, samples: Sample[]): void {
  const rows = new Map<string, { le: number; value: number }[]>();
  for (const { name: sample, labels, value } of samples) {
    if (sample !== `${name}_bucket`) continue;
    const { le, ...rest } = labels;
    const key = JSON.stringify(rest);
    rows.set(key, [...(rows.get(key) ?? []), { le: Number((le as string).replace("+Inf", "Infinity")), value }]);
  }
  for (const [key, buckets] of rows) {
    for (let i = 1; i < buckets.length; i++) {
      const [a, b] = [buckets[i - 1], buckets[i]] as [{ le: number; value: number }, { le: number; value: number }];
      if (!(a.le < b.le) || a.value > b.value) throw new Error(`buckets of ${name}${key} do not grow`);
    }
    const last = buckets.at(-1);
    const count = samples.find((s) => s.name === `${name}_count` && JSON.stringify(s.labels) === key);
    if (last?.le !== Infinity || count?.value !== last.value) throw new Error(`count of ${name}${key}`);
  }
}

const INFO: CallInfo = {
  method: "tools/call",
  tool: "fs.read",
  app: "a",
  agent: "b",
  transport: "http",
  revision: "r",
};
const OK: CallEnd = { effect: "permit", outcome: "ok", latencyMs: 3, bytes: 100, policyHash: "p" };

function call(metrics: Metrics, info: Partial<CallInfo> = {}, end: Partial<CallEnd> = {}): void {
  metrics.callStarted();
  metrics.callEnded({ ...INFO, ...info }, { ...OK, ...end });
}

function find(parsed: Parsed, name: string, labels: Record<string, string> = {}): number | undefined {
  return parsed.samples.find(
    (sample) => sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
  )?.value;
}

describe("the scrape", () => {
  it("lists every documented family in the text format [U13]", () => {
    const telemetry = createTelemetry({ env: {}, log: { level: "emergency" } });
    const { metrics } = telemetry;
    telemetry.startCall(INFO);
    telemetry.startCall(INFO).end(OK);
    telemetry.startCall(INFO).end({ ...OK, effect: "deny", outcome: "denied", errorType: "PolicyDeny", rule: "no-rm" });
    telemetry.startCall(INFO).end({ ...OK, effect: "challenge", outcome: "pending", rule: "ask" });
    metrics.connections.add(2, "http");
    metrics.connections.add(-1, "http");
    let size = 10;
    metrics.watchLedger(() => ({ size, pending: 2, openCalls: 3, healthy: true, flushLagMs: 1_500 }));
    size = 14;
    metrics.ledgerFailures.inc();
    telemetry.startCall({ ...INFO, method: "m" }).end({ ...OK, outcome: "failed", errorType: "AuditFailure" });
    metrics.policyReloads.inc();
    metrics.policyRefusals.inc();
    metrics.unauthenticated.inc();
    metrics.telemetryDropped.add(7, "traces");
    const parsed = parse(renderPrometheus(metrics.families()));
    const one = (name: string, labels?: Record<string, string>) => find(parsed, name, labels);
    expect(
      one("portcullis_calls_total", {
        mcp_method_name: "tools/call",
        portcullis_effect: "permit",
        portcullis_outcome: "ok",
      }),
    ).toBe(1);
    expect(one("portcullis_denials_total", { portcullis_rule: "no-rm" })).toBe(1);
    expect(one("portcullis_challenges_total", { portcullis_rule: "ask" })).toBe(1);
    expect(one("portcullis_calls_in_flight")).toBe(1);
    expect(one("portcullis_connections", { portcullis_transport: "http" })).toBe(1);
    expect(one("portcullis_ledger_appends_total")).toBe(4);
    expect(one("portcullis_ledger_pending")).toBe(2);
    expect(one("portcullis_ledger_flush_lag_seconds")).toBe(1.5);
    expect(one("portcullis_application_calls_total", { portcullis_app: "a", portcullis_effect: "deny" })).toBe(1);
    expect(one("portcullis_ledger_open_calls")).toBe(3);
    expect(one("portcullis_ledger_healthy")).toBe(1);
    expect(one("portcullis_ledger_failures_total")).toBe(2);
    expect(one("portcullis_policy_reloads_total")).toBe(1);
    expect(one("portcullis_policy_refusals_total")).toBe(1);
    expect(one("portcullis_unauthenticated_total")).toBe(1);
    expect(one("portcullis_telemetry_dropped_total", { portcullis_signal: "traces" })).toBe(7);
    expect(one("portcullis_response_size_bytes_total", { mcp_method_name: "tools/call" })).toBe(300);
    expect(
      one("mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "fs.read", error_type: "PolicyDeny" }),
    ).toBe(1);
    expect(one("process_memory_usage_bytes")).toBeGreaterThan(1e6);
    expect(one("process_uptime_seconds")).toBeGreaterThan(0);
    expect(one("nodejs_eventloop_delay_p99_seconds")).toBeGreaterThanOrEqual(0);
  });

  it("counts a latency in its bucket", () => {
    const metrics = new Metrics();
    for (const latencyMs of [0.5, 1, 7, 10, 10.1, 400_000, Number.NaN, -1]) call(metrics, {}, { latencyMs });
    const parsed = parse(renderPrometheus(metrics.families()));
    const below = (le: string) => find(parsed, "mcp_server_operation_duration_seconds_bucket", { le });
    expect(below("0.001")).toBe(4);
    expect(below("0.005")).toBe(4);
    expect(below("0.01")).toBe(6);
    expect(below("0.02")).toBe(7);
    expect(below("300")).toBe(7);
    expect(below("+Inf")).toBe(8);
    expect(find(parsed, "mcp_server_operation_duration_seconds_sum")).toBeCloseTo(400.0286, 9);
  });

  it("escapes names that contain line breaks and quotes", () => {
    const metrics = new Metrics();
    const evil = 'x"} 1\nportcullis_calls_total{a="\\';
    call(metrics, { tool: evil }, { rule: evil, effect: "challenge", outcome: evil });
    call(metrics, { tool: "lone \ud800 surrogate" });
    const parsed = parse(renderPrometheus(metrics.families()));
    expect(find(parsed, "portcullis_challenges_total", { portcullis_rule: evil })).toBe(1);
    expect(find(parsed, "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: evil })).toBe(1);
  });
});

describe("cardinality is bounded", () => {
  it("counts tools above the cap as other", () => {
    const metrics = new Metrics(5);
    for (let i = 0; i < 100; i++) call(metrics, { tool: `t${i}` });
    const parsed = parse(renderPrometheus(metrics.families()));
    expect(find(parsed, "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "t4" })).toBe(1);
    expect(find(parsed, "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "t5" })).toBeUndefined();
    expect(find(parsed, "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "other" })).toBe(95);
  });

  it("keeps places of existing tools free of names that callers made up", () => {
    const metrics = new Metrics(3);
    for (let i = 0; i < 1_000; i++) {
      call(metrics, { tool: `made-up-${i}` }, { effect: "deny", outcome: "error", errorType: "ToolNotFound" });
      call(
        metrics,
        { method: `made/up-${i}`, tool: "" },
        { effect: "deny", outcome: "error", errorType: "MethodNotFound" },
      );
    }
    call(metrics, { tool: "real" });
    const text = renderPrometheus(metrics.families());
    expect(text).not.toContain("made");
    expect(find(parse(text), "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "real" })).toBe(1);
  });

  it("counts a tool that ran in observe mode in its own series", () => {
    const metrics = new Metrics();
    call(metrics, { tool: "observed" }, { effect: "deny", outcome: "ok", rule: "none" });
    const parsed = parse(renderPrometheus(metrics.families()));
    expect(find(parsed, "mcp_server_operation_duration_seconds_count", { gen_ai_tool_name: "observed" })).toBe(1);
  });

  it("bounds the series of resource URIs, rules, outcomes, error types and methods", () => {
    const metrics = new Metrics(50);
    for (let i = 0; i < 3_000; i++) {
      call(metrics, { method: "resources/read", tool: `file:///${i}` });
      call(metrics, { method: `m${i}`, tool: `t${i}` }, { outcome: `o${i}`, errorType: `E${i}` });
      call(metrics, { tool: `t${i}` }, { effect: "deny", rule: `r${i}`, errorType: "PolicyDeny" });
      metrics.connections.inc(`transport${i}`);
    }
    const text = renderPrometheus(metrics.families());
    expect(text).not.toContain("file:///");
    const { samples } = parse(text);
    expect(
      new Set(samples.map((s) => JSON.stringify([s.name.replace(/_(bucket|sum|count)$/, ""), { ...s.labels, le: "" }])))
        .size,
    ).toBeLessThan(1_700 + 2 * 1_065);
  });
});
