import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { attempts, MARK, type Scene, setScene, withoutEcho } from "./isolation.js";

let scene: Scene;
beforeAll(async () => {
  scene = await setScene();
});
afterAll(() => scene.close());

const RUNS = Number(process.env.ATTEMPTS ?? 400);
const modernCall = (name: string) => ({
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    name,
    arguments: { text: "x" },
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  },
});
const headersFor = (name: string) => ({
  "mcp-protocol-version": "2026-07-28",
  "mcp-method": "tools/call",
  "mcp-name": name,
});

describe("an agent of one application", () => {
  it(`an agent of one application sees, calls, reads and guesses nothing of another (${RUNS} attempts) [H3]`, {
    timeout: 600_000,
  }, async () => {
    const { deployment, attacker, foreign } = scene;
    await fc.assert(
      fc.asyncProperty(attempts(scene), async ({ body, headers }) => {
        const { text } = await deployment.post(attacker, body, headers);
        expect(withoutEcho(text, body)).not.toContain(MARK);
      }),
      { numRuns: RUNS },
    );
    expect(foreign.calls).toEqual([]);
  });

  it("the attempts of the isolation test succeed for the application's own agent [H3]", async () => {
    const { deployment } = scene;
    const owner = await deployment.key("store", "owner");
    const name = "vault.read";
    expect((await deployment.post(owner, modernCall(name), headersFor(name))).text).toContain(MARK);
    expect(scene.foreign.calls).toEqual(["read"]);
    scene.foreign.calls.length = 0;
  });

  it("a tool of another application is answered exactly like a missing tool [H3]", async () => {
    const { deployment, attacker } = scene;
    const ask = async (name: string): Promise<string> => {
      const { status, text } = await deployment.post(attacker, modernCall(name), headersFor(name));
      return `${status} ${text.replaceAll(name, "NAME").replace(/"trace_id":"[0-9a-f]+"/, "")}`;
    };
    expect(await ask("vault.read")).toBe(await ask("vault.dear"));
    expect(await ask("vault.read")).toContain("TOOL_NOT_FOUND");
  });

  it("a session of another application is answered exactly like a missing session [H3]", async () => {
    const { deployment, attacker, loot } = scene;
    const ask = async (session: string): Promise<string> => {
      const body = { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} };
      const { status, text } = await deployment.post(attacker, body, { "mcp-session-id": session });
      return `${status} ${text.replace(/"trace_id":"[0-9a-f]+"/, "")}`;
    };
    expect(await ask(loot.session)).toBe(await ask("x".repeat(loot.session.length)));
  });

  it("an agent cannot answer an approval request, and no key of a caller opens the admin port [H3]", async () => {
    const { deployment, attacker, loot } = scene;
    const { admin } = deployment.runtime;
    for (const path of ["", `/${loot.challenge}`, `/${loot.challenge}/approve`]) {
      const response = await fetch(`${admin?.url}/v1/approvals${path}`, {
        method: path.endsWith("approve") ? "POST" : "GET",
        headers: { authorization: `Bearer ${attacker}`, "content-type": "application/json" },
        ...(path.endsWith("approve") ? { body: "{}" } : {}),
      });
      expect(response.status).toBe(401);
      expect(await response.text()).not.toContain(MARK);
    }
    expect((await deployment.runtime.storage.challenges.get(loot.challenge))?.state).toBe("pending");
  });
});
