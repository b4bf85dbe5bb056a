// Portcullis with shipped defaults: a tool with a side effect, a policy that reads its argument, validation, and the
// ledger on a real disk. When it stops it counts what it did and what is durable.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { read } from "../../dist/ledger/index.js";
import { keysOrLocal } from "../../dist/runtime/identity.js";
import { startGateway } from "../../dist/runtime/start.js";
import { createServer } from "../../dist/server.js";
import { ready } from "./child.mjs";

const extraTools = Number(process.env.EXTRA_TOOLS ?? 0);
// Beside the repository, not in a temporary folder that may be memory.
const dir = mkdtempSync(join(import.meta.dirname, "..", "..", ".portcullis-bench-"));
mkdirSync(join(dir, "policy"));
writeFileSync(
  join(dir, "policy", "bench.cedar"),
  `@id("append") permit (principal, action == Action::"append", resource) when { context.arguments.text like "*" };
   @id("others") permit (principal, action in Action::"tools/call", resource) unless { resource.tags.contains("never") };`,
);
let ran = 0;
const server = createServer({ name: "bench", version: "1.0.0" }).tool(
  "append",
  "Appends a text; what it does cannot be taken back",
  { type: "object", properties: { text: { type: "string", maxLength: 10_000 } }, required: ["text"] },
  ({ text }) => {
    ran++;
    return text;
  },
  { noGuardrailRequired: true },
);
for (let i = 0; i < extraTools; i++) {
  server.tool(
    `filler_${i}`,
    `Filler tool number ${i}: looks a record up by its identifier and returns the matching fields as text.`,
    {
      type: "object",
      properties: {
        id: { type: "string", description: "Record identifier" },
        limit: { type: "integer", minimum: 1, maximum: 100 },
        fields: { type: "array", items: { type: "string" } },
      },
      required: ["id"],
    },
    () => "",
    { noGuardrailRequired: true },
  );
}
const runtime = await startGateway({
  stateDir: dir,
  inProcess: { server, app: "local" },
  identity: keysOrLocal({ localApp: "local", isLoopback: true }),
  http: { host: "127.0.0.1", port: 0 },
  telemetry: { log: { level: "error" } },
});
ready(runtime.listeners[0].url, {
  stop: async () => {
    await runtime.close();
    let decisions = 0;
    let outcomes = 0;
    for await (const { record } of read(runtime.state.ledgerDir)) {
      if (record.tool !== "append") continue;
      if (record.kind === "decision") decisions++;
      if (record.kind === "outcome") outcomes++;
    }
    rmSync(dir, { recursive: true, force: true });
    return { ran, decisions, outcomes };
  },
});
