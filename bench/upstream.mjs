// What a call to a downstream server costs this side of the wire, beside the least that could be done: over HTTP an
// undici request with a fixed body, its answer gathered and parsed; over stdio a line written, a line split off and parsed.
//   npm run build && node bench/upstream.mjs [--calls 30000] [--rounds 5] [--concurrency 64]
import { fork, spawn } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Pool } from "undici";
import { createDialer, createUpstream } from "../dist/upstream/index.js";

const { values: options } = parseArgs({
  options: {
    calls: { type: "string", default: "30000" },
    rounds: { type: "string", default: "5" },
    concurrency: { type: "string", default: "64" },
  },
});
const CALLS = Number(options.calls);
const IN_FLIGHT = Number(options.concurrency);
const FAR_END = join(import.meta.dirname, "targets/upstream-echo.mjs");
const TEXT = "hello ".repeat(16);
const PARAMS = JSON.stringify({ arguments: { text: TEXT }, name: "echo" });

/** CPU of this process per call, in microseconds; every answer is looked at. */
async function measure(call) {
  const run = async (calls) => {
    let left = calls;
    const worker = async () => {
      while (left-- > 0) if ((await call()).content[0].text !== TEXT) throw new Error("a wrong answer");
    };
    await Promise.all(Array.from({ length: IN_FLIGHT }, worker));
  };
  await run(CALLS / 10);
  const before = process.cpuUsage();
  await run(CALLS);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / CALLS;
}

async function overHttp() {
  const server = fork(FAR_END, ["http"]);
  const { port } = await new Promise((resolve) => server.once("message", resolve));
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: 128, pipelining: 1 });
  const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${PARAMS}}`;
  const headers = { "content-type": "application/json", accept: "application/json" };
  const bare = async () => {
    const answer = await pool.request({ path: "/mcp", method: "POST", headers, body });
    return JSON.parse(await answer.body.text()).result;
  };
  const upstream = createUpstream({
    name: "echo",
    target: { transport: "http", url: `http://127.0.0.1:${port}/mcp` },
    dialer: createDialer({ allow: ["127.0.0.1"] }),
  });
  return { bare, upstream, close: () => Promise.all([pool.close(), upstream.close()]).then(() => server.kill()) };
}

async function overStdio() {
  const server = spawn(process.execPath, [FAR_END], { stdio: ["pipe", "pipe", "inherit"] });
  const pending = new Map();
  let lastId = 0;
  let held = "";
  let out = "";
  server.stdout.setEncoding("utf8").on("data", (chunk) => {
    const lines = (held + chunk).split("\n");
    held = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      pending.get(message.id)(message.result);
      pending.delete(message.id);
    }
  });
  const bare = () =>
    new Promise((resolve) => {
      pending.set(++lastId, resolve);
      if (out === "") setImmediate(() => server.stdin.write(out) | (out = ""));
      out += `{"jsonrpc":"2.0","id":${lastId},"method":"tools/call","params":${PARAMS}}\n`;
    });
  const target = { transport: "stdio", command: process.execPath, args: [FAR_END] };
  const upstream = createUpstream({ name: "echo", target });
  return { bare, upstream, close: () => upstream.close().then(() => server.kill()) };
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

console.log(`CPU µs a call on this side, ${IN_FLIGHT} in flight, medians of ${options.rounds} rounds`);
for (const [name, open] of [
  ["http", overHttp],
  ["stdio", overStdio],
]) {
  const { bare, upstream, close } = await open();
  const call = async () =>
    (await upstream.request({ method: "tools/call", params: PARAMS, name: "echo", timeoutMs: 30_000 })).value;
  const rounds = [];
  for (let round = 0; round < Number(options.rounds); round++) {
    rounds.push({ bare: await measure(bare), ours: await measure(call) });
  }
  const shown = (pick) => median(rounds.map(pick)).toFixed(2);
  console.log(
    `${name.padEnd(6)} bare ${shown((r) => r.bare)}  upstream ${shown((r) => r.ours)}  ratio ${shown((r) => r.ours / r.bare)}`,
  );
  await close();
}
