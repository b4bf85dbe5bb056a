// What a permitted, validated, recorded `tools/call` over HTTP costs, beside a bare node:http echo of the same bytes and
// the SDK v2 server that does nothing but echo: interleaved in one run, as ratios.
//   node bench/call.mjs [--seconds 4] [--rounds 5] [--concurrency 64,1] [--json]
import { parseArgs } from "node:util";
import { ask, compare, show, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "4" },
    warmup: { type: "string", default: "2" },
    rounds: { type: "string", default: "5" },
    concurrency: { type: "string", default: "64,1" },
    json: { type: "boolean", default: false },
  },
});
const TARGETS = [
  { name: "bare node:http echo", file: "bare.mjs", revision: "none", expect: "echo" },
  { name: "SDK v2 server, echo", file: "sdk2.mjs", revision: "2025-11-25", expect: "text" },
  { name: "portcullis", file: "portcullis.mjs", revision: "2025-11-25", expect: "text" },
];

const targets = [];
for (const target of TARGETS) targets.push(await startTarget(target));
const rows = await compare(targets, options, () => ({ timesBare: TARGETS[0].name, timesSdk: TARGETS[1].name }));
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
  show(rows);
  console.log(`${ledger.ran} calls ran; ${ledger.decisions} decisions and ${ledger.outcomes} outcomes are durable`);
}
