// A call that waits for a person, through every door there is: pages, retries, waiting; one call, one approval.

import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { readOperatorToken } from "../../src/admin/index.js";
import { readLast } from "../../src/ledger/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = `
permit (principal, action, resource);
@id("ask-first") @outcome("challenge") @approvers("operators") @reason("Writing needs a person.")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;

let deployment: Deployment;
let downstream: Counting;
let agent: string;

beforeAll(async () => {
  downstream = await counting("team");
  deployment = await deploy(POLICY, { limits: { challengeWaitMs: 10_000 } });
  await deployment.put("team", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } } });
  agent = await deployment.key("team", "agent");
});
afterAll(async () => {
  await deployment.close();
  await downstream.close();
});
beforeEach(() => {
  downstream.calls.length = 0;
});

/** A person at the admin port. */
async function answer(id: string, verdict: "approve" | "deny", token?: string, reason?: string): Promise<number> {
  const credential = token ?? readOperatorToken(join(deployment.dir, "operator.token"));
  const response = await fetch(`${deployment.runtime.admin?.url}/v1/approvals/${id}/${verdict}`, {
    method: "POST",
    headers: { authorization: `Bearer ${credential}`, "content-type": "application/json" },
    body: JSON.stringify(reason === undefined ? {} : { reason }),
  });
  await response.text();
  return response.status;
}

async function waiting(text: string): Promise<string> {
  for (let i = 0; i < 100; i++) {
    const open = await deployment.runtime.storage.challenges.list(100);
    const mine = open.find((each) => JSON.stringify(each.document).includes(text));
    if (mine) return mine.id;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("no challenge was opened");
}

const AT_ONCE = { meta: { "portcullis/challengeWaitMs": 0 } };

describe("a challenged call", () => {
  it("a challenged call of any client waits for the approver and continues when it was approved [U7]", async () => {
    const client = await deployment.client(agent, { revision: "2025-06-18" });
    const call = client.callTool("write", { text: "waits" });
    expect(await answer(await waiting("waits"), "approve")).toBe(200);
    expect((await call).content).toMatchObject([{ text: "team wrote waits" }]);
    expect(downstream.calls).toEqual(["write"]);
    await client.close();
  });

  it("a challenged call returns at once, when the client asks for it, that nothing ran, what waits and where, and runs once after approval", async () => {
    const client = await deployment.client(agent);
    const first = await client.callTool("write", { text: "twice" }, AT_ONCE);
    const id = await waiting("twice");
    expect(first).toMatchObject({
      isError: true,
      structuredContent: { code: "CHALLENGE", challenge: id, approval_url: expect.stringContaining(`/approve/${id}`) },
    });
    expect(downstream.calls).toEqual([]);
    await answer(id, "approve");
    const both = await Promise.all([1, 2].map(() => client.callTool("write", { text: "twice" }, AT_ONCE)));
    expect(both.filter((each) => each.isError !== true)).toHaveLength(1);
    expect(downstream.calls).toEqual(["write"]);
    await client.close();
  });

  it("a challenged call that an approver denied returns the reason to the model, and other arguments are another call [U7]", async () => {
    const client = await deployment.client(agent);
    await client.callTool("write", { text: "no" }, AT_ONCE);
    await answer(await waiting('\\"no\\"'), "deny", undefined, "not on a Friday");
    const denied = await client.callTool("write", { text: "no" }, AT_ONCE);
    expect(JSON.stringify(denied)).toContain("not on a Friday");
    const other = await client.callTool("write", { text: "no!" }, AT_ONCE);
    expect(other.structuredContent).toMatchObject({ code: "CHALLENGE" });
    expect(downstream.calls).toEqual([]);
    await client.close();
  });

  it.each(["2026-07-28", "2025-11-25"] as const)(
    "a challenged call sends the page to a client of %s that opens pages",
    async (revision) => {
      const pages: string[] = [];
      const text = `page-${revision}`;
      const client = await deployment.client(agent, {
        revision,
        handlers: {
          elicitsUrls: true,
          elicitation: async (params) => {
            pages.push(String(params.url));
            await answer(String(params.url).split("/").pop() as string, "approve");
            return { action: "accept" };
          },
        },
      });
      const result = await client.callTool("write", { text });
      expect(result.content).toMatchObject([{ text: `team wrote ${text}` }]);
      expect(pages).toEqual([expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/approve\/ch_/)]);
      expect(downstream.calls).toEqual(["write"]);
      await client.close();
    },
  );

  it("a challenged call is answered by an approver's key of the right group, and by no other key", async () => {
    const approver = await deployment.key("team", "boss", ["approve(operators)"]);
    const stranger = await deployment.key("team", "guest", ["approve(auditors)"]);
    const client = await deployment.client(agent);
    await client.callTool("write", { text: "by-key" }, AT_ONCE);
    const id = await waiting("by-key");
    expect(await answer(id, "approve", agent)).toBe(401);
    expect(await answer(id, "approve", stranger)).toBe(403);
    expect(await answer(id, "approve", approver)).toBe(200);
    expect((await client.callTool("write", { text: "by-key" }, AT_ONCE)).isError).not.toBe(true);
    expect((await deployment.post(approver, { jsonrpc: "2.0", id: 1, method: "tools/list", params: {} })).status).toBe(
      401,
    );
    await client.close();
  });

  it("a challenged call does not exist for an approver of another application", async () => {
    await deployment.put("rival", {});
    const rival = await deployment.key("rival", "boss", ["approve(operators)"]);
    const auditor = await deployment.key("team", "auditor", ["approve(auditors)"]);
    const approver = await deployment.key("team", "chief", ["approve(operators)"]);
    const client = await deployment.client(agent);
    await client.callTool("write", { text: "not-for-rivals" }, AT_ONCE);
    await client.close();
    const id = await waiting("not-for-rivals");
    const ask = async (token: string, path: string, body?: string) => {
      const response = await fetch(`${deployment.runtime.admin?.url}${path}`, {
        method: body === undefined ? "GET" : "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body }),
      });
      return { status: response.status, text: await response.text() };
    };
    const { ledger } = deployment.runtime;
    for (const path of ["", "/approve", "/deny"]) {
      const theirs = await ask(rival, `/v1/approvals/${id}${path}`, path === "" ? undefined : "{}");
      const none = await ask(
        rival,
        `/v1/approvals/ch_${"x".repeat(id.length - 3)}${path}`,
        path === "" ? undefined : "{}",
      );
      expect(theirs.status).toBe(404);
      const plain = (text: string): string => text.replace(/ch_[\w-]+|[0-9a-f]{32}/g, "…");
      expect(plain(theirs.text)).toBe(plain(none.text));
    }
    const { records } = await readLast(ledger.dir, 1, {
      filter: (each) => each.kind === "approval" && each.challenge === id,
    });
    expect(records).toEqual([]);
    for (const [token, sees] of [
      [rival, false],
      [auditor, false],
      [approver, true],
    ] as const) {
      expect((await ask(token, "/v1/approvals")).text.includes("not-for-rivals")).toBe(sees);
      expect((await ask(token, `/v1/approvals/${id}`)).text.includes("not-for-rivals")).toBe(sees);
      for (const path of ["/v1/policy", "/v1/servers"]) expect((await ask(token, path)).status).toBe(403);
    }
  });
});

describe("the page", () => {
  it("the approval page is the same for every reader, contains nothing of the call, and runs only its own script", async () => {
    const response = await fetch(`${deployment.runtime.admin?.url}/approve/ch_whatever`);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-security-policy")).toContain("script-src 'self'");
    const text = await response.text();
    expect(text).toContain('<div id="app"></div>');
    expect(text).not.toMatch(/<script(?![^>]* src=)|<style/);
    const foreign = await fetch(`${deployment.runtime.admin?.url}/approve/ch_x`, {
      headers: { origin: "http://evil.example" },
    });
    expect(foreign.status).toBe(403);
  });
});
