#!/usr/bin/env node
// @ts-check
// An orchestrator delegates a part of what it holds. What the types refuse in an editor (this file is checked, although
// it is plain JavaScript) the run time refuses again.
//   node examples/typed-agents.mjs
import assert from "node:assert/strict";
import { createAgent, toolset } from "portcullis/client";
import { createServer, permitAll, structured } from "portcullis/server";

/**
 * @typedef {{
 *   "orders.find": { args: { customer: string }; result: { open: number } };
 *   "orders.refund": { args: { customer: string; amount: number }; result: { refunded: number } };
 * }} Orders
 */
const orders = /** @type {ReturnType<typeof toolset<Orders>>} */ (toolset())({
  names: ["orders.find", "orders.refund"],
  noGuardrailRequired: ["orders.find"],
});

/** @type {string[]} */
const ran = [];
const customer = { type: "string" };
const amount = { type: "integer", minimum: 1 };
const open = { noGuardrailRequired: true };
const server = createServer("orders", { policy: permitAll })
  .tool(
    "orders.find",
    "How many orders are open",
    { type: "object", properties: { customer }, required: ["customer"] },
    () => structured({ open: 2 }),
    { ...open, output: { type: "object", properties: { open: { type: "integer" } }, required: ["open"] } },
  )
  .tool(
    "orders.refund",
    "Pays back",
    { type: "object", properties: { customer, amount }, required: ["customer", "amount"] },
    (args) => {
      ran.push(`refund ${args.amount}`);
      return structured({ refunded: Number(args.amount) });
    },
    { ...open, output: { type: "object", properties: { refunded: amount }, required: ["refunded"] } },
  );
const { url } = await server.listen({ transport: "http", port: 0 });

const clerk = await createAgent("clerk", orders, {
  app: "shop",
  guardrails: {
    "orders.refund": ({ arguments: { amount } }) => (amount > 100 ? "over 100 needs a person" : undefined),
  },
}).connect(url);
const scout = clerk.delegate("scout", ["orders.find"]);

const found = await scout.call("orders.find", scout.unchecked("orders.find", { customer: "ada" }));
console.log(`the scout found ${found.open} open orders`);

const token = await clerk.guard("orders.refund", { customer: "ada", amount: 40 });
const { refunded } = await clerk.call("orders.refund", token);
console.log(`the clerk refunded ${refunded}`);

await refused("the scout has no refunds to give", () =>
  // @ts-expect-error "not within this agent's capabilities": "orders.refund"; agent: "scout"
  scout.guard("orders.refund", { customer: "ada", amount: 40 }),
);
await refused("a token is good for one call", () => clerk.call("orders.refund", token));
await refused("the guardrail has its say", () => clerk.guard("orders.refund", { customer: "ada", amount: 400 }));
await refused("a refund needs a token", () =>
  // @ts-expect-error Expected 2-3 arguments, but got 1
  clerk.call("orders.refund"),
);

await clerk.close();
await refused("a delegation ends with the one who made it", async () =>
  scout.unchecked("orders.find", { customer: "x" }),
);
assert.deepEqual(ran, ["refund 40"]);
await server.close();

/**
 * @param {string} why
 * @param {() => Promise<unknown>} run
 */
async function refused(why, run) {
  const error = await run().then(
    () => assert.fail(`${why}, and yet it ran`),
    (/** @type {Error} */ error) => error,
  );
  console.log(`refused, because ${why}: ${error.message}`);
}
