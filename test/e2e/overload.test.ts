// Bounds on calls in flight, at a gateway as its user starts it.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, it } from "vitest";
import { root, type Serving, serve } from "./serving.js";

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

/** A module with one tool that notes each call in a file and waits until another file exists. */
async function serveWaiting(
  flags: readonly string[],
): Promise<{ serving: Serving; started: string; release: () => void }> {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-overload-"));
  opened.push(() => rmSync(dir, { recursive: true, force: true }));
  const started = join(dir, "started");
  const go = join(dir, "go");
  writeFileSync(started, "");
  const module = join(dir, "server.mjs");
  writeFileSync(
    module,
    `import { appendFileSync, existsSync } from "node:fs";
import { createServer } from ${JSON.stringify(join(root, "dist", "index.js"))};
const server = createServer({ name: "waiting", version: "1.0.0" });
server.tool("note", "notes a text", { type: "object", properties: { text: { type: "string" } }, required: ["text"] }, async ({ text }) => {
  appendFileSync(${JSON.stringify(started)}, text + "\\n");
  return text;
}, { noGuardrailRequired: true });
server.tool("wait", "waits", { type: "object", properties: {} }, async () => {
  appendFileSync(${JSON.stringify(started)}, "x");
  while (!existsSync(${JSON.stringify(go)})) await new Promise((resolve) => setTimeout(resolve, 20));
  return "done";
}, { noGuardrailRequired: true });
export default server;
`,
  );
  const policy = join(dir, "policy.cedar");
  writeFileSync(policy, "permit (principal, action, resource);");
  const serving = await serve([module, "--policy", policy, ...flags]);
  opened.push(() => serving.stop());
  return { serving, started, release: () => writeFileSync(go, "") };
}

let nextId = 0;
function call(url: string, size = 0): Promise<Response> {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const params = { name: "wait", arguments: {}, _meta: { ...meta, padding: "x".repeat(size) } };
  return fetch(url, {
    method: "POST",
    signal: AbortSignal.timeout(60_000),
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "wait",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: nextId++, method: "tools/call", params }),
  });
}

it.each([
  ["--max-agent-calls", 429],
  ["--max-app-calls", 429],
  ["--max-calls", 503],
])(
  "refuses calls over %s with %i and Retry-After, runs nothing for them, and serves again [G5]",
  async (flag, status) => {
    const { serving, started, release } = await serveWaiting([flag, "2"]);
    const first = [call(serving.url), call(serving.url)];
    for (let i = 0; i < 1_000 && readFileSync(started, "utf8").length < 2; i++) await sleep(20);
    for (const size of [0, 100_000]) {
      const refused = await call(serving.url, size);
      expect(refused.status).toBe(status);
      expect(refused.headers.get("retry-after")).toBe("1");
      await refused.text();
    }
    expect(readFileSync(started, "utf8")).toBe("xx");
    release();
    for (const answer of await Promise.all(first)) expect(answer.status).toBe(200);
    expect((await call(serving.url)).status).toBe(200);
  },
  120_000,
);

/** One connection that sends one call after the other, each again until it is served. */
async function callInTurn(
  url: string,
  texts: readonly string[],
): Promise<{ refused: number; withoutRetryAfter: number }> {
  const { port } = new URL(url);
  const socket = connect(Number(port), "127.0.0.1");
  opened.push(() => socket.destroy());
  let heard = "";
  let answered: (text: string) => void = () => {};
  let failed: (error: Error) => void = () => {};
  socket.on("data", (chunk: Buffer) => {
    heard += chunk.toString("utf8");
    const end = heard.indexOf("\r\n\r\n");
    const [, length] = /content-length: (\d+)/i.exec(heard) ?? [];
    if (end < 0 || length === undefined || heard.length < end + 4 + Number(length)) return;
    const whole = heard;
    heard = "";
    answered(whole);
  });
  socket.on("close", () => failed(new Error(`closed after ${JSON.stringify(heard)}`)));
  socket.on("error", (error) => failed(error));
  const counts = { refused: 0, withoutRetryAfter: 0 };
  for (const text of texts) {
    for (let attempt = 0; ; attempt++) {
      const answer = await new Promise<string>((resolve, reject) => {
        [answered, failed] = [resolve, reject];
        socket.write(noteRequest(text));
      });
      if (answer.startsWith("HTTP/1.1 200 ")) {
        expect(answer).toContain(`"text":"${text}"`);
        break;
      }
      expect(answer).toMatch(/^HTTP\/1\.1 (429|503) /);
      counts.refused++;
      if (!/retry-after: \d/i.test(answer)) counts.withoutRetryAfter++;
      if (attempt > 1_000) throw new Error(`never served: ${text}`);
    }
  }
  failed = () => {};
  socket.destroy();
  return counts;
}

function noteRequest(text: string): string {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const params = { name: "note", arguments: { text }, _meta: meta };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const head = ["POST /mcp HTTP/1.1", "host: localhost", "content-type: application/json"];
  head.push("accept: application/json, text/event-stream", "mcp-protocol-version: 2026-07-28");
  head.push("mcp-method: tools/call", "mcp-name: note", `content-length: ${Buffer.byteLength(body)}`);
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

it.each([
  ["with bounds far below what arrives", ["--max-agent-calls", "4"]],
  ["with the default bounds", []],
  ["in two worker processes", ["--workers", "2"]],
])(
  "answers every call of 300 connections and runs each served call once, %s [G5]",
  async (_name, flags) => {
    const { serving, started } = await serveWaiting(flags);
    const CONNECTIONS = 300;
    const CALLS = 5;
    const all = Array.from({ length: CONNECTIONS }, (_, connection) =>
      Array.from({ length: CALLS }, (_, i) => `text ${connection}-${i}`),
    );
    const counts = await Promise.all(all.map((texts) => callInTurn(serving.url, texts)));
    const ran = readFileSync(started, "utf8").split("\n").filter(Boolean);
    expect(ran.toSorted()).toEqual(all.flat().toSorted());
    expect(counts.reduce((sum, { withoutRetryAfter }) => sum + withoutRetryAfter, 0)).toBe(0);
  },
  180_000,
);
