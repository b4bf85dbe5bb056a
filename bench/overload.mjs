// What a gateway still serves when far more arrives than it can serve. Each round measures, one after the other and with
// the same connections open: a quiet application alone, the capacity (64 calls in flight, closed loop), the goodput
// under open-loop arrivals at a multiple of that capacity, and the quiet application beside those arrivals.
//   npm run build && node bench/overload.mjs [--rounds 3] [--seconds 6] [--times 10] [--connections 8000] [--quiet 4] [--pin]
import { execFileSync, fork } from "node:child_process";
import { availableParallelism, getPriority, setPriority } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ask, median, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "6" },
    times: { type: "string", default: "10" },
    connections: { type: "string", default: "8000" },
    quiet: { type: "string", default: "4" },
    pin: { type: "boolean", default: false },
  },
});
const [rounds, seconds, times, connections, quiet] = ["rounds", "seconds", "times", "connections", "quiet"].map(
  (name) => Number(options[name]),
);
/** As many as a machine with few cores keeps busy. */
const AT_CAPACITY = 64;
/** The generator represents other machines: what is measured has the cores first, also when all of it runs under `nice`. */
const LOWER_PRIORITY = 5;
/** The first seconds of the overload fill the queues. */
const SETTLE_MS = 2_000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** With `--pin` the gateway and its threads have a core of their own in every phase; servers and clients share the others. */
function pin(pid, isGateway) {
  const cores = availableParallelism();
  if (!options.pin || cores < 2) return false;
  try {
    execFileSync("taskset", ["-a", "-cp", isGateway ? "0" : `1-${cores - 1}`, String(pid)], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

function forkPinned(file, args = []) {
  const child = fork(join(import.meta.dirname, file), args);
  pin(child.pid, false);
  return child;
}

async function startEcho() {
  const child = forkPinned("targets/echo.mjs");
  return { child, url: await new Promise((resolve) => child.once("message", ({ url }) => resolve(url))) };
}

const echoes = [await startEcho(), await startEcho()];
const env = {
  DOWNSTREAM: echoes[0].url,
  DOWNSTREAM_0: echoes[0].url,
  DOWNSTREAM_1: echoes[1].url,
  APPS: "2",
  CONNECTIONS: String(connections + 1_000),
};
const target = await startTarget({ name: "gateway", file: "gateway.mjs", env });
const isPinned = pin(target.child.pid, true);
const cpuUs = async () => (await ask(target.child, "usage")).cpuUs;

/** A closed loop in a process of its own, as the other benches use it. */
function closedLoop(app, concurrency) {
  const settings = { url: target.url, concurrency, seconds, warmupSeconds: 1, revision: "2026-07-28", expect: "text" };
  const child = forkPinned("load.mjs", [JSON.stringify({ ...settings, headers: { "x-bench-app": app } })]);
  return new Promise((resolve, reject) => {
    let before;
    let used;
    child.on("exit", (code) => code === 0 || reject(new Error(`load.mjs ended with ${code}`)));
    child.on("message", async (message) => {
      if (message === "measuring") before = cpuUs();
      else if (message === "done") used = cpuUs();
      else resolve({ ...message, cpuUs: (await used) - (await before) });
    });
  });
}

const generator = forkPinned("targets/arrivals.mjs", [JSON.stringify({ url: target.url, connections, app: "app-0" })]);
setPriority(generator.pid, getPriority() + LOWER_PRIORITY);
await new Promise((resolve) => generator.once("message", resolve));

/** What the generator counted while `run` ran, and what the gateway used. */
async function during(run) {
  const [before, cpuBefore, began] = [await ask(generator, "counts"), await cpuUs(), performance.now()];
  const result = await run();
  const [after, cpuAfter, ended] = [await ask(generator, "counts"), await cpuUs(), performance.now()];
  const { failures: _before, ...counted } = before;
  const counts = Object.fromEntries(Object.keys(counted).map((name) => [name, after[name] - before[name]]));
  return { result, ...counts, seconds: (ended - began) / 1_000, cpuUs: cpuAfter - cpuBefore };
}

// Compiled and connected before anything is measured.
await closedLoop("app-1", quiet);
await closedLoop("app-0", AT_CAPACITY);
const results = [];
for (let round = 0; round < rounds; round++) {
  const alone = await closedLoop("app-1", quiet);
  const atCapacity = await closedLoop("app-0", AT_CAPACITY);
  const capacity = atCapacity.perSecond;
  // Control: as much as the capacity, over the same connections. It has the cost of many connections, and no surplus.
  await ask(generator, { perSecond: Math.round(capacity) });
  await sleep(SETTLE_MS);
  const control = await during(() => sleep(seconds * 1_000));
  await ask(generator, { perSecond: Math.round(capacity * times) });
  await sleep(SETTLE_MS);
  const overload = await during(() => sleep(seconds * 1_000));
  const beside = await during(() => closedLoop("app-1", quiet));
  await ask(generator, { perSecond: 0 });
  // What is under way ends before the next round begins.
  await sleep(SETTLE_MS);
  const goodput = overload.good / overload.seconds;
  const besideGood = beside.good + beside.result.calls * (beside.seconds / seconds);
  const row = {
    capacity: capacity,
    goodput: goodput,
    share: (100 * goodput) / capacity,
    control: control.good / control.seconds,
    cpuControl: control.cpuUs / control.good,
    cpuPerCall: atCapacity.cpuUs / atCapacity.calls,
    cpuPerGood: overload.cpuUs / overload.good,
    arrived: overload.arrived / overload.seconds,
    unsent: overload.unsent / overload.seconds,
    refused: overload.refused / overload.seconds,
    noRetryAfter: overload.refused - overload.withRetryAfter,
    failed: overload.failed + beside.failed,
    quietAlone: alone.p99Ms,
    quietBeside: beside.result.p99Ms,
    times: beside.result.p99Ms / alone.p99Ms,
    quietErrors: beside.result.errors,
    cpuBeside: beside.cpuUs / besideGood,
    besideShare: (100 * besideGood) / beside.seconds / capacity,
  };
  results.push(Object.fromEntries(Object.entries(row).map(([name, value]) => [name, Number(value?.toFixed(1))])));
}
const { failures } = await ask(generator, "counts");
generator.kill();
const { decisions, outcomes } = await ask(target.child, "stop");
for (const { child } of echoes) child.kill();
console.table(results);
const of = (name) => median(results.map((row) => row[name]));
console.log(
  `${connections} connections, ${times} times the capacity; gateway ${isPinned ? "" : "not "}pinned to a core`,
);
console.log(`arrivals at the capacity, same connections: ${of("control")}/s, CPU ${of("cpuControl")} µs a good call`);
console.log(
  `goodput: ${of("share")} % of the capacity; CPU ${of("cpuPerGood")} µs a good call, ${of("cpuPerCall")} µs at capacity`,
);
console.log(`p99 of the quiet application: ${of("times")} × of what it is alone (${of("quietAlone")} ms)`);
if (Object.keys(failures).length > 0) console.log("failures:", failures);
console.log(`records: ${decisions} decisions, ${outcomes} outcomes`);
