// The counting server on stdio, from the built package. What reached it is written to the file named by the first
// argument whenever it changes; the second says whether the ledger is broken.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { openLedger } from "../../dist/ledger/index.js";
import { createServer } from "../../dist/server.js";

const [counts, dir, policy, broken] = process.argv.slice(2);
const reached = {};
const count = (what) => {
  reached[what] = (reached[what] ?? 0) + 1;
  writeFileSync(counts, JSON.stringify(reached));
  return what;
};
const ledger = await openLedger({ dir: join(dir, "ledger"), origin: "example.com/stdio" });
if (broken === "broken") await ledger.close();
const server = createServer({ name: "counting", version: "1.0.0" }, { policy, ledger });
const schema = {
  type: "object",
  properties: { text: { type: "string", maxLength: 1000 } },
  required: ["text"],
  additionalProperties: false,
};
for (const kind of ["open", "closed", "asked"]) {
  server
    .tool(`${kind}.write`, kind, schema, () => count(`tools/call ${kind}`), { noGuardrailRequired: true })
    .resource(`count://${kind}`, kind, () => count(`resources/read ${kind}`))
    .prompt(kind, kind, { name: {} }, () => count(`prompts/get ${kind}`), {
      complete: { name: () => [count(`completion/complete ${kind}`)] },
    });
}
server.tool("bare.write", "bare", schema, () => count("tools/call bare"));
await server.listen();
