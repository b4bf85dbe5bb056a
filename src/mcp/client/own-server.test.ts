// Our client and our server: every revision over every transport, and a gate at the other end.

import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { createGate, MemoryApprovals } from "../../policy/index.js";
import { createServer, permitAll, type RunOptions, type Server } from "../../server.js";
import { createTelemetry } from "../../telemetry/index.js";
import type { JsonValue } from "../index.js";
import type { Client } from "./client.js";
import { type ConnectTarget, connect } from "./connect.js";
import { ChallengeRequired, type McpError, PolicyViolation, ToolFailure } from "./errors.js";
import type { ConnectOptions } from "./options.js";

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

const telemetry = createTelemetry({ log: { level: "emergency" }, env: {} });

function serverWith(options: RunOptions = {}): Server & { ran: string[] } {
  const ran: string[] = [];
  const server = createServer("own", { policy: permitAll, telemetry, ...options })
    .tool("echo", "Says it again", z.object({ text: z.string() }), ({ text }) => text, { noGuardrailRequired: true })
    .tool(
      "pay",
      "Pays",
      z.object({ amount: z.int() }),
      ({ amount }) => {
        ran.push(`pay ${amount}`);
        return `paid ${amount}`;
      },
      { noGuardrailRequired: true },
    )
    .tool(
      "ask",
      "Asks who",
      z.object({}),
      async (_, context) => {
        const requestedSchema = { type: "object", properties: { name: { type: "string", default: "Ada" } } };
        const answer = await context.elicit("who", { message: "Who?", requestedSchema });
        return `Hello, ${(answer.content as { name: string }).name}`;
      },
      { noGuardrailRequired: true },
    )
    .tool(
      "break",
      "Breaks",
      z.object({}),
      () => {
        throw new Error("inside");
      },
      { noGuardrailRequired: true },
    )
    .resource("test://r", "r", () => "R")
    .prompt("p", "P", {}, () => "hi");
  open.push(server);
  return Object.assign(server, { ran });
}

async function connected(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const client = await connect(target, options);
  open.push(client);
  return client;
}

const handlers: ConnectOptions["handlers"] = {
  elicitation: (_, { withDefaults }) => ({ action: "accept", content: withDefaults() }),
};

const transports: [string, (server: Server) => Promise<ConnectTarget>][] = [
  ["memory", async (server) => server],
  ["http", async (server) => (await server.listen({ transport: "http", port: 0 })).url],
  ["tcp", async (server) => (await server.listen({ transport: "tcp", port: 0 })).url],
  ["websocket", async (server) => (await server.listen({ transport: "websocket", port: 0 })).url],
];
const revisions = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"] as const;

const nested = (levels: number): JsonValue => JSON.parse(`${"[".repeat(levels)}${"]".repeat(levels)}`);
/** Far below the timeout of a call: what fails, fails at once. */
const AT_ONCE = { timeoutMs: 60_000 };

describe.each(transports)("over %s a client that closes in the middle of a call", (_, serve) => {
  it.each(["2026-07-28", "2025-11-25"] as const)("in %s stops the tool", async (revision) => {
    const server = serverWith();
    let began = (): void => {};
    const running = new Promise<void>((resolve) => {
      began = resolve;
    });
    let ended = (_how: string): void => {};
    const end = new Promise<string>((resolve) => {
      ended = resolve;
    });
    server.tool(
      "slow",
      "Slow",
      z.object({}),
      async (_args, { signal }) => {
        began();
        const timer = setTimeout(() => ended("finished"), 3_000);
        signal.addEventListener("abort", () => ended("stopped"));
        await end;
        clearTimeout(timer);
        return "done";
      },
      { noGuardrailRequired: true },
    );
    const client = await connected(await serve(server), { revision });
    const call = client.callTool("slow").catch((error: McpError) => error.code);
    await running;
    await client.close();
    expect(await call).toBe("CANCELLED");
    expect(await end).toBe("stopped");
  });
});

describe.each(transports)("over %s an answer over the limit", (_, serve) => {
  it("over %s an answer over the limit is told as what it is, with what to do about it", async () => {
    const server = serverWith({ limits: { maxResultBytes: 2_000 } });
    const client = await connected(await serve(server));
    expect(await client.callTool("echo", { text: "x".repeat(3_000) })).toMatchObject({
      isError: true,
      content: [
        { text: expect.stringMatching(/`echo` ran, but its answer has 3\d+ bytes, over .* 2000: ask for less/) },
      ],
      structuredContent: { code: "TOOL_FAILURE", suggestions: ["Ask for less at once", "Raise maxResultBytes"] },
    });
  });
});

describe("what a handler returns", () => {
  it("what a handler returns is sent as it was checked, or not at all", async () => {
    const free = { noGuardrailRequired: true };
    const output = z.object({ b: z.number() });
    const server = serverWith();
    server
      .tool("nan", "NaN", z.object({}), () => ({ structuredContent: { b: Number.NaN } }), { ...free, output })
      .tool("json", "toJSON", z.object({}), () => ({ structuredContent: { b: 1, toJSON: () => ({ b: "x" }) } }), {
        ...free,
        output,
      })
      .tool("bare", "No text", z.object({}), () => ({ content: [{ type: "text" }] }) as never, free)
      .tool("wrote", "A part", z.object({}), (_, context) => context.write({ type: "text" } as never) as never, free);
    const client = await connected(server);
    for (const name of ["nan", "json", "bare", "wrote"]) {
      const result = await client.callTool(name);
      expect(result, name).toMatchObject({ isError: true, structuredContent: { code: "OUTPUT_INVALID" } });
    }
  });
});

describe("what is left out or misspelt", () => {
  it("names what is left out or misspelt: a caller, a transport", async () => {
    const server = serverWith();
    const client = await connected(server);
    await expect(client.callToolSecure("echo", { text: "a" }, undefined as never)).rejects.toThrow(
      /needs to know who calls: give \{ app: "…", agent: "…" \}/,
    );
    await expect(client.callToolSecure("echo", { text: "a" }, { app: "a" } as never)).rejects.toThrow(
      /`agent` is missing/,
    );
    await expect(server.listen({ transport: "ws" } as never)).rejects.toThrow(
      'there is no transport "ws"; known are "stdio", "http", "websocket" and "tcp"',
    );
  });
});

describe.each(transports)("over %s tools that come and go while it serves", (_, serve) => {
  it("over %s tools that come and go while it serves are listed and called under the policy that was given, and forgotten", async () => {
    const policy = `${permitAll} @id("never") forbid (principal, action == Action::"pay", resource);`;
    const server = serverWith({ policy });
    const changed: string[] = [];
    const client = await connected(await serve(server), { onListChanged: (kind) => changed.push(kind) });
    const names = async (): Promise<string[]> => (await client.listTools({ fresh: true })).map(({ name }) => name);
    const free = { noGuardrailRequired: true };
    server
      .tool("late", "Late", z.object({}), () => "here", free)
      .tool("later", "Later", z.object({}), () => "too", free);
    expect(await names()).toEqual(expect.arrayContaining(["echo", "late", "later"]));
    expect((await client.callTool("late")).content).toEqual([{ type: "text", text: "here" }]);
    const forbidden = await client.callTool("pay", { amount: 1 });
    expect(forbidden).toMatchObject({ isError: true, structuredContent: { rule: "never" } });
    // The rule that forbids `pay` outlives it, and what comes next is known all the same.
    server.removeTool("pay").tool("last", "Last", z.object({}), () => "yes", free);
    expect((await client.callTool("last")).content).toEqual([{ type: "text", text: "yes" }]);
    expect(await names()).not.toContain("pay");
    expect(changed).toContain("tools");
  });
});

describe.each(transports)("over %s what no reader would take", (_, serve) => {
  it.each([
    ["a lone surrogate", "\ud800", "/arguments/text"],
    ["an integer that loses digits", 2 ** 60, "/arguments/text"],
    ["NaN", Number.NaN, "/arguments/text"],
    ["200 levels", nested(200), "/arguments/text/0"],
  ])("fails before it is sent, with its path: %s", async (_name, text, path) => {
    const client = await connected(await serve(serverWith()));
    const error = (await client.callTool("echo", { text }, AT_ONCE).catch((e: unknown) => e)) as McpError;
    expect(error).toMatchObject({ family: "protocol", code: "INVALID_PARAMS" });
    expect(error.message).toContain(path);
    const secure = await connected(await serve(serverWith()), {
      gate: createGate({
        policy: permitAll,
        tools: [{ name: "echo", server: "server", inputSchema: { type: "object" } }],
      }),
      tools: { "*": { noGuardrailRequired: true } },
    });
    await expect(secure.callToolSecure("echo", { text }, { app: "a", agent: "b" })).rejects.toMatchObject({
      code: "INVALID_PARAMS",
    });
    const fine = await client.callTool("echo", { text: "fine" });
    expect(fine.isError).not.toBe(true);
  });

  it("over %s what no reader would take is a clear error when a tool answers with it, other calls or not", async () => {
    const server = serverWith();
    server.tool("deep", "Nested", z.object({}), () => ({ structuredContent: { deep: nested(200) } }), {
      noGuardrailRequired: true,
    });
    const client = await connected(await serve(server));
    const [deep, fine] = await Promise.all([
      client.callTool("deep", {}, AT_ONCE).catch((error: McpError) => error.message),
      client.callTool("echo", { text: "fine" }),
    ]);
    expect(JSON.stringify(deep)).toMatch(/nest/);
    expect(fine.content).toEqual([{ type: "text", text: "fine" }]);
  });
});

describe.each(transports)("over %s", (_, serve) => {
  it.each(revisions)("over %s in %s everything works [U2 G2]", async (revision) => {
    const client = await connected(await serve(serverWith()), { revision, handlers });
    expect(client.revision).toBe(revision);
    expect((await client.listTools()).map((tool) => tool.name)).toEqual(["echo", "pay", "ask", "break"]);
    expect(await client.callTool("echo", { text: "é\u2028" })).toMatchObject({ content: [{ text: "é\u2028" }] });
    expect(await client.callTool("break")).toMatchObject({ isError: true });
    expect(await client.callTool("pay", { amount: "much" })).toMatchObject({ isError: true });
    expect(await client.validate("pay", { amount: "much" })).toMatchObject({ valid: false });
    expect(await client.readResource("test://r")).toMatchObject({ contents: [{ text: "R" }] });
    expect((await client.getPrompt("p")).messages).toHaveLength(1);
    const settled = await client.batchCalls(["a", "b", "c"].map((text) => ({ name: "echo", arguments: { text } })));
    expect(settled.map((one) => one.status === "fulfilled" && one.value.content)).toMatchObject(
      ["a", "b", "c"].map((text) => [{ text }]),
    );
    if (revision !== "2025-03-26") {
      expect(await client.callTool("ask")).toMatchObject({ content: [{ text: "Hello, Ada" }] });
    }
    await client.ping();
    expect(client.stats).toEqual({ strayAnswers: 0, malformed: 0, unexpectedRequests: 0 });
  });

  it("agrees on the newest revision by itself", async () => {
    expect((await connected(await serve(serverWith()))).revision).toBe("2026-07-28");
  });
});

describe("a gate at the other end", () => {
  const policy = `
    @id("small") permit (principal, action == Action::"pay", resource) when { context.arguments.amount < 1000 };
    @id("lists") permit (principal, action, resource) when { resource is Method };
    @id("big") @outcome("challenge") @approvers("operators") @reason("big payments need a person")
    forbid (principal, action == Action::"pay", resource) when { context.arguments.amount >= 100 } unless { context.approved };
  `;
  const me = { app: "shop", agent: "alice" };
  const mine = createGate({
    policy: "permit (principal, action, resource);",
    tools: ["pay", "echo", "break"].map((name) => ({ name, server: "memory", inputSchema: true })),
  });
  const options: ConnectOptions = { gate: mine, tools: { "*": { noGuardrailRequired: true } } };

  it("denies, and the caller hears it as a policy violation with the server's own words", async () => {
    const server = serverWith({ policy });
    const client = await connected(server, options);
    const error = (await client.callToolSecure("echo", { text: "x" }, me).catch((e) => e)) as McpError;
    expect(error).toBeInstanceOf(PolicyViolation);
    expect(error).toMatchObject({ family: "policy", data: { error_type: expect.any(String) } });
    expect(error.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(server.ran).toEqual([]);
  });

  it.each(["2026-07-28", "2025-11-25"] as const)(
    "holds a call for a person, who is waited for, in %s",
    async (revision) => {
      const approvals = new MemoryApprovals();
      const server = serverWith({ policy, approvals });
      const client = await connected(server, { ...options, revision });
      const error = await client.callToolSecure("pay", { amount: 500 }, me).catch((e) => e);
      expect(error).toBeInstanceOf(ChallengeRequired);
      expect(error).toMatchObject({ message: "Action requires approval", challenge: { remote: true } });
      expect(server.ran).toEqual([]);
      const waiting = (error as ChallengeRequired).wait();
      await approvals.approve((error as ChallengeRequired).challenge.id, { name: "olga", groups: ["operators"] });
      expect(await waiting).toMatchObject({ content: [{ text: "paid 500" }] });
      expect(server.ran).toEqual(["pay 500"]);
    },
  );

  it("lets a tool fail as a tool failure", async () => {
    const client = await connected(serverWith(), options);
    const error = await client.callToolSecure("break", {}, me).catch((e) => e);
    expect(error).toBeInstanceOf(ToolFailure);
    expect(error).toMatchObject({ family: "tool", code: "TOOL_FAILURE" });
  });
});
