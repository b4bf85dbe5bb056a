// What no type can see, and what holds whatever the transport. The misuses that do not compile are in test/types.

import { afterEach, describe, expect, it } from "vitest";
import { createGate, MemoryApprovals } from "../../../policy/index.js";
import { createServer, permitAll, type Server } from "../../../server.js";
import { type ConnectTarget, connect } from "../connect.js";
import { ChallengeRequired, McpError, PolicyViolation, ProtocolError, ToolFailure } from "../errors.js";
import { createAgent, toolset } from "./agent.js";
import type { AgentConnectOptions } from "./connection.js";
import { fileServer, files } from "./fixtures/files.js";
import { GuardrailBlocked } from "./life.js";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

const pass = (): undefined => undefined;
const guardrails = { "fs.write": pass, "fs.remove": pass };
const WRITE = { path: "a", content: "b" };

function started(...options: Parameters<typeof fileServer>): ReturnType<typeof fileServer> {
  const server = fileServer(...options);
  cleanups.push(() => server.close());
  return server;
}

async function connected(target: ConnectTarget, options: AgentConnectOptions = {}) {
  const root = await createAgent("root", files, { app: "shop", guardrails }).connect(target, options);
  cleanups.push(() => root.close().catch(() => {}));
  return root;
}

async function failureOf(run: Promise<unknown> | (() => unknown)): Promise<McpError> {
  try {
    await (typeof run === "function" ? run() : run);
  } catch (error) {
    return error as McpError;
  }
  throw new Error("it did not fail");
}

const transports: [string, (server: Server) => Promise<ConnectTarget>][] = [
  ["memory", async (server) => server],
  ["http", async (server) => (await server.listen({ transport: "http", port: 0 })).url],
  ["tcp", async (server) => (await server.listen({ transport: "tcp", port: 0 })).url],
  ["websocket", async (server) => (await server.listen({ transport: "websocket", port: 0 })).url],
];

describe.each(transports)("over %s", (_, serve) => {
  it.each(["2026-07-28", "2025-11-25"] as const)("in %s an agent calls, delegates and ends", async (revision) => {
    const server = started();
    const root = await connected(await serve(server), { revision });
    expect(await root.call("fs.write", await root.guard("fs.write", WRITE))).toEqual({ bytes: 1 });
    const helper = root.delegate("helper", ["fs.read"]);
    expect(helper.capabilities).toEqual(["fs.read"]);
    const { content } = await helper.call("fs.read", helper.unchecked("fs.read", { path: "c" }));
    expect(content).toBe("of c");
    expect(server.ran).toEqual(["write a", "read c"]);
    const closed = await root.close();
    expect(closed.phase).toBe("closed");
    await expect(helper.guard("fs.read", { path: "c" })).rejects.toThrow(
      /agent `helper` is stale and cannot call `fs\.read`/,
    );
  });
});

it.each(["tcp", "websocket"] as const)("over %s an agent whose connection is lost is stale", async (transport) => {
  const server = started();
  let tell: (() => void) | undefined;
  const gone = new Promise<void>((resolve) => {
    tell = resolve;
  });
  const { url } = await server.listen({ transport, port: 0 });
  const root = await connected(url, { onClose: () => tell?.() });
  const unchecked = root.unchecked("fs.read", { path: "a" });
  await server.close();
  await gone;
  await expect(root.call("fs.read", unchecked)).rejects.toThrow(
    /agent `root` is stale and cannot call `fs\.read`: the connection/,
  );
  expect(server.ran).toEqual([]);
});

describe("a token", () => {
  it("a token is spent once, also by two calls at the same time [L8]", async () => {
    const server = started();
    const root = await connected(server);
    const token = await root.guard("fs.write", WRITE);
    const both = await Promise.allSettled([root.call("fs.write", token), root.call("fs.write", token)]);
    expect(both.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    const error = await failureOf(root.call("fs.write", token));
    expect(error).toBeInstanceOf(GuardrailBlocked);
    expect(error.message).toBe("`fs.write` was not called for agent `root`: the token is already spent");
    expect(error).toMatchObject({ code: "GUARDRAIL_BLOCKED", agent: "root", tool: "fs.write", retryable: false });
    expect(server.ran).toEqual(["write a"]);
  });

  it("a token that was refused for another agent is still good for its own", async () => {
    const server = started();
    const root = await connected(server);
    const helper = root.delegate("helper", ["fs.write"], { guardrails: { "fs.write": pass } });
    const token = await root.guard("fs.write", WRITE);
    await failureOf(helper.call("fs.write", token as never));
    await root.call("fs.write", token);
    expect(server.ran).toEqual(["write a"]);
  });

  it("calls with what the guardrails saw, whatever became of the object since", async () => {
    const server = started();
    const root = await connected(server);
    const args = { ...WRITE };
    const token = await root.guard("fs.write", args);
    args.path = "other";
    await root.call("fs.write", token);
    expect(server.ran).toEqual(["write a"]);
  });

  it("a token cannot be cloned, derived from or made to look real", async () => {
    const server = started();
    const root = await connected(server);
    const token = await root.guard("fs.write", WRITE);
    const fakes: unknown[] = [
      structuredClone(token),
      Object.create(token),
      Object.create(Object.getPrototypeOf(token)),
      JSON.parse(JSON.stringify(token)),
      new Proxy(token, {}),
      "token",
      1,
      true,
      [token],
    ];
    for (const fake of fakes) {
      expect((await failureOf(root.call("fs.write", fake as never))).message).toMatch(/is not a guardrail token/);
    }
    expect(server.ran).toEqual([]);
  });

  it("a token goes stale", async () => {
    const server = started();
    const root = await createAgent("root", files, { app: "shop", guardrails, tokenTtlMs: 1 }).connect(server);
    cleanups.push(() => root.close());
    const token = await root.guard("fs.write", WRITE);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect((await failureOf(root.call("fs.write", token))).message).toMatch(
      /older than 1 ms; ask the guardrails again/,
    );
    expect(server.ran).toEqual([]);
  });

  it("a token of one agent does not serve another that was given the same id later", async () => {
    const server = started();
    const root = await connected(server);
    const first = root.delegate("worker", ["fs.read"]);
    const unchecked = first.unchecked("fs.read", { path: "a" });
    await first.close();
    const second = root.delegate("worker", ["fs.read"]);
    expect((await failureOf(second.call("fs.read", unchecked))).message).toMatch(/the token is of agent `worker`/);
    expect(server.ran).toEqual([]);
  });
});

describe("guardrails", () => {
  it("guardrails block with their own words, as a domain error [L8]", async () => {
    const server = started();
    const seen: unknown[] = [];
    const agent = await createAgent("root", files, {
      app: "shop",
      guardrails: {
        "fs.write": ({ arguments: { path }, tool, agent: id }) => {
          seen.push([id, tool, path]);
          return path.startsWith("/etc") ? "not in /etc" : undefined;
        },
      },
    }).connect(server);
    cleanups.push(() => agent.close());
    const error = await failureOf(agent.guard("fs.write", { path: "/etc/passwd", content: "" }));
    expect(error).toBeInstanceOf(GuardrailBlocked);
    expect(error).not.toBeInstanceOf(ProtocolError);
    expect(error).toMatchObject({ family: "policy", message: "not in /etc", agent: "root", tool: "fs.write" });
    await agent.call("fs.write", await agent.guard("fs.write", WRITE));
    expect(seen).toEqual([
      ["root", "fs.write", "/etc/passwd"],
      ["root", "fs.write", "a"],
    ]);
    expect(server.ran).toEqual(["write a"]);
  });

  it("guardrails are not inherited: a child without its own gets no token [L8]", async () => {
    const root = await connected(started());
    const helper = root.delegate("helper", ["fs.write", "fs.read"]);
    const error = await failureOf(helper.guard("fs.write", WRITE));
    expect(error).toMatchObject({ rules: [{ id: "guardrail.missing" }] });
    expect(error.message).toMatch(/`fs\.write` has no guardrail callback for agent `shop\/helper`/);
    await helper.guard("fs.read", { path: "a" });
  });

  it("guardrails of a tool that needs none are still asked where the agent has them", async () => {
    const root = await connected(started());
    const strict = root.delegate("strict", ["fs.read"], { guardrails: { "*": () => "nothing today" } });
    expect((await failureOf(() => strict.unchecked("fs.read", { path: "a" }))).message).toMatch(
      /`fs\.read` needs a guardrail token of agent `strict`: this agent has a guardrail for it/,
    );
    expect((await failureOf(strict.guard("fs.read", { path: "a" }))).message).toBe("nothing today");
  });

  it("guardrails that throw have not said yes", async () => {
    const root = await connected(started());
    const broken = (): undefined => {
      throw new Error("broken");
    };
    const strict = root.delegate("strict", ["fs.read"], { guardrails: { "fs.read": broken } });
    expect((await failureOf(strict.guard("fs.read", { path: "a" }))).message).toMatch(/failed: broken/);
  });
});

describe("a stale agent", () => {
  it("the agent that connect was called on is stale", async () => {
    const server = started();
    const planned = createAgent("root", files, { app: "shop" });
    const root = await planned.connect(server);
    cleanups.push(() => root.close());
    const error = await failureOf(planned.connect(server));
    expect(error).toBeInstanceOf(ProtocolError);
    expect(error).toMatchObject({ code: "WRONG_PHASE", rules: [{ id: "agent.stale" }] });
    expect(error.message).toMatch(/agent `root` is stale and cannot connect: connect\(\) was called on it/);
  });

  it("a stale agent cannot be connected twice at the same time", async () => {
    const server = started();
    const planned = createAgent("root", files, { app: "shop" });
    const both = await Promise.allSettled([planned.connect(server), planned.connect(server)]);
    expect(both.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    if (both[0].status === "fulfilled") await both[0].value.close();
  });

  it("an agent whose connecting failed is not stale and can be connected again", async () => {
    const server = started();
    const planned = createAgent("root", files, { app: "shop" });
    const less = createServer({ name: "less", version: "1" }, { policy: permitAll });
    cleanups.push(() => less.close());
    const error = await failureOf(planned.connect(less));
    expect(error).toMatchObject({ code: "TOOL_NOT_FOUND" });
    expect(error.message).toMatch(/holds `fs\.read`, `fs\.write`, `fs\.remove`, which the server does not offer/);
    await (await planned.connect(server)).close();
  });

  it("an agent that handed over is stale, with all it had delegated; the connection continues [L7]", async () => {
    const server = started();
    const root = await connected(server);
    const child = root.delegate("child", ["fs.read"]);
    const token = await root.guard("fs.write", WRITE);
    const next = root.handOver("next", ["fs.read", "fs.write"], { guardrails: { "fs.write": pass } });
    expect((await failureOf(root.call("fs.write", token))).message).toBe(
      "agent `root` is stale and cannot call `fs.write`: it handed over to agent `next`",
    );
    await expect(root.guard("fs.write", WRITE)).rejects.toThrow(/stale/);
    expect(() => root.delegate("other", ["fs.read"])).toThrow(/stale and cannot delegate `fs\.read`/);
    expect((await failureOf(() => child.unchecked("fs.read", { path: "a" }))).message).toMatch(
      /agent `child` is stale.*agent `root`, which delegated to it, is over/,
    );
    await next.call("fs.write", await next.guard("fs.write", WRITE));
    expect(server.ran).toEqual(["write a"]);
    await next.close();
    await expect(next.guard("fs.write", WRITE)).rejects.toThrow(/stale/);
  });

  it("an agent whose delegating agent is closed is stale, however far up", async () => {
    const server = started();
    const root = await connected(server);
    const a = root.delegate("a", ["fs.read"]);
    const b = a.delegate("b", ["fs.read"]);
    const unchecked = b.unchecked("fs.read", { path: "x" });
    const sibling = root.delegate("sibling", ["fs.read"]);
    await a.close();
    expect((await failureOf(b.call("fs.read", unchecked))).message).toMatch(/agent `b` is stale and cannot call/);
    await sibling.call("fs.read", sibling.unchecked("fs.read", { path: "y" }));
    expect(server.ran).toEqual(["read y"]);
  });

  it("stops what it was doing", async () => {
    const set = toolset<{ wait: { args: object; result: unknown } }>()({
      names: ["wait"],
      noGuardrailRequired: ["wait"],
    });
    let stopped: (() => void) | undefined;
    const wasStopped = new Promise<void>((resolve) => {
      stopped = resolve;
    });
    let running: (() => void) | undefined;
    const isRunning = new Promise<void>((resolve) => {
      running = resolve;
    });
    const server = createServer({ name: "slow", version: "1" }, { policy: permitAll }).tool(
      "wait",
      "Waits",
      { type: "object" },
      (__, { signal }) =>
        new Promise<string>((resolve) => {
          running?.();
          signal.addEventListener("abort", () => {
            stopped?.();
            resolve("stopped");
          });
        }),
      { noGuardrailRequired: true },
    );
    cleanups.push(() => server.close());
    const root = await createAgent("root", set, { app: "shop" }).connect(server);
    cleanups.push(() => root.close());
    const worker = root.delegate("worker", ["wait"]);
    const call = failureOf(worker.call("wait", worker.unchecked("wait", {})));
    await isRunning;
    await worker.close();
    expect(await call).toMatchObject({ code: "CANCELLED" });
    await wasStopped;
  });
});

describe("the gate of the connection", () => {
  const policy = `
    @id("reads") permit (principal, action == Action::"fs.read", resource);
    @id("writes") permit (principal, action == Action::"fs.write", resource) when { context.arguments.path like "ok/*" };
    @id("big") @outcome("challenge") @approvers("operators")
    forbid (principal, action == Action::"fs.write", resource) when { context.arguments.content == "big" } unless { context.approved };
  `;

  it("decides by the policy that was given, checked against the server's tools", async () => {
    const server = started();
    const root = await connected(server, { policy });
    const error = await failureOf(root.call("fs.write", await root.guard("fs.write", WRITE)));
    expect(error).toBeInstanceOf(PolicyViolation);
    expect(error.code).toBe("POLICY_DENY");
    await root.call("fs.write", await root.guard("fs.write", { path: "ok/a", content: "b" }));
    expect(server.ran).toEqual(["write ok/a"]);
    await expect(
      connected(server, { policy: 'permit (principal, action == Action::"fs.format", resource);' }),
    ).rejects.toThrow(/fs\.format/);
    await expect(connected(server, { policy, gate: createGate() })).rejects.toThrow(/not both/);
  });

  it("denies everything when it has no policy", async () => {
    const root = await connected(started(), { gate: createGate() });
    const error = await failureOf(root.call("fs.write", await root.guard("fs.write", WRITE)));
    expect(error.message).toMatch(/no policy is loaded/);
  });

  it("lets a person be waited for, with the token that was spent", async () => {
    const server = started();
    const approvals = new MemoryApprovals();
    const summaries = [{ name: "fs.write", server: "server", inputSchema: true as const }];
    const gate = createGate({ policy: policy.replace(/@id\("reads"\).*\n/, ""), tools: summaries, approvals });
    const root = await connected(server, { gate });
    const token = await root.guard("fs.write", { path: "ok/a", content: "big" });
    const error = await failureOf(root.call("fs.write", token));
    expect(error).toBeInstanceOf(ChallengeRequired);
    expect((await failureOf(root.call("fs.write", token))).message).toMatch(/already spent/);
    const waiting = (error as ChallengeRequired).wait();
    await approvals.approve((error as ChallengeRequired).challenge.id, { name: "olga", groups: ["operators"] });
    expect(await waiting).toMatchObject({ structuredContent: { bytes: 3 } });
    expect(server.ran).toEqual(["write ok/a"]);
  });

  it("refuses who calls in an agent's name without its token, also while the agent itself calls [L10]", async () => {
    const server = started();
    const tools = ["fs.read", "fs.write", "fs.remove"].map((name) => ({ name, server: "server", inputSchema: true }));
    const gate = createGate({ policy: permitAll, tools });
    const root = await connected(server, { gate });
    const aside = await connect(server, { gate, server: "server", tools: { "*": { noGuardrailRequired: true } } });
    cleanups.push(() => aside.close());
    const me = { app: "shop", agent: "root" };
    const error = await failureOf(aside.callToolSecure("fs.remove", { path: "a" }, me));
    expect(error).toMatchObject({ code: "GUARDRAIL_BLOCKED", rules: [{ id: "guardrail.token" }] });
    const token = await root.guard("fs.write", WRITE);
    const [own, other] = await Promise.allSettled([
      root.call("fs.write", token),
      aside.callToolSecure("fs.write", { path: "other", content: "" }, me),
    ]);
    expect([own.status, other.status]).toEqual(["fulfilled", "rejected"]);
    expect(server.ran).toEqual(["write a"]);
    // A caller in a name that no agent has is checked by policy alone.
    await aside.callToolSecure("fs.read", { path: "z" }, { app: "shop", agent: "someone" });
  });

  it("the gate of the connection at the other end has its say", async () => {
    const server = started({ policy: 'permit (principal, action == Action::"fs.read", resource);' });
    const set = toolset<{ "fs.read": { args: { path: string }; result: { content: string } } }>()({
      names: ["fs.read"],
    });
    const root = await createAgent("root", set, { app: "shop", guardrails: { "*": pass } }).connect(server);
    cleanups.push(() => root.close());
    expect(await root.call("fs.read", await root.guard("fs.read", { path: "a" }))).toEqual({ content: "of a" });
    // What the server would never let run is not offered, and so no agent starts out holding it.
    await expect(connected(server)).rejects.toThrow(/holds `fs\.write`, `fs\.remove`, which the server does not offer/);
  });
});

describe("agents", () => {
  it("agents have one name each, on one gate", async () => {
    const gate = createGate({ policy: permitAll });
    const server = started();
    const root = await connected(server, { gate });
    root.delegate("helper", ["fs.read"]);
    expect(() => root.delegate("helper", ["fs.read"])).toThrow(/there is an agent `helper` already/);
    await expect(connected(server, { gate })).rejects.toThrow(/there is an agent `root` already/);
    await root.close();
    await connected(server, { gate });
  });

  it("agents are bounded", async () => {
    const root = await createAgent("root", files, { app: "shop", maxAgents: 3 }).connect(started());
    cleanups.push(() => root.close());
    const spawn = (n: number) => root.delegate(`worker-${n}` as const, ["fs.read"]);
    const first = spawn(1);
    spawn(2);
    expect(() => spawn(3)).toThrow(/3 agents live on this connection; end some or raise maxAgents/);
    await first.close();
    spawn(3);
    expect(() => root.delegate("x".repeat(300) as "x", ["fs.read"])).toThrow(/1 to 256 characters/);
  });

  it("agents of the same type are distinguished at run time", async () => {
    const root = await connected(started());
    const [one, two] = [1, 2].map((n) => root.delegate(`worker-${n}` as const, ["fs.read"]));
    const unchecked = one?.unchecked("fs.read", { path: "a" });
    await expect(two?.call("fs.read", unchecked as never)).rejects.toThrow(/the token is of agent `worker-1`/);
  });

  it("agents get the whole result of a tool without an output schema, and never one that breaks its promise", async () => {
    const set = toolset<{ say: { args: object; result: unknown } }>()({ names: ["say"], noGuardrailRequired: ["say"] });
    const server = createServer({ name: "t", version: "1" }, { policy: permitAll }).tool(
      "say",
      "Says",
      { type: "object" },
      () => "hello",
      { noGuardrailRequired: true },
    );
    cleanups.push(() => server.close());
    const root = await createAgent("root", set, { app: "shop" }).connect(server);
    cleanups.push(() => root.close());
    expect(await root.call("say", root.unchecked("say", {}))).toMatchObject({ content: [{ text: "hello" }] });
  });

  it("agents receive the failure of a tool", async () => {
    const set = toolset<{ fail: { args: object; result: unknown } }>()({
      names: ["fail"],
      noGuardrailRequired: ["fail"],
    });
    const server = createServer({ name: "t", version: "1" }, { policy: permitAll }).tool(
      "fail",
      "Fails",
      { type: "object" },
      () => {
        throw new Error("inside");
      },
      { noGuardrailRequired: true },
    );
    cleanups.push(() => server.close());
    const root = await createAgent("root", set, { app: "shop" }).connect(server);
    cleanups.push(() => root.close());
    expect(await failureOf(root.call("fail", root.unchecked("fail", {})))).toBeInstanceOf(ToolFailure);
  });

  it.each([
    ["undefined inside", { path: undefined }],
    ["a date", { path: new Date(0) }],
    ["not a number", { path: Number.NaN }],
    ["an array", ["a"]],
    ["nothing", null],
  ])("agents send only JSON: not %s", async (__, args) => {
    const root = await connected(started());
    const error = await failureOf(root.guard("fs.read", args as never));
    expect(error).toMatchObject({ code: "INVALID_PARAMS" });
    expect(error.message).toMatch(/the arguments of `fs\.read` cannot be sent/);
  });
});
