// Approval requests are bounded, and an approval is spent only by a call that was started.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ToolResult } from "../../src/mcp/server/index.js";
import { type Counting, counting, type Deployment, deploy } from "./gateway-world.js";

const POLICY = `
permit (principal, action, resource);
@id("ask-first") @outcome("challenge") @approvers("operators") @reason("Writing needs a person.")
forbid (principal, action == Action::"write", resource) unless { context.approved };
`;
const AT_ONCE = { meta: { "portcullis/challengeWaitMs": 0 } };
const OPERATOR = { name: "olga", groups: ["operators"] };

let deployment: Deployment;
let downstream: Counting;

beforeEach(async () => {
  downstream = await counting("team");
  deployment = await deploy(POLICY);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await deployment.close();
  await downstream.close();
});

async function serve(limits: object = {}): Promise<void> {
  await deployment.put("team", { servers: { up: { url: downstream.url, noGuardrail: ["*"] } }, limits });
}

function approvals() {
  const servedApplication = deployment.runtime.applications.peek("team");
  if (!servedApplication) throw new Error("the application is not open");
  return servedApplication.gate.approvals;
}

function errorIn(result: ToolResult): { code?: string; reason?: string; challenge?: string; retryable?: boolean } {
  return (result.structuredContent ?? {}) as object;
}

describe("approval requests", () => {
  it("approval requests of one agent are bounded, leave room for other agents, and a denial frees a place [H11]", async () => {
    await serve({ approvals: { perAgent: 2, perApp: 3 } });
    const one = await deployment.client(await deployment.key("team", "one"));
    const two = await deployment.client(await deployment.key("team", "two"));
    const ask = async (client: typeof one, text: string) => errorIn(await client.callTool("write", { text }, AT_ONCE));
    const first = await ask(one, "a");
    expect(first.code).toBe("CHALLENGE");
    expect((await ask(one, "b")).code).toBe("CHALLENGE");
    expect((await ask(one, "a")).challenge).toBe(first.challenge);
    expect(await ask(one, "c")).toMatchObject({
      code: "RATE_LIMITED",
      retryable: true,
      reason: expect.stringContaining("limits.approvals.perAgent"),
    });
    expect((await ask(two, "a")).code).toBe("CHALLENGE");
    expect(await ask(two, "b")).toMatchObject({
      code: "RATE_LIMITED",
      reason: expect.stringContaining("limits.approvals.perApp"),
    });
    await approvals().deny(first.challenge as string, OPERATOR, "no");
    expect((await ask(two, "b")).code).toBe("CHALLENGE");
    expect(downstream.calls).toEqual([]);
    await one.close();
    await two.close();
  });

  it("approval requests are not opened past the rate limit, nor for more than an approver can read [H11]", async () => {
    await serve({ agent: { perMinute: 3 } });
    const client = await deployment.client(await deployment.key("team", "one"));
    const long = await client.callTool("write", { text: "x".repeat(70_000) }, AT_ONCE);
    expect(errorIn(long)).toMatchObject({ code: "POLICY_DENY", reason: expect.stringContaining("65536") });
    const answers = [];
    for (const text of ["a", "b", "c"]) {
      answers.push(errorIn(await client.callTool("write", { text }, AT_ONCE)).code);
    }
    expect(answers.filter((code) => code === "CHALLENGE").length).toBeLessThan(3);
    expect(answers.at(-1)).toBe("RATE_LIMITED");
    expect(await approvals().list()).toHaveLength(answers.filter((code) => code === "CHALLENGE").length);
    expect(downstream.calls).toEqual([]);
    await client.close();
  });
});

describe("an approval", () => {
  async function approved(text: string) {
    await serve();
    const client = await deployment.client(await deployment.key("team", "one"));
    const asked = errorIn(await client.callTool("write", { text }, AT_ONCE));
    await approvals().approve(asked.challenge as string, OPERATOR);
    return client;
  }

  it("an approval outlives a call whose server could not be reached, and is then spent once [U7]", async () => {
    const client = await approved("later");
    const { port } = new URL(downstream.url);
    await downstream.close();
    const failed = await client.callTool("write", { text: "later" }, AT_ONCE);
    expect(errorIn(failed)).toMatchObject({ code: "UNAVAILABLE" });
    downstream = await counting("team", undefined, Number(port));
    let again = failed;
    for (const end = Date.now() + 60_000; again.isError === true && Date.now() < end; ) {
      again = await client.callTool("write", { text: "later" }, AT_ONCE);
      expect(errorIn(again).code).not.toBe("CHALLENGE");
      if (again.isError === true) await new Promise((resolve) => setTimeout(resolve, 250));
    }
    expect(again.content).toMatchObject([{ text: "team wrote later" }]);
    expect(errorIn(await client.callTool("write", { text: "later" }, AT_ONCE)).code).toBe("CHALLENGE");
    expect(downstream.calls).toEqual(["write"]);
    await client.close();
  });

  it("an approval outlives a call that could not be recorded, and is then spent once [U7]", async () => {
    const client = await approved("recorded");
    const { ledger } = deployment.runtime;
    const append = ledger.append.bind(ledger);
    let refusals = 1;
    // Not a record of something else that happens meanwhile.
    vi.spyOn(ledger, "append").mockImplementation(async (entry) => {
      if (entry.kind === "decision" && refusals-- > 0) throw new Error("the disk is full");
      return append(entry);
    });
    await expect(client.callTool("write", { text: "recorded" }, AT_ONCE)).rejects.toThrow(/did not run/);
    expect(downstream.calls).toEqual([]);
    const both = await Promise.all([1, 2].map(() => client.callTool("write", { text: "recorded" }, AT_ONCE)));
    expect(both.filter((each) => each.isError !== true)).toHaveLength(1);
    expect(downstream.calls).toEqual(["write"]);
    await client.close();
  });
});
