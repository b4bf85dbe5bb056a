import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../mcp/client/index.js";
import { createTelemetry } from "../telemetry/index.js";
import { openWorld, type World } from "./fixtures/world.js";

const said: string[] = [];
let isBroken = true;
let world: World;

beforeAll(async () => {
  world = await openWorld({
    services: {
      telemetry: createTelemetry({ env: {}, log: { stream: { write: (text: string) => void said.push(text) } } }),
      coreTools: async ({ id }) => {
        if (id === "broken" && isBroken) throw new Error("/srv/secret-place is not there");
        return { tools: [], checks: [], close: async () => {} };
      },
    },
  });
  await world.put("broken", {});
  await world.put("blog", {});
});
afterAll(() => world.close());

const as = (who: string) => connect(world.url, { headers: { authorization: `Bearer ${who}` }, revision: "2026-07-28" });
const within = async (ms: number, check: () => boolean): Promise<void> => {
  for (const end = performance.now() + ms; !check(); ) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

describe("an application that is not served as its document says", () => {
  it("an application that is not served as its document says is named to its operator once, and its callers learn of no path [H5]", async () => {
    const ask = async (): Promise<[status: number, text: string]> => {
      const meta = { "io.modelcontextprotocol/protocolVersion": "2026-07-28" };
      const reply = await fetch(world.url, {
        method: "POST",
        headers: {
          authorization: "Bearer broken/agent",
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          "mcp-protocol-version": "2026-07-28",
          "mcp-method": "tools/list",
        },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta: meta } }),
      });
      return [reply.status, await reply.text()];
    };
    for (const [status, answer] of [await ask(), await ask()]) {
      expect(status).toBe(503);
      expect(answer).toContain("the application cannot be opened now");
      expect(answer).not.toContain("secret-place");
    }
    expect(said.filter((line) => line.includes("/srv/secret-place is not there"))).toHaveLength(1);
    expect(world.applications.refused).toEqual([{ app: "broken", reason: "it cannot be opened; the log says why" }]);
    isBroken = false;
    expect((await ask())[0]).not.toBe(503);
    expect(world.applications.refused).toEqual([]);
  });

  it("keeps its old rules when the new ones cannot be loaded, and reports it until they can", async () => {
    const client = await as("blog/agent");
    await client.listTools();
    await world.put("blog", { policies: { "mine.cedar": "permit(principal, action" } });
    await within(2_000, () => world.applications.refused.length === 1);
    expect(world.applications.refused[0]?.app).toBe("blog");
    expect(world.applications.refused[0]?.reason).toMatch(/^its rules are not valid: mine\.cedar:1:/);
    await world.put("blog", { policies: {} });
    await within(2_000, () => world.applications.refused.length === 0);
    await client.close();
  });
});
