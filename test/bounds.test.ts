// What a gateway holds itself to while a call runs: how long it waits for people and clients, how much it lets through,
// and what may run before its record is on the disk.

import { describe, expect, it } from "vitest";
import type { Ledger } from "../src/ledger/index.js";
import { MemoryApprovals } from "../src/policy/index.js";
import { anything, connected, newLedger, open, started } from "./whole.js";

const ASK = `
  @id("pay") permit (principal, action == Action::"pay", resource);
  @id("ask") @outcome("challenge") @approvers("operators")
  forbid (principal, action == Action::"pay", resource) unless { context.approved };`;

describe("a challenged call", () => {
  const opened = (approvals: MemoryApprovals): Promise<string> =>
    new Promise((resolve) => {
      const timer = setInterval(async () => {
        const [challenge] = await approvals.list();
        if (!challenge) return;
        clearInterval(timer);
        resolve(challenge.id);
      }, 5);
    });

  it("a challenged call waits as long as configured and runs as soon as an approver approves it [U7]", async () => {
    const approvals = new MemoryApprovals();
    const server = started({ policy: ASK, approvals, limits: { challengeWaitMs: 50_000 } });
    server.tool("pay", "pays", anything, () => "paid", open);
    const client = await connected(server);
    const call = client.callTool("pay", {});
    await approvals.approve(await opened(approvals), { name: "olga", groups: ["operators"] });
    expect(await call).toMatchObject({ content: [{ text: "paid" }] });
  });

  it("a challenged call that an approver denies while it waits ends with the reason, without effect", async () => {
    const approvals = new MemoryApprovals();
    let ran = 0;
    const server = started({ policy: ASK, approvals, limits: { challengeWaitMs: 50_000 } });
    server.tool("pay", "pays", anything, () => String(ran++), open);
    const client = await connected(server);
    const call = client.callTool("pay", {});
    await approvals.deny(await opened(approvals), { name: "olga", groups: ["operators"] }, "not today");
    expect(await call).toMatchObject({
      isError: true,
      structuredContent: { code: "POLICY_DENY", reason: "not today" },
    });
    expect(ran).toBe(0);
  });

  it("a challenged call without an answer in time returns the pending approval", async () => {
    const server = started({ policy: ASK, limits: { challengeWaitMs: 30 } });
    server.tool("pay", "pays", anything, () => "paid", open);
    const client = await connected(server);
    expect(await client.callTool("pay", {})).toMatchObject({ isError: true, structuredContent: { code: "CHALLENGE" } });
  });
});

describe("an answer", () => {
  it("a streamed result is cut at the limit and says so [G7]", async () => {
    const server = started({ limits: { maxResultBytes: 10_000 } });
    server.tool(
      "flood",
      "writes much",
      anything,
      async (_args, context) => {
        for (let part = 0; part < 2_000; part++) await context.write("0123456789");
        return undefined;
      },
      open,
    );
    const client = await connected(server);
    const { isError, content, _meta } = await client.callTool("flood", {});
    expect(isError ?? false, JSON.stringify(content).slice(0, 200)).toBe(false);
    expect(_meta).toMatchObject({ "portcullis/truncated": true, "portcullis/warning": "OUTPUT_TRUNCATED" });
    const { text } = content[0] as { text: string };
    expect(text.length).toBeGreaterThan(5_000);
    expect(text.length).toBeLessThanOrEqual(10_000);
  });

  it("a result in one piece over the limit is a failure [U10]", async () => {
    const server = started({ limits: { maxResultBytes: 1_000 } });
    server.tool("flood", "answers much", anything, () => "x".repeat(2_000), open);
    server.tool("drop", "answers little", anything, () => "x".repeat(20), open);
    const client = await connected(server);
    const result = await client.callTool("flood", {});
    expect(result).toMatchObject({ isError: true, structuredContent: { code: "TOOL_FAILURE" } });
    expect(JSON.stringify(result)).not.toContain("xxxx");
    expect(await client.callTool("drop", {})).toMatchObject({ content: [{ text: "x".repeat(20) }] });
  });
});

it("an elicitation that the client never answers ends the call, and the tool's timeout does not count the wait", async () => {
  const server = started({ limits: { askTimeoutMs: 300 } });
  const ask = { message: "?", requestedSchema: { type: "object", properties: {} } };
  const answer = (_args: unknown, context: { elicit(key: string, params: object): Promise<object> }): Promise<string> =>
    context.elicit("name", ask).then(JSON.stringify);
  server.tool("ask", "asks", anything, answer as never, { ...open, timeoutMs: 100 });
  const client = await connected(server, {
    revision: "2025-11-25",
    handlers: { elicitation: () => new Promise(() => {}) },
  });
  const result = await client.callTool("ask", {});
  expect(result).toMatchObject({ isError: true, structuredContent: { code: "TIMEOUT" } });
  expect(JSON.stringify(result)).toContain("within 300 ms");
});

describe("before its decision is on the disk", () => {
  /** A ledger whose disk takes its time: nothing is durable until it is let go. */
  async function slowLedger(): Promise<{ ledger: Ledger; letGo: () => void }> {
    const real = await newLedger();
    let letGo = (): void => {};
    const gone = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const ledger: Ledger = {
      dir: real.dir,
      origin: real.origin,
      append: (entry) => gone.then(() => real.append(entry)),
      appendOutcome: (entry) => real.appendOutcome(entry),
      appendSoon: (entry) => real.appendSoon(entry),
      checkpoint: () => real.checkpoint(),
      rotateKey: () => real.rotateKey(),
      prune: (options) => real.prune(options),
      status: () => real.status(),
      close: () => real.close(),
    };
    return { ledger, letGo };
  }

  it("before its decision is on disk only a call runs that the operator declared read-only, whatever the tool declares", async () => {
    const { ledger, letGo } = await slowLedger();
    const ran: string[] = [];
    const server = started({ ledger, readOnlyTools: ["declared"] });
    const options = { ...open, annotations: { readOnlyHint: true } };
    for (const name of ["declared", "claimed"])
      server.tool(name, name, anything, () => String(ran.push(name)), options);
    const client = await connected(server);
    const claimed = client.callTool("claimed", {});
    expect(await client.callTool("declared", {})).toMatchObject({ content: [{ text: "1" }] });
    expect(ran).toEqual(["declared"]);
    letGo();
    await claimed;
    expect(ran).toEqual(["declared", "claimed"]);
  });
});
