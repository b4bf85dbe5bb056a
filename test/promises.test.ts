// Promises that only the whole can keep: each is shown from the door to the ledger. docs/requirements.md says which.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { describe, expect, it } from "vitest";
import { DEFAULT_GATEWAY_LIMITS } from "../src/gateway/index.js";
import { openLedger } from "../src/ledger/index.js";
import { DEFAULT_TIMEOUTS, McpError } from "../src/mcp/client/index.js";
import { type CallContext, DEFAULT_SCHEMA_LIMITS } from "../src/mcp/server/index.js";
import { type CheckResult, type Intent, MemoryApprovals } from "../src/policy/index.js";
import type { RunOptions, Server } from "../src/server.js";
import { createTelemetry } from "../src/telemetry/index.js";
import { anything, cleanups, connected, folder, META, newLedger, open, raw, recorded, started } from "./whole.js";

/** CIDv1, json codec, sha2-256, in base32: written down here once more, from the specification. */
function cidOf(text: string): string {
  const bytes = Buffer.concat([
    Buffer.from([0x01, 0x80, 0x04, 0x12, 0x20]),
    createHash("sha256").update(text).digest(),
  ]);
  let bits = "";
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  const letters = (bits.match(/.{1,5}/g) ?? []).map((five) => Number.parseInt(five.padEnd(5, "0"), 2));
  return `b${letters.map((letter) => "abcdefghijklmnopqrstuvwxyz234567"[letter]).join("")}`;
}

it("stdio_roundtrip: a call over stdio is decided, recorded and answered [U11]", { timeout: 120_000 }, async () => {
  const main = resolve(import.meta.dirname, "../dist/cli/main.js");
  if (!existsSync(main)) throw new Error("there is no build: run `npm run build` first");
  const child = spawn(process.execPath, [main, "--dir", folder(), "serve", "--stdio"], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const said: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => said.push(chunk));
  const ended = new Promise((done) => child.once("close", done));
  const request = {
    jsonrpc: "2.0",
    id: "ü \u2028 1",
    method: "tools/call",
    params: {
      name: "notes.write",
      arguments: { title: "demo/é 😀\n\t", text: '"\\' },
      _meta: META,
    },
  };
  child.stdin.end(`${JSON.stringify(request)}\n`);
  await ended;
  const text = Buffer.concat(said).toString("utf8");
  expect(text.endsWith("\n")).toBe(true);
  expect(text.split("\n")).toHaveLength(2);
  expect(JSON.parse(text)).toMatchObject({
    jsonrpc: "2.0",
    id: "ü \u2028 1",
    result: { content: [{ type: "text", text: "wrote demo/é 😀\n\t" }] },
  });
});

/** A check that permits everything and records the intents. */
function listening(hear: (intent: Intent) => void): (proposed: unknown, intent: Intent) => CheckResult {
  return (_, intent) => {
    hear(intent);
    return { effect: "permit", rules: [], reason: "" };
  };
}

describe("one id for one call", () => {
  const policy = `
    @id("pay") permit (principal, action == Action::"pay", resource);
    @id("ask") @outcome("challenge") @approvers("operators")
    forbid (principal, action == Action::"pay", resource) unless { context.approved };`;

  it("a call has the same content id when it is decided, approved, recorded and run [U8]", async () => {
    const ledger = await newLedger();
    const approvals = new MemoryApprovals();
    const ran: string[] = [];
    const intents = new Set<string>();
    const server = started({ policy, ledger, approvals, checks: [listening((intent) => intents.add(intent.id))] });
    server.tool("pay", "pays", anything, (args) => String(ran.push(JSON.stringify(args))), open);
    const client = await connected(server);
    const args = { to: "Zoë", amount: 1e21, a: { y: 1, x: [] } };
    const canonical = '{"a":{"x":[],"y":1},"amount":1e+21,"to":"Zoë"}';

    const waiting = await client.callTool("pay", args);
    expect(waiting).toMatchObject({ isError: true, structuredContent: { code: "CHALLENGE" } });
    const { challenge } = waiting.structuredContent as { challenge: string };
    const approved = await approvals.approve(challenge, { name: "olga", groups: ["operators"] });
    expect(approved.argumentsText).toBe(canonical);
    expect(await client.callTool("pay", args)).toMatchObject({ content: [{ text: "1" }] });

    expect(ran).toEqual([canonical]);
    const records = (await recorded(ledger)).filter((record) => "args_cid" in record);
    expect(records.map((record) => record.kind)).toEqual(["challenge", "decision", "challenge", "decision", "outcome"]);
    for (const record of records) expect(record).toMatchObject({ args_cid: cidOf(canonical) });
    expect([...intents]).toEqual([approved.intentId]);
    for (const record of records) if (record.kind === "decision") expect(record.intent).toBe(approved.intentId);
  });

  it("unknown fields of a call are part of its content id and forwarded, and the caller's credential is neither [U1]", async () => {
    let intent: Intent | undefined;
    let seen: CallContext["meta"] | undefined;
    const checks = [
      listening((each) => {
        intent = each;
      }),
    ];
    const server = started({ checks });
    server.tool("look", "looks", anything, (_args, { meta }) => String(Object.keys((seen = meta)).length), open);
    await raw(server, {
      method: "tools/call",
      params: { name: "look", arguments: {}, future: { a: [1] }, _meta: { ...META, "example.com/note": "kept" } },
      auth: { type: "bearer", token: "sk-secret" },
    });
    expect(JSON.parse(intent?.forwardedText ?? "")).toEqual({
      future: { a: [1] },
      _meta: { "example.com/note": "kept" },
    });
    expect(seen).toEqual({ "example.com/note": "kept" });
    expect(intent?.id).toBe(cidOf(intent?.text ?? ""));
    expect(intent?.text).toContain('"future":{"a":[1]}');
    expect(intent?.text).not.toContain("sk-secret");
  });
});

it("a call has one trace id in the error, the log, the span and the ledger [G4]", async () => {
  const ledger = await newLedger();
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  const lines: string[] = [];
  const log = { level: "debug", format: "json", stream: { write: (text: string) => lines.push(text) } } as const;
  const telemetry = createTelemetry({ env: {}, tracer: provider.getTracer("test"), log });
  cleanups.push(() => telemetry.shutdown());
  const server = started({ policy: 'permit (principal, action == Action::"fail", resource);', ledger, telemetry });
  server.tool("fail", "fails", anything, () => Promise.reject(new Error("no")), open);
  server.tool("shut", "is denied", anything, () => "never", open);
  const client = await connected(server);
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const meta = { traceparent: `00-${traceId}-00f067aa0ba902b7-01` };
  for (const name of ["fail", "shut"]) {
    const result = (await client.request("tools/call", { name, arguments: {}, _meta: meta } as never)) as {
      structuredContent: { trace_id: string };
    };
    expect(result.structuredContent.trace_id).toBe(traceId);
  }
  const about = lines.map((line) => JSON.parse(line)).filter(({ fields }) => ["fail", "shut"].includes(fields?.tool));
  expect(about.map((line) => line.trace_id)).toEqual([traceId, traceId]);
  const spans = exporter.getFinishedSpans().filter((span) => span.name.startsWith("tools/call"));
  expect(spans.map((span) => span.spanContext().traceId)).toEqual([traceId, traceId]);
  const traces = (await recorded(ledger)).flatMap((record) =>
    (record.kind === "decision" || record.kind === "outcome") && ["fail", "shut"].includes(record.tool)
      ? [`${record.kind} ${record.tool} ${record.trace}`]
      : [],
  );
  expect(traces).toEqual([`decision fail ${traceId}`, `outcome fail ${traceId}`, `decision shut ${traceId}`]);
});

describe("timeouts", () => {
  it("default timeouts are 30 s for a tool, 5 s for validation, 2 s for discovery and 500 ms for a lock [G5]", async () => {
    expect(DEFAULT_GATEWAY_LIMITS).toMatchObject({ toolTimeoutMs: 30_000 });
    expect(DEFAULT_SCHEMA_LIMITS).toMatchObject({ timeoutMs: 5_000 });
    expect(DEFAULT_TIMEOUTS).toMatchObject({ toolMs: 30_000, validationMs: 5_000, discoveryMs: 2_000 });
    const ledger = await newLedger();
    const second = openLedger({ dir: ledger.dir, origin: "example.com/promises" });
    await expect(second).rejects.toThrow("waited 500 ms");
  });

  it("a timeout stops the work: the handler is aborted, and nothing it does afterwards reaches a caller [G5]", async () => {
    const ledger = await newLedger();
    const after: string[] = [];
    let late: Promise<unknown> | undefined;
    const server = started({ ledger });
    server.tool("other", "counts", anything, () => String(after.push("other ran")), open);
    server.tool(
      "slow",
      "waits",
      anything,
      (_args, context) => {
        late = new Promise((told) => context.signal.addEventListener("abort", told, { once: true })).then(async () => {
          after.push("told");
          await sleep(20);
          context.progress(1, 1, "still here");
          await Promise.resolve(context.write("more")).catch(() => after.push("write refused"));
          await (async () => context.call("other", {}))().catch(() => after.push("call refused"));
        });
        return late.then(() => "done after all");
      },
      { ...open, timeoutMs: 50 },
    );
    const client = await connected(server);
    const progress: unknown[] = [];
    const result = await client.callTool("slow", {}, { onProgress: (each) => progress.push(each) });
    expect(result).toMatchObject({ isError: true, structuredContent: { code: "TIMEOUT", timeout_ms: 50 } });
    await late;
    expect(after).toEqual(["told", "write refused", "call refused"]);
    expect(progress).toEqual([]);
    const outcomes = (await recorded(ledger)).filter((record) => record.kind === "outcome");
    expect(outcomes.map((record) => [record.tool, record.outcome])).toEqual([["slow", "timeout"]]);
  });
});

describe("safe is capability, guardrail token and phase: without any one of them nothing runs", () => {
  function guarded(tools?: ReadonlySet<string>, options: RunOptions = {}): { server: Server; ran: string[] } {
    const ran: string[] = [];
    const server = started({
      ...options,
      identify: () => ({
        app: "shop",
        agent: "alice",
        scope: [],
        via: "test",
        ...(tools ? { tools } : {}),
      }),
      guardrails: [
        {
          id: "small",
          agent: "alice",
          tool: "pay",
          callback: ({ arguments: args }) => (args.n === 1 ? undefined : "no"),
        },
        { id: "other", agent: "bob", tool: "refund", callback: () => undefined },
      ],
    });
    for (const name of ["pay", "refund"]) server.tool(name, name, anything, () => String(ran.push(name)));
    return { server, ran };
  }
  const codeOf = (attempt: Promise<unknown>): Promise<unknown> =>
    attempt.then(
      (result) => (result as { structuredContent?: { code?: string } }).structuredContent?.code ?? "ran",
      (error: unknown) => (error instanceof McpError ? error.code : error),
    );

  it("a call with capability, guardrail token and phase runs", async () => {
    const { server, ran } = guarded(new Set(["pay"]));
    const client = await connected(server);
    expect(await codeOf(client.callTool("pay", { n: 1 }))).toBe("ran");
    expect(ran).toEqual(["pay"]);
  });

  it("a tool without a capability is answered like one that does not exist, by every entry point [L10]", async () => {
    const { server, ran } = guarded(new Set(["refund"]));
    const client = await connected(server);
    const [mine, nobodys] = await Promise.all(
      ["pay", "none"].map((name) => client.callTool(name, { n: 1 }).catch((error: McpError) => error.message)),
    );
    expect(mine).toBe(String(nobodys).replace("none", "pay"));
    expect(await codeOf(client.callTool("pay", { n: 1 }))).toBe("TOOL_NOT_FOUND");
    expect(await codeOf(client.request("tools/validate", { name: "pay", arguments: {} } as never))).toBe(
      "TOOL_NOT_FOUND",
    );
    expect((await client.listTools()).map((tool) => tool.name)).not.toContain("pay");
    expect(ran).toEqual([]);
  });

  it("a call without a guardrail token is blocked, by the callback or because the only callback is another agent's [L10]", async () => {
    const { server, ran } = guarded();
    const client = await connected(server);
    expect(await codeOf(client.callTool("pay", { n: 2 }))).toBe("GUARDRAIL_BLOCKED");
    expect(await codeOf(client.callTool("refund", {}))).toBe("GUARDRAIL_BLOCKED");
    expect(ran).toEqual([]);
  });

  it("a call runs without a guardrail token only where the operator declared that for the tool [L8]", async () => {
    const { server, ran } = guarded(undefined, { unguardedTools: ["refund"] });
    const client = await connected(server);
    expect(await codeOf(client.callTool("refund", {}))).toBe("ran");
    expect(await codeOf(client.callTool("pay", { n: 2 }))).toBe("GUARDRAIL_BLOCKED");
    expect(ran).toEqual(["refund"]);
  });

  it("a call in the wrong phase, before the handshake, is refused [L10]", async () => {
    const { server, ran } = guarded();
    const answer = await raw(server, { method: "tools/call", params: { name: "pay", arguments: { n: 1 } } });
    expect(answer).toMatchObject({ error: { data: { code: "WRONG_PHASE" } } });
    expect(ran).toEqual([]);
  });
});
