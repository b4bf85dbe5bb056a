// `tools/list` of 5,000 tools: those of ten servers behind the gateway, beside one server that has them all itself.
//   node bench/list.mjs [--rounds 20]
import { fork } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ask, median, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({ options: { rounds: { type: "string", default: "20" } } });
const SERVERS = 10;
const TOOLS = 500;
const startEcho = async (tools) => {
  const child = fork(join(import.meta.dirname, "targets", "echo.mjs"), {
    env: { ...process.env, TOOLS: String(tools) },
  });
  return { child, url: await new Promise((resolve) => child.once("message", ({ url }) => resolve(url))) };
};
const part = await startEcho(TOOLS - 1);
const whole = await startEcho(SERVERS * TOOLS - 1);
const gateway = await startTarget({
  name: "gateway",
  file: "gateway.mjs",
  env: { DOWNSTREAM: part.url, SERVERS: String(SERVERS) },
});

const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
async function post(url, method, params, more = {}) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const response = await fetch(url, { method: "POST", headers: { ...headers, ...more }, body });
  return { session: response.headers.get("mcp-session-id"), text: await response.text() };
}
/** All pages, as a client reads them. */
async function list(url) {
  const { session } = await post(url, "initialize", {
    protocolVersion: "2025-11-25",
    capabilities: {},
    clientInfo: { name: "bench", version: "1" },
  });
  const more = { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
  const initialized = JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" });
  await (await fetch(url, { method: "POST", headers: { ...headers, ...more }, body: initialized })).text();
  const began = performance.now();
  let tools = 0;
  let bytes = 0;
  let cursor;
  do {
    const { text } = await post(url, "tools/list", cursor === undefined ? {} : { cursor }, more);
    const { result } = JSON.parse(text);
    tools += result.tools.length;
    bytes += text.length;
    cursor = result.nextCursor;
  } while (cursor !== undefined);
  return { ms: performance.now() - began, tools, bytes };
}

const first = await list(gateway.url);
if (first.tools !== SERVERS * TOOLS) throw new Error(`${first.tools} tools instead of ${SERVERS * TOOLS}`);
const rounds = [];
const before = await ask(gateway.child, "usage");
for (let i = 0; i < Number(options.rounds); i++) {
  const through = await list(gateway.url);
  const direct = await list(whole.url);
  rounds.push({ through: through.ms, direct: direct.ms, times: through.ms / direct.ms });
}
const after = await ask(gateway.child, "usage");
console.log(
  `${first.tools} tools, ${(first.bytes / 2 ** 20).toFixed(2)} MiB; the first list ${first.ms.toFixed(1)} ms`,
);
console.log(
  `then ${median(rounds.map((r) => r.through)).toFixed(1)} ms (${((after.cpuUs - before.cpuUs) / rounds.length / 1000).toFixed(1)} ms CPU), ` +
    `${median(rounds.map((r) => r.times)).toFixed(2)} × one server that has them all`,
);
await ask(gateway.child, "stop");
part.child.kill();
whole.child.kill();
