// Open-loop arrivals over many connections: one after the other at a fixed rate, whatever is answered. Each takes a
// connection on which nothing is under way; an arrival that finds none is counted as unsent. Reconnects what is closed.
//   node bench/targets/arrivals.mjs '{"url":…,"connections":8000,"app":"app-0"}', then messages: {perSecond}, "counts"
import { connect } from "node:net";

const { url, connections, app } = JSON.parse(process.argv[2]);
const TICK_MS = 5;
const OPENED_AT_ONCE = 200;
const { hostname, port, pathname } = new URL(url);
const body = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    name: "append",
    arguments: { text: "overload" },
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
});
const head = [
  `POST ${pathname} HTTP/1.1`,
  `host: ${hostname}:${port}`,
  "content-type: application/json",
  "accept: application/json, text/event-stream",
  "mcp-protocol-version: 2026-07-28",
  "mcp-method: tools/call",
  "mcp-name: append",
  `x-bench-app: ${app}`,
  `content-length: ${Buffer.byteLength(body)}`,
];
const request = Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);

const counts = { arrived: 0, good: 0, refused: 0, withRetryAfter: 0, failed: 0, unsent: 0, opened: 0 };
/** Used in the order in which they became free, so that every connection takes part. */
let idle = [];
let next = 0;

function count(text, end) {
  const status = text.slice(9, 12);
  if (status === "200" && text.includes('"text":"overload"')) counts.good++;
  else if (status === "429" || status === "503") {
    counts.refused++;
    if (/retry-after: /i.test(text.slice(0, end))) counts.withRetryAfter++;
  } else fail(`${status} ${text.slice(end + 4, end + 204)}`);
}

/** Kinds of failures that are told apart. */
const MAX_KINDS = 10;
const failures = {};
function fail(kind) {
  counts.failed++;
  if (kind in failures || Object.keys(failures).length < MAX_KINDS) failures[kind] = (failures[kind] ?? 0) + 1;
}

const open = () =>
  new Promise((resolve) => {
    const socket = connect(Number(port), hostname, () => {
      counts.opened++;
      // The first call makes it a connection that is kept; one without a request is closed after ten seconds.
      socket.isAsked = true;
      socket.write(request);
    });
    let text = "";
    socket.setEncoding("latin1").on("data", (chunk) => {
      // What comes without a request is the end of a connection that was idle for too long.
      if (!socket.isAsked) return;
      text += chunk;
      const end = text.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(text.slice(0, end))?.[1] ?? 0);
      if (text.length < end + 4 + length) return;
      count(text, end);
      text = "";
      socket.isAsked = false;
      idle.push(socket);
      resolve();
    });
    const closed = (error) => {
      if (socket.isOver) return;
      socket.isOver = true;
      if (socket.isAsked) fail(error?.code ?? "closed");
      resolve();
      setTimeout(open, 100);
    };
    socket.on("error", closed).on("close", closed);
  });

function take() {
  while (next < idle.length) {
    const socket = idle[next++];
    if (!socket.isOver) return socket;
  }
  idle = [];
  next = 0;
  return undefined;
}

for (let i = 0; i < connections; i += OPENED_AT_ONCE) await Promise.all(Array.from({ length: OPENED_AT_ONCE }, open));

let perSecond = 0;
let began = 0;
let sent = 0;
setInterval(() => {
  const due = Math.floor(((performance.now() - began) * perSecond) / 1_000);
  for (; sent < due; sent++) {
    counts.arrived++;
    const socket = take();
    if (socket === undefined) {
      counts.unsent += due - sent;
      counts.arrived += due - sent - 1;
      sent = due;
      break;
    }
    socket.isAsked = true;
    socket.write(request);
  }
}, TICK_MS);

process.on("message", (message) => {
  if (message !== "counts") {
    ({ perSecond } = message);
    began = performance.now();
    sent = 0;
  }
  process.send({ ...counts, failures });
});
process.send("ready");
