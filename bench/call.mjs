// What a permitted, validated, recorded `tools/call` over HTTP costs, beside a bare node:http echo of the same bytes and
// the SDK v2 server that does nothing but echo: interleaved in one run, as ratios.
//   node bench/call.mjs [--seconds 4] [--rounds 5] [--concurrency 64,1] [--json]
import { fork } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "4" },
    warmup: { type: "string", default: "2" },
    rounds: { type: "string", default: "5" },
    concurrency: { type: "string", default: "64,1" },
    json: { type: "boolean", default: false },
  },
});
const here = import.meta.dirname;
const TARGETS = [
  { name: "bare node:http echo", file: "bare.mjs", revision: "none", expect: "echo" },
  { name: "SDK v2 server, echo", file: "sdk2.mjs", revision: "2025-11-25", expect: "text" },
  { name: "portcullis", file: "portcullis.mjs", revision: "2025-11-25", expect: "text" },
];

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

async function startTarget(target) {
  const child = fork(join(here, "targets", target.file), { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  const { url } = await once(child);
  return { ...target, child, url, total: 0 };
}

async function measure(target, concurrency) {
  const settings = {
    url: target.url,
    concurrency,
    seconds: Number(options.seconds),
    warmupSeconds: Number(options.warmup),
    revision: target.revision,
    expect: target.expect,
  };
  const load = fork(join(here, "load.mjs"), [JSON.stringify(settings)]);
  await once(load);
  const before = await ask(target.child, "usage");
  await once(load);
  const after = await ask(target.child, "usage");
  const result = await once(load);
  if (load.exitCode === null) await new Promise((resolve) => load.once("exit", resolve));
  if (result.errors > 0) throw new Error(`${target.name}: ${result.errors} wrong answers`);
  return { ...result, cpuUsPerCall: (after.cpuUs - before.cpuUs) / result.calls, rssMb: after.rssBytes / 2 ** 20 };
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const targets = [];
for (const target of TARGETS) targets.push(await startTarget(target));
const rows = [];
for (const concurrency of options.concurrency.split(",").map(Number)) {
  const rounds = [];
  for (let round = 0; round < Number(options.rounds); round++) {
    const results = {};
    for (const target of targets) results[target.name] = await measure(target, concurrency);
    rounds.push(results);
    process.stderr.write(
      `${concurrency} in flight, round ${round + 1}: ${targets.map((t) => `${results[t.name].cpuUsPerCall.toFixed(1)} µs`).join("  ")}\n`,
    );
  }
  for (const { name } of targets) {
    const of = (pick) => median(rounds.map((round) => pick(round[name])));
    // A ratio is taken within a round, where the machine was as noisy for the one as for the other.
    const ratio = (other) => median(rounds.map((round) => round[name].cpuUsPerCall / round[other].cpuUsPerCall));
    rows.push({
      inFlight: concurrency,
      target: name,
      cpuUs: of((r) => r.cpuUsPerCall),
      timesBare: ratio(TARGETS[0].name),
      timesSdk: ratio(TARGETS[1].name),
      perSecond: of((r) => r.perSecond),
      p50Ms: of((r) => r.p50Ms),
      p99Ms: of((r) => r.p99Ms),
      rssMb: of((r) => r.rssMb),
    });
  }
}
const stopped = {};
for (const target of targets) stopped[target.name] = await ask(target.child, "stop");
const ledger = stopped.portcullis;
if (ledger.decisions !== ledger.ran || ledger.outcomes !== ledger.ran) {
  throw new Error(
    `ran ${ledger.ran} calls, but ${ledger.decisions} decisions and ${ledger.outcomes} outcomes are durable`,
  );
}
if (options.json) console.log(JSON.stringify({ node: process.version, rows, ledger }, null, 2));
else {
  console.table(
    rows.map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([key, value]) => [
          key,
          typeof value === "number" && !Number.isInteger(value) ? Number(value.toFixed(2)) : value,
        ]),
      ),
    ),
  );
  console.log(`${ledger.ran} calls ran; ${ledger.decisions} decisions and ${ledger.outcomes} outcomes are durable`);
}
