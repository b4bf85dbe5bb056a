// What a gateway still serves when far more arrives than it can serve: its goodput at capacity, then under open-loop
// arrivals at a multiple of it over many connections, and the p99 of a quiet application alone and beside the overload.
//   npm run build && node bench/overload.mjs [--times 10] [--connections 8000] [--seconds 10] [--quiet 4]
import { fork } from "node:child_process";
import { connect } from "node:net";
import { setPriority } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ask, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({
  options: {
    times: { type: "string", default: "10" },
    connections: { type: "string", default: "8000" },
    seconds: { type: "string", default: "10" },
    quiet: { type: "string", default: "4" },
    arrivals: { type: "string" },
    url: { type: "string" },
  },
});
const [times, connections, seconds] = [options.times, options.connections, options.seconds].map(Number);
/** As many as a machine with few cores keeps busy. */
const AT_CAPACITY = 64;
/** The generator stands for other machines: what it measures has the cores first. */
const GIVES_WAY = 10;
const TICK_MS = 5;

/** One arrival after the other at a fixed rate, whatever is answered; each takes a free connection. */
async function arrive(url, perSecond) {
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
    "x-bench-app: app-0",
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  const message = Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`);
  const counts = { arrived: 0, good: 0, refused: 0, withRetryAfter: 0, failed: 0, unsent: 0 };
  const idle = [];
  let measuring = false;
  let isEnding = false;
  const open = () =>
    new Promise((resolve) => {
      const socket = connect(Number(port), hostname, () => {
        idle.push(socket);
        resolve();
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
        if (measuring) {
          const status = text.slice(9, 12);
          if (status === "200" && text.includes('"text":"overload"')) counts.good++;
          else if (status === "429" || status === "503") {
            counts.refused++;
            if (/retry-after: /i.test(text.slice(0, end))) counts.withRetryAfter++;
          } else counts.failed++;
        }
        text = "";
        socket.isAsked = false;
        idle.push(socket);
      });
      const end = () => {
        if (socket.isOver) return;
        socket.isOver = true;
        if (measuring && socket.isAsked) counts.failed++;
        resolve();
        if (!isEnding) void open();
      };
      socket.on("error", end).on("close", end);
    });
  for (let i = 0; i < connections; i += 200) await Promise.all(Array.from({ length: 200 }, open));
  const began = performance.now();
  let sent = 0;
  process.send({ opened: idle.length });
  await new Promise((resolve) => {
    const timer = setInterval(() => {
      const elapsed = performance.now() - began;
      // The first second fills the queues.
      measuring = elapsed > 1_000;
      if (elapsed > (seconds + 1) * 1_000) {
        clearInterval(timer);
        isEnding = true;
        return resolve();
      }
      for (const due = Math.floor((elapsed * perSecond) / 1_000); sent < due; sent++) {
        if (measuring) counts.arrived++;
        let socket = idle.pop();
        while (socket?.isOver) socket = idle.pop();
        if (socket === undefined) counts.unsent += measuring ? 1 : 0;
        else {
          socket.isAsked = true;
          socket.write(message);
        }
      }
    }, TICK_MS);
  });
  process.send(counts);
  process.exit(0);
}

if (options.arrivals !== undefined) await arrive(options.url, Number(options.arrivals));
else {
  const echo = async () => {
    const child = fork(join(import.meta.dirname, "targets", "echo.mjs"));
    return { child, url: await new Promise((resolve) => child.once("message", ({ url }) => resolve(url))) };
  };
  const [busy, quiet] = [await echo(), await echo()];
  const env = { DOWNSTREAM: busy.url, DOWNSTREAM_1: quiet.url, APPS: "2", CONNECTIONS: String(connections + 1_000) };
  const target = await startTarget({ name: "gateway", file: "gateway.mjs", env });
  const closed = (app, concurrency) => {
    const settings = {
      url: target.url,
      concurrency,
      seconds,
      warmupSeconds: 1,
      revision: "2025-11-25",
      expect: "text",
    };
    const given = JSON.stringify({ ...settings, headers: { "x-bench-app": app } });
    const child = fork(join(import.meta.dirname, "load.mjs"), [given]);
    return new Promise((resolve) =>
      child.on("message", (message) => {
        if (typeof message === "object") resolve(message);
      }),
    );
  };
  const capacity = (await closed("app-0", AT_CAPACITY)).perSecond;
  const alone = (await closed("app-1", Number(options.quiet))).p99Ms;
  const arrivals = String(Math.round(capacity * times));
  const given = ["--arrivals", arrivals, "--url", target.url, "--connections", options.connections];
  const generator = fork(import.meta.filename, [...given, "--seconds", String(seconds + 3)]);
  setPriority(generator.pid, GIVES_WAY);
  const messages = [];
  const opened = new Promise((resolve) => generator.once("message", resolve));
  const done = new Promise((resolve) => {
    generator.on("message", (message) => messages.push(message));
    generator.on("exit", resolve);
  });
  await opened;
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const beside = (await closed("app-1", Number(options.quiet))).p99Ms;
  await done;
  const counts = messages.at(-1);
  const goodput = counts.good / (seconds + 3);
  await ask(target.child, "stop");
  busy.child.kill();
  quiet.child.kill();
  console.table([{ connections: messages[0].opened ?? connections, ...counts }]);
  console.log(
    `goodput: ${goodput.toFixed(0)}/s of ${capacity.toFixed(0)}/s at capacity, ${((100 * goodput) / capacity).toFixed(1)} %`,
  );
  console.log(
    beside === undefined
      ? "the quiet application had no successful call beside the overload"
      : `p99 of the quiet application: ${beside.toFixed(1)} ms, ${(beside / alone).toFixed(2)} × of ${alone.toFixed(1)} ms alone`,
  );
}
