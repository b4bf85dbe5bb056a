// Memory per idle connection, and with 5,000 tools listed.
//   node bench/memory.mjs [--connections 5000] [--tools 5000]
import { fork } from "node:child_process";
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { connections: { type: "string", default: "5000" }, tools: { type: "string", default: "5000" } },
});
/** Messages in order, none lost between two questions. */
const inboxes = new WeakMap();
function once(child) {
  let inbox = inboxes.get(child);
  if (!inbox) {
    inbox = { waiting: [], messages: [] };
    inboxes.set(child, inbox);
    child.on("message", (message) => {
      const next = inbox.waiting.shift();
      if (next) next(message);
      else inbox.messages.push(message);
    });
  }
  if (inbox.messages.length > 0) return Promise.resolve(inbox.messages.shift());
  return new Promise((resolve) => inbox.waiting.push(resolve));
}
async function ask(child, question) {
  const answer = once(child);
  child.send(question);
  return answer;
}
const start = async (env) => {
  const file = join(import.meta.dirname, "targets", "portcullis.mjs");
  const child = fork(file, { env: { ...process.env, ...env }, execArgv: ["--expose-gc"] });
  const { url } = await once(child);
  return { child, url: new URL(url) };
};
const settle = () => new Promise((resolve) => setTimeout(resolve, 1_500));

async function idleConnections(count) {
  const { child, url } = await start({});
  await settle();
  const before = await ask(child, "gc");
  const sockets = [];
  for (let i = 0; i < count; i++) {
    sockets.push(
      await new Promise((resolve, reject) => {
        const socket = connect(Number(url.port), url.hostname, () => resolve(socket));
        socket.on("error", reject);
      }),
    );
  }
  await settle();
  const after = await ask(child, "gc");
  for (const socket of sockets) socket.destroy();
  await ask(child, "stop");
  return (after.rssBytes - before.rssBytes) / count;
}

async function listed(count) {
  const bare = await start({});
  const small = await ask(bare.child, "gc");
  await ask(bare.child, "stop");
  const { child, url } = await start({ EXTRA_TOOLS: String(count) });
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
  };
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  let cursor;
  let names = 0;
  let bytes = 0;
  do {
    const params = { _meta, ...(cursor ? { cursor } : {}) };
    const answer = await fetch(url, {
      method: "POST",
      headers,
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params }),
    });
    const text = await answer.text();
    bytes += text.length;
    const { result } = JSON.parse(text);
    names += result.tools.length;
    cursor = result.nextCursor;
  } while (cursor);
  const large = await ask(child, "gc");
  await ask(child, "stop");
  if (names !== count + 1) throw new Error(`${names} tools were listed, not ${count + 1}`);
  return { perToolBytes: (large.rssBytes - small.rssBytes) / count, rssMb: large.rssBytes / 2 ** 20, listBytes: bytes };
}

const perConnection = await idleConnections(Number(options.connections));
console.log(`${(perConnection / 1024).toFixed(1)} KiB for each of ${options.connections} idle connections`);
const { perToolBytes, rssMb, listBytes } = await listed(Number(options.tools));
console.log(
  `${(perToolBytes / 1024).toFixed(1)} KiB a tool with ${options.tools} tools listed (${rssMb.toFixed(0)} MiB in all, ${listBytes} bytes of list)`,
);
