// A load generator in a process of its own: so many connections, each with one request at a time, every answer checked.
import { Agent, request } from "node:http";

const { url, concurrency, seconds, warmupSeconds, revision, expect, headers: more = {} } = JSON.parse(process.argv[2]);
const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
const target = new URL(url);
const base = { "content-type": "application/json", accept: "application/json, text/event-stream", ...more };

function post(body, headers) {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        agent,
        host: target.hostname,
        port: target.port,
        path: target.pathname,
        method: "POST",
        headers: { ...headers, "content-length": Buffer.byteLength(body) },
      },
      (response) => {
        let text = "";
        response.setEncoding("latin1");
        response.on("data", (chunk) => {
          text += chunk;
        });
        response.on("end", () => resolve({ status: response.statusCode, headers: response.headers, text }));
      },
    );
    sent.on("error", reject);
    sent.end(body);
  });
}

let next = 0;
/** Without a handshake: each request says what it is. */
const isModern = revision === "2026-07-28";
const meta = isModern
  ? {
      _meta: {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
      },
    }
  : {};
async function session() {
  if (revision === "none") return base;
  if (isModern) {
    return { ...base, "mcp-protocol-version": revision, "mcp-method": "tools/call", "mcp-name": "append" };
  }
  const opened = await post(
    JSON.stringify({
      jsonrpc: "2.0",
      id: 0,
      method: "initialize",
      params: { protocolVersion: revision, capabilities: {}, clientInfo: { name: "load", version: "1" } },
    }),
    base,
  );
  const id = opened.headers["mcp-session-id"];
  const headers = { ...base, ...(id === undefined ? {} : { "mcp-session-id": id }), "mcp-protocol-version": revision };
  await post(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }), headers);
  return headers;
}

const latencies = [];
let errors = 0;
let measuring = false;
let stop = false;
async function worker() {
  const headers = await session();
  while (!stop) {
    const id = ++next;
    const text = `line ${id} of a small text`;
    const body = JSON.stringify({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "append", arguments: { text }, ...meta },
    });
    const began = performance.now();
    const answer = await post(body, headers);
    const good = answer.status === 200 && answer.text.includes(expect === "echo" ? body : `"text":"${text}"`);
    if (!good) errors++;
    else if (measuring) latencies.push(performance.now() - began);
  }
}

const workers = Array.from({ length: concurrency }, worker);
await new Promise((resolve) => setTimeout(resolve, warmupSeconds * 1000));
process.send("measuring");
measuring = true;
const began = performance.now();
await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
measuring = false;
const elapsed = (performance.now() - began) / 1000;
process.send("done");
stop = true;
await Promise.all(workers);
latencies.sort((a, b) => a - b);
const at = (share) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
process.send({
  calls: latencies.length,
  errors,
  perSecond: latencies.length / elapsed,
  p50Ms: at(0.5),
  p99Ms: at(0.99),
});
agent.destroy();
process.disconnect();
