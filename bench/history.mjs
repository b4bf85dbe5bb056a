// What rules over past calls cost: 100 rules, and histories of 10⁴ and 10⁶ events. Microseconds a decision, with and without.
//   node bench/history.mjs [events …]

import { createGate } from "../dist/policy/gate.js";
import { CallHistory } from "../dist/policy/history/calls.js";
import { makeIntent } from "../dist/policy/intent.js";

const RULES = 100;
const ROUNDS = 5_000;
const AGENTS = 200;
const sizes = process.argv.slice(2).map(Number);

const tools = Array.from({ length: RULES }, (_, n) => ({
  name: `tool${n}`,
  server: "s",
  inputSchema: { type: "object", properties: { to: { type: "string" }, amount: { type: "integer" } } },
}));

/** Five kinds of rules, each about a tool of its own; the last ones all apply to the tool that is measured. */
const condition = (tool) => [
  `count_within(1h, Action::"${tool}"::permitted{ principal: principal }) >= 1000000`,
  `exists (n: Long). (sum_within(a, 1d, Action::"${tool}"::permitted{ principal: principal, arguments.amount: a }) == n && n > 1000000000)`,
  `formerly within 1h Action::"${tool}"::denied{ principal: principal, arguments.to: context.arguments.to }`,
  `!Action::"${tool}"::permitted{ arguments.to: context.arguments.to } since within 1h Action::"${tool}"::denied{ principal: principal }`,
  `previous within 1h Action::"${tool}"::denied{ principal: principal }`,
];
const permitAll = "permit (principal, action, resource);\n";
const rules = tools.map(({ name }, n) => {
  // A tenth of the rules is about every tool.
  const head = n % 10 === 0 ? "action" : `action == Action::"${name}"`;
  return `forbid (principal, ${head}, resource) when temporal { ${condition(name)[n % 5]} };`;
});

function gateWith(policy) {
  let now = 1_700_000_000_000;
  const gate = createGate({ tools, policy, history: new CallHistory({ now: () => (now += 1), maxRows: 4_000_000 }) });
  let count = 0;
  return () => {
    const n = count++;
    const name = tools[n % 20].name;
    const principal = { app: "a", agent: `agent${n % AGENTS}`, scope: [], via: "bench" };
    const target = {
      type: "Tool",
      name,
      action: name,
      binding: "b",
      server: "s",
      definitionHash: "h",
      tags: [],
      readOnly: false,
      noGuardrailRequired: true,
      builtin: false,
    };
    const args = { to: `to${n % 50}`, amount: n % 100 };
    const about = { principal, method: "tools/call", target, arguments: args };
    const intent = makeIntent({ ...about, forwarded: {} });
    const decision = gate.decide({ ...about, transport: "bench" }, intent);
    if (decision.effect !== "permit") throw new Error(decision.reason);
    decision.past?.recording("c", undefined);
    decision.release();
  };
}

function measure(call) {
  for (let i = 0; i < 2_000; i++) call();
  const times = [];
  for (let round = 0; round < 5; round++) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < ROUNDS; i++) call();
    times.push(Number(process.hrtime.bigint() - start) / ROUNDS / 1_000);
  }
  return Math.min(...times);
}

const without = measure(gateWith(permitAll));
console.log(`without history: ${without.toFixed(1)} µs a decision`);
for (const events of sizes.length > 0 ? sizes : [10_000, 1_000_000]) {
  const call = gateWith(permitAll + rules.join("\n"));
  // A permitted call is two events: asked for, and permitted.
  for (let i = 0; i < events / 2; i++) call();
  const us = measure(call);
  const memory = Math.round(process.memoryUsage().heapUsed / 1024 / 1024);
  console.log(
    `${RULES} rules, ${events} past events: ${us.toFixed(1)} µs a decision, ${(us - without).toFixed(1)} more (heap ${memory} MiB)`,
  );
}
