// How long one application's server with thousands of tools, which changes them all, keeps the event loop from the
// others: `node bench/many-tools.mjs [tools] [changes]`. Needs a built package. Prints the longest and the 99th
// percentile delay of the event loop and of another application's calls, at rest and during the listings.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { createKey } from "../dist/auth/index.js";
import { keysOrLocal } from "../dist/runtime/identity.js";
import { startGateway } from "../dist/runtime/start.js";

const [tools = 5_000, changes = 4] = process.argv.slice(2).map(Number);
const SERVER = `
const [count, everyMs] = process.argv.slice(1).map(Number);
let version = 0;
const send = (m) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\\n");
const tool = (i) => ({ name: "tool_" + i, description: "Tool " + i + " in version " + version + ", which does what tools do",
  inputSchema: { type: "object", properties: { path: { type: "string" }, ["value" + (i % 50)]: { type: "integer", minimum: 0 }, flags: { type: "array", items: { type: "string" } } }, required: ["path"], additionalProperties: false } });
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") send({ id, result: { protocolVersion: "2025-11-25", serverInfo: { name: "big", version: "1" }, capabilities: { tools: { listChanged: true } } } });
  else if (method === "tools/list") {
    const at = Number(params?.cursor ?? 0);
    const page = Array.from({ length: Math.min(1000, count - at) }, (_, i) => tool(at + i));
    send({ id, result: { tools: page, ...(at + 1000 < count ? { nextCursor: String(at + 1000) } : {}) } });
  } else if (method === "tools/call") send({ id, result: { content: [{ type: "text", text: "done" }] } });
  else if (id !== undefined) send({ id, error: { code: -32601, message: "no" } });
});
if (everyMs > 0) setInterval(() => { version++; send({ method: "notifications/tools/list_changed" }); }, everyMs);
`;
const dir = mkdtempSync(join(tmpdir(), "portcullis-many-tools-"));
mkdirSync(join(dir, "policy"), { mode: 0o700 });
writeFileSync(
  join(dir, "policy", "all.cedar"),
  'permit (principal, action, resource);\n@id("paths") forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };\n',
);
const gateway = await startGateway({
  stateDir: dir,
  telemetry: { log: { level: "critical" } },
  http: { host: "127.0.0.1", port: 0 },
  admin: { host: "127.0.0.1", port: 0 },
  identity: keysOrLocal({ localApp: "local", isLoopback: false }),
});
const entry = (count, everyMs) => ({
  command: process.execPath,
  args: ["-e", SERVER, String(count), String(everyMs)],
  noGuardrail: ["*"],
});
const keyOf = async (app) =>
  (
    await createKey(
      gateway.storage.keys,
      { app, agent: "a", name: "a", permissions: ["invoke(*)", "read(*)", "list"] },
      "bench",
    )
  ).token;
const post = async (token, method, params) => {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": { name: "b", version: "1" },
  };
  const response = await fetch(gateway.listeners[0].url, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(params.name ? { "mcp-name": params.name } : {}),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: meta } }),
  });
  return response.text();
};
const measured = async (what, until) => {
  const delays = monitorEventLoopDelay({ resolution: 2 });
  delays.enable();
  const took = [];
  let isOver = false;
  const calls = (async () => {
    while (!isOver) {
      const at = performance.now();
      const text = await post(small, "tools/call", { name: "tool_1", arguments: { path: "/tmp/x" } });
      if (!text.includes("done")) throw new Error(text);
      took.push(performance.now() - at);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  })();
  const startedAt = performance.now();
  await until();
  const forMs = performance.now() - startedAt;
  isOver = true;
  await calls;
  delays.disable();
  took.sort((a, b) => a - b);
  const ms = (value) => `${value.toFixed(0)} ms`;
  console.log(
    `${what} (${ms(forMs)}): event loop delay p99 ${ms(delays.percentile(99) / 1e6)}, longest ${ms(delays.max / 1e6)}; ` +
      `${took.length} calls of the other application p50 ${ms(took[took.length >> 1])}, p99 ${ms(took[Math.floor(took.length * 0.99)])}, longest ${ms(took.at(-1))}`,
  );
};
await gateway.storage.applications.put("small", { servers: { s: entry(3, 0) } }, "bench");
await gateway.storage.applications.put("large", { servers: { s: entry(tools, 0) } }, "bench");
await gateway.storage.applications.put("changing", { servers: { s: entry(tools, 1_500) } }, "bench");
const [small, large, changing] = [await keyOf("small"), await keyOf("large"), await keyOf("changing")];
await post(small, "tools/call", { name: "tool_1", arguments: { path: "/tmp/x" } });
try {
  await measured("at rest", () => new Promise((resolve) => setTimeout(resolve, 2_000)));
  await measured(`first listing of ${tools} tools`, async () => {
    const text = await post(large, "tools/call", { name: "tool_1", arguments: { path: "/tmp/x" } });
    if (!text.includes("done")) throw new Error(text);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
  });
  await measured(`tools/list of ${tools} tools`, async () => {
    await post(large, "tools/list", {});
  });
  await measured(`${changes} listings in which ${tools} tools changed`, async () => {
    await post(changing, "tools/list", {});
    await new Promise((resolve) => setTimeout(resolve, 1_500 * changes));
  });
} finally {
  await gateway.close();
  rmSync(dir, { recursive: true, force: true });
}
