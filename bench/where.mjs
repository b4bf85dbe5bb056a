// Where the time of a call goes: a CPU profile of the server under load, summed by room.
//   node bench/where.mjs [--seconds 5] [--concurrency 64]
import { fork } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { seconds: { type: "string", default: "5" }, concurrency: { type: "string", default: "64" } },
});
const out = mkdtempSync(join(tmpdir(), "portcullis-profile-"));
const server = fork(join(import.meta.dirname, "targets", "portcullis.mjs"), {
  execArgv: ["--cpu-prof", "--cpu-prof-interval", "200", "--cpu-prof-dir", out],
});
const next = (child) => new Promise((resolve) => child.once("message", resolve));
const { url } = await next(server);
const settings = {
  url,
  concurrency: Number(options.concurrency),
  seconds: Number(options.seconds),
  warmupSeconds: 0.1,
  revision: "2025-11-25",
  expect: "text",
};
const load = fork(join(import.meta.dirname, "load.mjs"), [JSON.stringify(settings)]);
const messages = [];
load.on("message", (message) => messages.push(message));
await new Promise((resolve) => load.once("exit", resolve));
const exited = new Promise((resolve) => server.once("exit", resolve));
server.send("stop");
await exited;
const { calls } = messages.at(-1);

const profile = JSON.parse(readFileSync(join(out, readdirSync(out)[0]), "utf8"));
rmSync(out, { recursive: true, force: true });
const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
function roomOf({ functionName, url: file }) {
  const own = /\/dist\/([a-z]+)\//.exec(file)?.[1];
  if (own) return own;
  if (file.includes("internal/crypto")) return "node: hashing";
  if (/_http|net|stream|events|timers|buffer|tick|task|async/.test(file)) return "node: http, streams, timers";
  if (functionName === "(garbage collector)") return "garbage collection";
  if (functionName === "(idle)") return undefined;
  if (/writev|writeUtf8|writeLatin1|writeBuffer/.test(functionName)) return "kernel: writes to sockets and disk";
  return file.startsWith("wasm") ? "start-up" : "other";
}
const sums = new Map();
profile.samples.forEach((id, i) => {
  const room = roomOf(nodes.get(id).callFrame);
  if (room) sums.set(room, (sums.get(room) ?? 0) + profile.timeDeltas[i]);
});
const total = [...sums.values()].reduce((a, b) => a + b, 0);
console.log(`| part of the main thread | share | µs a call (${calls} calls, profiled) |\n|---|---|---|`);
for (const [room, us] of [...sums].sort((a, b) => b[1] - a[1])) {
  console.log(`| ${room} | ${((us / total) * 100).toFixed(1)} % | ${(us / calls).toFixed(1)} |`);
}
