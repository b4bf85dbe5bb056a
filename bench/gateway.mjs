// What a call through the gateway costs, to a server over HTTP and to one over stdio, beside a bare node:http reverse
// proxy and a bare HTTP-to-stdio bridge: interleaved in one run, as ratios.
//   node bench/gateway.mjs [--seconds 4] [--rounds 5] [--concurrency 64,1] [--only http|stdio] [--many] [--json]
// `--many` compares a gateway with 10 applications and 100 keys with one that has 1,000 and 10,000.
import { fork } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ask, compare, show, startTarget } from "./runner.mjs";

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "4" },
    warmup: { type: "string", default: "2" },
    rounds: { type: "string", default: "5" },
    concurrency: { type: "string", default: "64,1" },
    only: { type: "string", default: "" },
    many: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
const echo = fork(join(import.meta.dirname, "targets", "echo.mjs"));
const DOWNSTREAM = await new Promise((resolve) => echo.once("message", ({ url }) => resolve(url)));
const common = { revision: "2025-11-25", expect: "text" };
const KEYED = "1";
const HTTP = [
  { ...common, name: "bare proxy", file: "proxy.mjs", env: { DOWNSTREAM } },
  { ...common, name: "gateway, HTTP", file: "gateway.mjs", env: { DOWNSTREAM, KEYED }, floor: "bare proxy" },
];
const STDIO = [
  { ...common, name: "bare bridge", file: "bridge.mjs" },
  { ...common, name: "gateway, stdio", file: "gateway.mjs", env: { DOWNSTREAM: "", KEYED }, floor: "bare bridge" },
];
const few = { DOWNSTREAM, APPS: "10", KEYS: "100" };
const many = { DOWNSTREAM, APPS: "1000", KEYS: "10000" };
const MANY = [
  { ...common, name: "10 applications, 100 keys", file: "gateway.mjs", env: few },
  {
    ...common,
    name: "1,000 applications, 10,000 keys",
    file: "gateway.mjs",
    env: many,
    floor: "10 applications, 100 keys",
  },
];
const chosen = options.many
  ? MANY
  : [...(options.only === "stdio" ? [] : HTTP), ...(options.only === "http" ? [] : STDIO)];
const targets = [];
for (const target of chosen) targets.push(await startTarget(target));
const rows = await compare(targets, options, (target) => ({ timesFloor: target.floor }));
for (const target of targets) {
  const counted = await ask(target.child, "stop");
  if (counted?.decisions !== undefined && counted.decisions !== counted.outcomes) {
    throw new Error(`${target.name}: ${counted.decisions} decisions, but ${counted.outcomes} outcomes`);
  }
  if (counted?.decisions) console.log(`${target.name}: ${counted.decisions} calls, two durable records each`);
}
echo.kill();
if (options.json) console.log(JSON.stringify({ node: process.version, rows }, null, 2));
else show(rows);
