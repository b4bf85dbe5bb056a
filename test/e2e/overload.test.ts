// Bounds on calls in flight, at a gateway as its user starts it.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
  "refuses calls over %s with %i and Retry-After, runs nothing for them, and serves again",
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
