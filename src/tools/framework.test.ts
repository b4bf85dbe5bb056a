import { Writable } from "node:stream";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { describe, expect, it } from "vitest";
import { createTelemetry } from "../telemetry/index.js";
import { coreTools } from "./core-tools.js";
import { callTool, ruleOf } from "./fixtures/calling.js";
import { memoryValues } from "./fixtures/memory-values.js";

function logInto(lines: string[], level: "debug" | "notice" = "debug") {
  const stream = new Writable({
    write(chunk, _, done) {
      lines.push(String(chunk));
      done();
    },
  });
  return createTelemetry({ log: { stream, format: "json", level }, env: {} }).log;
}

describe("core.framework.getConfigValue", () => {
  const config = { theme: "dark", "a.b": 1, a: { b: 2, c: { d: null } }, list: [1, 2] };
  const tools = coreTools({ id: "blog", config }, { log: logInto([]) });
  const get = (key: string) => callTool(tools, "core.framework.getConfigValue", { key });

  it("reads keys, nested keys and keys with dots in them [H6]", async () => {
    expect(await get("theme")).toEqual({ key: "theme", found: true, value: "dark" });
    expect(await get("a.b")).toEqual({ key: "a.b", found: true, value: 1 });
    expect(await get("a.c.d")).toEqual({ key: "a.c.d", found: true, value: null });
    expect(await get("list")).toEqual({ key: "list", found: true, value: [1, 2] });
  });

  it.each([
    "nothing",
    "a.x",
    "a.",
    ".",
    "__proto__",
    "constructor",
    "a.__proto__",
    "toString",
    "list.0",
    "list.length",
    "theme.length",
  ])("%s is not there", async (key) => expect(await get(key)).toEqual({ key, found: false }));
});

describe("core.framework.logFrameworkMessage", () => {
  const lines: string[] = [];
  const tools = coreTools({ id: "blog" }, { log: logInto(lines) });
  const log = (args: Parameters<typeof callTool>[2]) => callTool(tools, "core.framework.logFrameworkMessage", args);

  it("writes one line, with who said it and the trace, and nothing in it can pass for another line or field [H6]", async () => {
    const message = 'hi\n{"level":"error","msg":"forged"}\u001b[2J\u202e';
    await log({ level: "warning", message, fields: { app: "other", "x\ny": "z\r", token: "s3cret-value" } });
    expect(lines).toHaveLength(1);
    expect(lines[0]?.trimEnd()).not.toMatch(/[\p{Cc}\u202e]/u);
    const line = JSON.parse(lines[0] ?? "");
    expect(line).toMatchObject({
      level: "warning",
      trace_id: "0af7651916cd43dd8448eb211c80319c",
      fields: { app: "blog", agent: "writer", source: "agent", said: { app: "other", token: "[redacted]" } },
    });
    expect(lines[0]).not.toContain("s3cret-value");
  });

  it("core.framework.logFrameworkMessage is written at the default log level of a gateway when the caller names no level [H6]", async () => {
    const written: string[] = [];
    const quiet = coreTools({ id: "blog" }, { log: logInto(written, "notice") });
    await callTool(quiet, "core.framework.logFrameworkMessage", { message: "half way" });
    expect(written).toHaveLength(1);
    expect(JSON.parse(written[0] ?? "")).toMatchObject({ level: "notice", fields: { source: "agent" } });
  });

  it("core.framework.logFrameworkMessage is in the trace of the call too, and in no other application's [H6]", async () => {
    const exporter = new InMemorySpanExporter();
    const tracer = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).getTracer("test");
    const telemetry = createTelemetry({ tracer, log: { level: "emergency" }, env: {} });
    const info = { method: "tools/call", tool: "t", agent: "writer", transport: "memory", revision: "2026-07-28" };
    const span = telemetry.startCall({ ...info, app: "blog" });
    const traceparent = span.traceparent;
    const other = telemetry.startCall({ ...info, app: "other", traceparent });
    const noting = coreTools({ id: "blog" }, { log: telemetry.log, note: telemetry.note });
    const args = { message: "half way" };
    await callTool(noting, "core.framework.logFrameworkMessage", args, { traceId: span.traceId });
    const end = { effect: "permit", outcome: "ok", latencyMs: 1, bytes: 0, policyHash: "" } as const;
    other.end(end);
    span.end(end);
    const said = exporter.getFinishedSpans().map(({ events }) => events.map(({ attributes }) => attributes));
    expect(said).toEqual([[], [{ "portcullis.note.level": "notice", "portcullis.note.message": "half way" }]]);
  });

  it("core.framework.logFrameworkMessage is bounded", async () => {
    await expect(log({ message: "x".repeat(2_001) })).rejects.toThrow("arguments");
    await expect(log({ message: "x", fields: { a: { deep: true } } })).rejects.toThrow("arguments");
    await expect(log({ message: "x", level: "loud" })).rejects.toThrow("arguments");
  });
});

describe("runtime values", () => {
  let now = 1_000;
  const tools = coreTools({ id: "blog" }, { log: logInto([]), values: memoryValues(() => now) });
  const call = (name: string, args: Parameters<typeof callTool>[2]) => callTool(tools, `core.state.${name}`, args);

  it("runtime values are set, read and deleted, and go away when their time is over", async () => {
    expect(await call("getRuntimeValue", { key: "k" })).toEqual({ key: "k", found: false, version: 0 });
    await call("setRuntimeValue", { key: "k", value: { n: [1, null] }, ttlMs: 500 });
    expect(await call("getRuntimeValue", { key: "k" })).toMatchObject({
      found: true,
      value: { n: [1, null] },
      expiresAt: "1970-01-01T00:00:01.500Z",
    });
    now += 500;
    expect(await call("getRuntimeValue", { key: "k" })).toMatchObject({ found: false });
    await call("setRuntimeValue", { key: "k", value: null });
    expect(await call("deleteRuntimeValue", { key: "k" })).toEqual({ key: "k", deleted: true });
    expect(await call("deleteRuntimeValue", { key: "k" })).toEqual({ key: "k", deleted: false });
  });

  it("runtime values with an expected version change only what was read [H7]", async () => {
    const first = await call("setRuntimeValue", { key: "c", value: 1, expectedVersion: 0 });
    expect(await ruleOf(call("setRuntimeValue", { key: "c", value: 2, expectedVersion: 0 }))).toBe("conflict");
    await call("setRuntimeValue", { key: "c", value: 2, expectedVersion: first.version as number });
    const late = { key: "c", value: 3, expectedVersion: first.version as number };
    expect(await ruleOf(call("setRuntimeValue", late))).toBe("conflict");
    expect(await ruleOf(call("deleteRuntimeValue", { key: "c", expectedVersion: first.version as number }))).toBe(
      "conflict",
    );
    expect((await call("getRuntimeValue", { key: "c" })).value).toBe(2);
  });

  it("runtime values are bounded, and their keys are plain text", async () => {
    expect(await ruleOf(call("setRuntimeValue", { key: "k", value: "x".repeat(256_000) }))).toBe("maxValueBytes");
    expect(await ruleOf(call("setRuntimeValue", { key: "a\0b", value: 1 }))).toBe("runtimeValueKey");
    await expect(call("setRuntimeValue", { key: "x".repeat(513), value: 1 })).rejects.toThrow("arguments");
    await expect(call("setRuntimeValue", { key: "k", value: 1, ttlMs: 0 })).rejects.toThrow("arguments");
    for (const key of ["__proto__", "../x", "constructor", "a:b", "%2e"]) {
      await call("setRuntimeValue", { key, value: key });
      expect((await call("getRuntimeValue", { key })).value).toBe(key);
    }
  });
});
