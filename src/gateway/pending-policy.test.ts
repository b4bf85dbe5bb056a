import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, it } from "vitest";
import { openLedger } from "../ledger/index.js";
import { connect } from "../mcp/client/index.js";
import { createServer, permitAll } from "../server.js";
import { openWorld } from "./fixtures/world.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanUp.splice(0).reverse()) await each();
});

const PERMIT = "permit (principal, action, resource);";
const FORBID = `${PERMIT}\n@id("no-touch")\nforbid (principal, action, resource);`;

async function until(is: () => boolean): Promise<void> {
  for (const end = performance.now() + 20_000; !is(); ) {
    if (performance.now() > end) throw new Error("not within 20 s");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

it("puts a policy in force that was tightened while the ledger could not be written, once it can [U7]", async () => {
  const dir = mkdtempSync(join(tmpdir(), "portcullis-pending-"));
  cleanUp.push(() => rmSync(dir, { recursive: true, force: true }));
  const ledger = await openLedger({ dir: join(dir, "ledger"), origin: "portcullis.local/test", retryMs: 5 });
  cleanUp.push(() => ledger.close());
  let touched = 0;
  const server = createServer("srv", { policy: permitAll }).tool(
    "touch",
    "Counts",
    { type: "object" },
    () => {
      touched++;
      return "touched";
    },
    { noGuardrailRequired: true },
  );
  cleanUp.push(() => server.close());
  const { url } = await server.listen({ transport: "http", port: 0 });
  const world = await openWorld({ ledger });
  cleanUp.push(() => world.close());
  const entry = { transport: "http" as const, url, noGuardrail: ["*"] };
  await world.put("blog", { servers: { srv: entry }, policies: { "own.cedar": PERMIT } });
  const client = await connect(world.url, { headers: { authorization: "Bearer blog/agent" } });
  cleanUp.push(() => client.close());
  const name = (await client.listTools()).map((tool) => tool.name).find((each) => each.includes("touch")) as string;
  await client.callTool(name, {});
  expect(touched).toBe(1);

  renameSync(join(dir, "ledger"), join(dir, "away"));
  await world.put("blog", { servers: { srv: entry }, policies: { "own.cedar": FORBID } });
  await until(() => world.applications.pendingPolicies === 1);
  expect(world.applications.refused[0]).toMatchObject({ app: "blog" });
  expect(world.applications.refused[0]?.reason).toContain("not recorded");
  await client.callTool(name, {}).catch(() => {});

  renameSync(join(dir, "away"), join(dir, "ledger"));
  await until(() => world.applications.pendingPolicies === 0);
  expect((await client.callTool(name, {})).structuredContent).toMatchObject({ rule: "no-touch" });
  expect(world.applications.peek("blog")?.gate.policy.rules.map(({ id }) => id)).toContain("no-touch");
  expect(touched).toBe(1);
});
