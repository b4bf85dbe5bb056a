// What one application notices of another that sends without pause: its p99 alone, and beside the flood, in turn.
//   node bench/flood.mjs [--rounds 3] [--seconds 3] [--flood 64] [--quiet 4]
import { fork } from "node:child_process";
import { setPriority } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ask, median, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "3" },
    flood: { type: "string", default: "64" },
    quiet: { type: "string", default: "4" },
  },
});
// The question is what happens inside the gateway: each application has a server of its own, and what floods it gives
// way to what measures, since in service they are not on one machine.
const GIVES_WAY = 10;
const startEcho = async () => {
  const child = fork(join(import.meta.dirname, "targets", "echo.mjs"));
  return { child, url: await new Promise((resolve) => child.once("message", ({ url }) => resolve(url))) };
};
const flooded = await startEcho();
const quiet = await startEcho();
setPriority(flooded.child.pid, GIVES_WAY);
const env = { DOWNSTREAM: flooded.url, DOWNSTREAM_1: quiet.url, APPS: "2" };
const target = await startTarget({ name: "gateway", file: "gateway.mjs", env });

function load(app, concurrency, seconds) {
  const settings = {
    url: target.url,
    concurrency: Number(concurrency),
    seconds,
    warmupSeconds: 1,
    revision: "2025-11-25",
    expect: "text",
    headers: { "x-bench-app": app },
  };
  const child = fork(join(import.meta.dirname, "load.mjs"), [JSON.stringify(settings)]);
  if (app === "app-0") setPriority(child.pid, GIVES_WAY);
  return new Promise((resolve) =>
    child.on("message", (message) => {
      if (typeof message === "object") resolve(message);
    }),
  );
}

const seconds = Number(options.seconds);
await load("app-1", options.quiet, seconds);
const rounds = [];
for (let round = 0; round < Number(options.rounds); round++) {
  const alone = await load("app-1", options.quiet, seconds);
  const flood = load("app-0", options.flood, seconds + 3);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const beside = await load("app-1", options.quiet, seconds);
  const { perSecond } = await flood;
  rounds.push({
    alone: alone.p99Ms,
    beside: beside.p99Ms,
    times: beside.p99Ms / alone.p99Ms,
    floodPerSecond: perSecond,
  });
}
await ask(target.child, "stop");
flooded.child.kill();
quiet.child.kill();
console.table(rounds);
console.log(`p99 beside the flood: ${median(rounds.map((round) => round.times)).toFixed(2)} times what it is alone`);
