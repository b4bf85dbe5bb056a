import { setTimeout as sleep } from "node:timers/promises";
import { request as httpRequest } from "undici";
import { afterEach, describe, expect, it, vi } from "vitest";
import { META, RetainedBytes } from "../mcp/index.js";
import { listenMemory } from "../mcp/transports/index.js";
import { Cancel } from "../pipeline/cancel.js";
import { StateCipher } from "../pipeline/encrypted-state.js";
import { DEFAULT_GATEWAY_LIMITS } from "../pipeline/types.js";
import { createServer, permitAll, type RunOptions, type Server } from "../server.js";
import { Sessions } from "./sessions.js";

const open = { noGuardrailRequired: true } as const;
const none = { type: "object", properties: {} } as const;
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

function testServer(options: RunOptions = {}): Server {
  const server = createServer({ name: "t", version: "1" }, { policy: permitAll, ...options });
  servers.push(server);
  server
    .tool("echo", "echoes", { type: "object", properties: { x: {} } }, ({ x }) => JSON.stringify(x ?? null), open)
    .tool("slow", "waits", none, (_args, { signal }) => sleep(60_000, "late", { signal }), open)
    .tool("hang", "never ends", none, () => new Promise<string>(() => {}), { ...open, timeoutMs: 60 })
    .tool(
      "twice",
      "calls echo twice",
      none,
      async (_args, context) => {
        await context.call("echo", { x: 1 });
        return (await context.call("echo", { x: 2 })).content;
      },
      open,
    )
    .tool("forever", "calls itself", none, async (_args, context) => (await context.call("forever", {})).content, open)
    .tool("liar", "breaks its schema", none, () => ({ structuredContent: { n: "no number" } }) as never, {
      ...open,
      output: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
    })
    .tool(
      "stream",
      "streams",
      none,
      async (_args, context) => {
        for (let i = 0; i < 3; i++) await context.write(`part ${i};`);
        return "end";
      },
      open,
    )
    .tool(
      "ask",
      "asks",
      none,
      async (_args, context) => {
        const answer = await context.elicit("name", {
          message: "?",
          requestedSchema: { type: "object", properties: {} },
        });
        return JSON.stringify(answer);
      },
      open,
    )
    .resource("t://r", "r", "text");
  return server;
}

/** A raw line to a server in memory: what is sent is text, what comes is every message in order. */
async function rawLine(server: Server) {
  const transport = (await listenMemory(server.handler)).client();
  const heard: Record<string, never>[] = [];
  const waiting: ((message: never) => void)[] = [];
  await transport.start({
    message: (text) => {
      const message = JSON.parse(text);
      heard.push(message);
      waiting.shift()?.(message as never);
    },
    closed: () => {},
  });
  const next = (): Promise<any> => new Promise((resolve) => waiting.push(resolve));
  const send = (message: unknown): Promise<unknown> =>
    transport.send(typeof message === "string" ? message : JSON.stringify(message));
  const ask = async (method: string, params?: object, id: unknown = 1): Promise<any> => {
    const answer = next();
    await send({ jsonrpc: "2.0", id, method, ...(params ? { params } : {}) });
    return answer;
  };
  const handshake = async (revision = "2025-11-25", capabilities = {}): Promise<void> => {
    await ask("initialize", { protocolVersion: revision, capabilities, clientInfo: { name: "c", version: "1" } });
    await send({ jsonrpc: "2.0", method: "notifications/initialized" });
  };
  return { ask, send, next, handshake, heard, close: () => transport.close() };
}

const modern = (params: object = {}, capabilities = {}): object => ({
  ...params,
  _meta: { [META.protocolVersion]: "2026-07-28", [META.clientCapabilities]: capabilities },
});
const callOf = (name: string, args: object = {}): object => ({ name, arguments: args });

describe("phases of a handshake connection", () => {
  it("phases of a handshake connection allow nothing but ping before the handshake is done [L7]", async () => {
    const line = await rawLine(testServer());
    expect(await line.ask("tools/list")).toMatchObject({ error: { code: -32600, data: { code: "WRONG_PHASE" } } });
    expect(await line.ask("ping")).toMatchObject({ result: {} });
    await line.ask("initialize", { protocolVersion: "2025-11-25", capabilities: {} });
    expect(await line.ask("tools/call", callOf("echo"))).toMatchObject({ error: { data: { code: "WRONG_PHASE" } } });
    await line.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    expect(await line.ask("tools/call", callOf("echo", { x: 1 }))).toMatchObject({
      result: { content: [{ text: "1" }] },
    });
    expect(await line.ask("initialize", {})).toMatchObject({ error: { data: { code: "WRONG_PHASE" } } });
  });

  it("phases of a handshake connection answer an unknown revision with the newest of the handshake era", async () => {
    const line = await rawLine(testServer());
    const asked = await line.ask("initialize", { protocolVersion: "1999-01-01", capabilities: {} });
    expect(asked.result.protocolVersion).toBe("2025-11-25");
  });

  it("phases of a handshake connection do not exist for 2026-07-28, where every request speaks for itself [L7]", async () => {
    const line = await rawLine(testServer());
    const answer = await line.ask("tools/call", modern(callOf("echo", { x: [1] })));
    expect(answer.result).toMatchObject({ content: [{ text: "[1]" }], resultType: "complete" });
    expect(await line.ask("initialize", modern())).toMatchObject({ error: { code: -32601 } });
  });
});

describe("messages", () => {
  it("messages keep their ids, strings and numbers alike [U1]", async () => {
    const line = await rawLine(testServer());
    for (const id of [0, -5, "", 'a\u2028"\\', 9007199254740991]) {
      expect((await line.ask("tools/call", modern(callOf("echo")), id)).id).toBe(id);
    }
  });

  it.each([
    ["{", -32700],
    ['{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700],
    ["[]", -32600],
    ["[{}]", -32600],
    ['"x"', -32600],
    ['{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600],
    ['{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600],
    [`{"jsonrpc":"2.0","id":1,"method":"ping","params":${"[".repeat(200)}${"]".repeat(200)}}`, -32700],
  ])("answers a malformed message with an error, and the connection continues: %s", async (text, code) => {
    const line = await rawLine(testServer());
    const answer = line.next();
    await line.send(text);
    expect((await answer).error.code).toBe(code);
    expect(await line.ask("ping")).toMatchObject({ result: {} });
  });

  it.each([
    ["a lone surrogate", String.raw`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"\ud800"}}`, 7],
    ["duplicate keys", '{"method":"ping","params":{"x":1,"x":2},"jsonrpc":"2.0","id":"a"}', "a"],
    ["an integer that loses digits", '{"jsonrpc":"2.0","id":8,"method":"ping","params":{"x":90071992547409931}}', 8],
    ["too deep", `{"params":{"x":${"[".repeat(200)}${"]".repeat(200)}},"id":9,"method":"ping","jsonrpc":"2.0"}`, 9],
    ["too many values", `{"jsonrpc":"2.0","id":10,"method":"ping","params":{"x":[${"0,".repeat(60_000)}0]}}`, 10],
    ["two ids", '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', null],
    ["two ids in two spellings", String.raw`{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}`, null],
    ["an id inside only", '{"jsonrpc":"2.0","method":"ping","params":{"id":1,"id":2}}', null],
    ["an answer, not a request", '{"jsonrpc":"2.0","id":1,"result":{"x":1,"x":2}}', null],
    ["not JSON", '{"jsonrpc":"2.0","id":1,"method":"ping"', null],
  ])("messages are refused with the id that can be read: %s [M1]", async (_, sent, id) => {
    const line = await rawLine(testServer());
    const answer = line.next();
    await line.send(sent);
    expect(await answer).toMatchObject({ id, error: { code: -32700 } });
  });

  it("messages in a batch are answered together where the revision has batches, within the bound [U13]", async () => {
    const line = await rawLine(testServer());
    await line.handshake("2025-03-26");
    const batch = [
      { jsonrpc: "2.0", id: 1, method: "tools/call", params: callOf("echo", { x: 1 }) },
      { jsonrpc: "2.0", method: "notifications/x" },
      { jsonrpc: "2.0", id: "2", method: "unknown" },
      7,
    ];
    const answer = line.next();
    await line.send(batch);
    expect((await answer) as unknown).toMatchObject([
      { id: 1, result: { content: [{ text: "1" }] } },
      { id: "2", error: { code: -32601 } },
      { id: null, error: { code: -32600 } },
    ]);
    const many = line.next();
    await line.send(Array.from({ length: 101 }, (_, id) => ({ jsonrpc: "2.0", id, method: "ping" })));
    expect((await many).error.data.reason).toContain("1 to 100");
    const other = await rawLine(testServer());
    await other.handshake("2025-11-25");
    const refused = other.next();
    await other.send(batch);
    expect((await refused).error.data.reason).toContain("2025-03-26");
  });

  it("messages with an id that is under way are refused, and so are more than the bound allows", async () => {
    const line = await rawLine(testServer({ limits: { maxOpenRequests: 2 } }));
    await line.handshake();
    await line.send({ jsonrpc: "2.0", id: 7, method: "tools/call", params: callOf("slow") });
    expect((await line.ask("tools/call", callOf("slow"), 7)).error.data.reason).toContain("already in flight");
    await line.send({ jsonrpc: "2.0", id: 8, method: "tools/call", params: callOf("slow") });
    expect((await line.ask("tools/call", callOf("echo"), 9)).error.data.code).toBe("TOO_MANY");
    void line.close();
  });
});

describe("a call", () => {
  it("a call that the client cancels is stopped and not answered [M1]", async () => {
    const line = await rawLine(testServer());
    await line.handshake();
    const answer = line.next();
    await line.send({ jsonrpc: "2.0", id: 5, method: "tools/call", params: callOf("slow") });
    await line.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5, reason: "enough" } });
    // Its id is free again, and what comes next is the answer to the next request.
    await line.send({ jsonrpc: "2.0", id: 6, method: "ping" });
    expect(await answer).toMatchObject({ id: 6, result: {} });
    await vi.waitFor(async () => {
      const again = await line.ask("tools/call", callOf("echo", { x: 1 }), 5);
      expect(again).toMatchObject({ id: 5, result: { content: [{ text: "1" }] } });
    }, 60_000);
  });

  it("a call that runs out of time is stopped and says so [G5]", async () => {
    const line = await rawLine(testServer());
    const answer = await line.ask("tools/call", modern(callOf("hang")));
    expect(answer.result.isError).toBe(true);
    expect(answer.result.structuredContent).toMatchObject({
      code: "TIMEOUT",
      tool_name: "hang",
      timeout_ms: 60,
      timedOut: true,
      retryable: true,
    });
    expect(answer.result.structuredContent.suggestions.length).toBeGreaterThan(0);
  });

  it("a call that crashes can be retried, and its author can name a page about the error [G4]", async () => {
    const failing = (documentationUrl: unknown) => () => {
      throw Object.assign(new Error("disk full"), { documentationUrl });
    };
    const open = { noGuardrailRequired: true };
    const server = createServer("crashing", { policy: "permit (principal, action, resource);" })
      .tool("own", "", {}, failing("https://example.com/disk"), open)
      .tool("script", "", {}, failing("javascript:alert(1)"), open);
    const line = await rawLine(server);
    const own = await line.ask("tools/call", modern(callOf("own")));
    expect(own.result.structuredContent).toMatchObject({
      code: "TOOL_FAILURE",
      retryable: true,
      documentation_url: "https://example.com/disk",
    });
    const script = await line.ask("tools/call", modern(callOf("script")));
    expect(script.result.structuredContent.documentation_url).toBe("/docs/errors#tool_failure");
  });

  it("a call to a tool that calls tools passes the gate at every step, to a bounded depth [G1]", async () => {
    const policy = 'permit (principal, action in [Action::"twice", Action::"forever"], resource);';
    const denied = await rawLine(testServer({ policy }));
    const answer = await denied.ask("tools/call", modern(callOf("twice")));
    expect(answer.result).toMatchObject({ isError: true, structuredContent: { code: "POLICY_DENY" } });
    const deep = await denied.ask("tools/call", modern(callOf("forever")));
    expect(JSON.stringify(deep)).toContain("nested call depth exceeds 8");
    const allowed = await rawLine(testServer());
    expect((await allowed.ask("tools/call", modern(callOf("twice")))).result.content[0].text).toBe("2");
  });

  it("a call whose tool breaks its own output schema fails", async () => {
    const line = await rawLine(testServer());
    const answer = await line.ask("tools/call", modern(callOf("liar")));
    expect(answer.result).toMatchObject({ isError: true, structuredContent: { code: "OUTPUT_INVALID" } });
  });

  it.each([
    ["2025-11-25", "liar"],
    ["2025-06-18", "liar"],
    ["2025-03-26", "liar"],
    ["2025-03-26", "hang"],
  ])(
    "a call that fails in %s is told in full in the text of `%s`, where structured content would not do",
    async (revision, name) => {
      const line = await rawLine(testServer());
      await line.handshake(revision);
      const { result } = await line.ask("tools/call", callOf(name));
      expect(result.isError).toBe(true);
      expect(result).not.toHaveProperty("structuredContent");
      const told = JSON.parse(result.content.at(-1).text);
      expect(told).toMatchObject({
        code: name === "liar" ? "OUTPUT_INVALID" : "TIMEOUT",
        suggestions: expect.any(Array),
      });
      expect(told).toEqual(result._meta["portcullis/error"]);
      expect(result.content[0].text).toContain(told.reason);
    },
  );

  it("streams its parts as progress and joins them in the answer [G7]", async () => {
    const line = await rawLine(testServer());
    await line.handshake();
    const coming = [line.next(), line.next(), line.next(), line.next()];
    await line.send({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { ...callOf("stream"), _meta: { progressToken: "p" } },
    });
    const messages = await Promise.all(coming);
    expect(messages.slice(0, 3).map((message) => message.params.message)).toEqual(["part 0;", "part 1;", "part 2;"]);
    expect(messages[3].result.content).toEqual([
      { type: "text", text: "part 0;part 1;part 2;" },
      { type: "text", text: "end" },
    ]);
  });

  it("carries unknown parameters in its intent, and never the caller's own credential", async () => {
    const seen: string[] = [];
    const guardrails = [
      { id: "look", agent: "*", tool: "*", callback: (call: object) => void seen.push(JSON.stringify(call)) },
    ];
    const line = await rawLine(testServer({ guardrails }));
    const answer = line.next();
    await line.send({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: modern({ ...callOf("echo", { x: 1 }), future: { a: 1 } }),
      auth: { type: "bearer", token: "sk-secret" },
    });
    expect((await answer).result.content[0].text).toBe("1");
    expect(seen.join()).not.toContain("sk-secret");
  });

  it("a call is validated without running by tools/validate [G2]", async () => {
    const server = testServer();
    let ran = 0;
    server.tool(
      "strict",
      "s",
      { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      () => String(ran++),
      open,
    );
    const line = await rawLine(server);
    expect((await line.ask("tools/validate", modern(callOf("strict", { n: 1 })))).result).toMatchObject({
      valid: true,
    });
    const wrong = (await line.ask("tools/validate", modern(callOf("strict", { n: "x" })))).result;
    expect(wrong).toMatchObject({ valid: false, problems: [{ path: "/n" }] });
    expect((await line.ask("tools/validate", modern(callOf("unknown")))).error.data.code).toBe("TOOL_NOT_FOUND");
    expect(ran).toBe(0);
  });
});

describe("a question in 2026-07-28", () => {
  const withForms = { elicitation: {} };
  const begin = async (server: Server) => {
    const line = await rawLine(server);
    const first = (await line.ask("tools/call", modern(callOf("ask"), withForms))).result;
    expect(first).toMatchObject({
      resultType: "input_required",
      inputRequests: { name: { method: "elicitation/create" } },
    });
    const again = (requestState: unknown, args = {}) =>
      line.ask(
        "tools/call",
        modern(
          { ...callOf("ask", args), inputResponses: { name: { action: "accept", content: { n: 1 } } }, requestState },
          withForms,
        ),
      );
    return { state: first.requestState as string, again };
  };

  it("keeps its state through an attempt that policy denies, and is then answered once", async () => {
    const server = testServer({
      policy: `permit (principal, action, resource);
        forbid (principal, action == Action::"ask", resource)
        when { context.forwarded has inputResponses && context.forwarded.inputResponses.name.content.n == 2 };`,
    });
    const line = await rawLine(server);
    const first = (await line.ask("tools/call", modern(callOf("ask"), withForms))).result;
    const again = (n: number) =>
      line.ask(
        "tools/call",
        modern(
          {
            ...callOf("ask"),
            inputResponses: { name: { action: "accept", content: { n } } },
            requestState: first.requestState,
          },
          withForms,
        ),
      );
    expect((await again(2)).result).toMatchObject({ isError: true, structuredContent: { code: "POLICY_DENY" } });
    expect((await again(1)).result.content[0].text).toContain('"n":1');
    expect((await again(1)).error.data.reason).toContain("already used");
    expect((await again(2)).result).toMatchObject({ isError: true, structuredContent: { code: "POLICY_DENY" } });
  });

  it("a question in 2026-07-28 has one use in common with the approval request that it led to", async () => {
    const cipher = new StateCipher();
    const { use } = await cipher.decrypt("call", cipher.encrypt("call", { responses: {} }));
    const asked = await cipher.decrypt("call", cipher.encrypt("call", { responses: {} }, use));
    await cipher.use(asked.use);
    await expect(cipher.use(use)).rejects.toThrow("already used");
    // The call was not started: the ledger could not be written, or the server was not reached.
    await cipher.restore(asked.use);
    await cipher.use(use);
    await expect(cipher.use(asked.use)).rejects.toThrow("already used");
  });

  it("a question in 2026-07-28 is answered once by many attempts at the same time", async () => {
    const { state, again } = await begin(testServer());
    const answers = await Promise.all(Array.from({ length: 20 }, () => again(state)));
    expect(answers.filter(({ result }) => result !== undefined)).toHaveLength(1);
  });

  it("a question in 2026-07-28 is answered by repeating the call with the sealed state, once", async () => {
    const { state, again } = await begin(testServer());
    expect((await again(state)).result.content[0].text).toContain('"n":1');
    expect((await again(state)).error.data.reason).toContain("already used");
  });

  it("a question in 2026-07-28 cannot be answered with a state that was changed, or belongs to another call or server", async () => {
    const { state, again } = await begin(testServer());
    const other = await begin(testServer());
    const flipped = (state.startsWith("A") ? "B" : "A") + state.slice(1);
    for (const wrong of [flipped, `${state}A`, other.state, "", 5, "x".repeat(10_000)]) {
      expect((await again(wrong)).error.data.reason).toContain("`requestState` is not valid");
    }
    expect((await again(state, { other: 1 })).error?.data.reason).toContain("another call");
  });

  it("a question in 2026-07-28 is not asked of a client that did not say it can answer", async () => {
    const line = await rawLine(testServer());
    const answer = await line.ask("tools/call", modern(callOf("ask")));
    expect(answer.error).toMatchObject({ code: -32021, data: { requiredCapabilities: { elicitation: {} } } });
  });
});

describe("lists", () => {
  const policy = `
    @id("a") permit (principal, action == Action::"echo", resource);
    @id("b") permit (principal, action == Action::"slow", resource);
    @id("c") @outcome("challenge") forbid (principal, action == Action::"slow", resource) unless { context.approved };`;

  it("lists show what may be called, mark what asks a person, and hide the rest [G2]", async () => {
    const line = await rawLine(testServer({ policy }));
    const { tools, cacheScope } = (await line.ask("tools/list", modern())).result;
    expect(tools.map((tool: { name: string }) => tool.name)).toEqual(["echo", "slow"]);
    expect(tools[1]._meta).toEqual({ "portcullis/outlook": "challenge" });
    expect(cacheScope).toBe("private");
    expect((await line.ask("resources/list", modern())).result.resources).toEqual([]);
  });

  it("lists come in pages whose cursors cannot be made up", async () => {
    const server = testServer({ limits: { pageSize: 3 } });
    const line = await rawLine(server);
    const names: string[] = [];
    let cursor: string | undefined;
    for (let page = 0; page < 10; page++) {
      const { result } = await line.ask("tools/list", modern(cursor ? { cursor } : {}));
      names.push(...result.tools.map((tool: { name: string }) => tool.name));
      cursor = result.nextCursor;
      if (!cursor) break;
    }
    expect(names).toEqual([...server.tools.keys()]);
    for (const wrong of ["x", "", 5, "MC45OTk"]) {
      expect((await line.ask("tools/list", modern({ cursor: wrong }))).error.code).toBe(-32602);
    }
  });

  it("lists give one agent a part of the listen streams of its application", async () => {
    const server = testServer({ limits: { maxListenStreams: 8 } });
    const line = await rawLine(server);
    const listen = async (id: number): Promise<Record<string, unknown>> => {
      const answer = line.next();
      const params = modern({ notifications: { toolsListChanged: true } });
      await line.send({ jsonrpc: "2.0", id, method: "subscriptions/listen", params });
      return answer;
    };
    for (const id of [1, 2]) expect(await listen(id)).toHaveProperty("method");
    expect(await listen(3)).toMatchObject({ id: 3, error: { message: expect.stringContaining("this agent") } });
    const cancelled = { jsonrpc: "2.0", method: "notifications/cancelled", params: modern({ requestId: 1 }) };
    await line.send(cancelled);
    expect(await listen(4)).toHaveProperty("method");
  });

  it("announces changes to sessions and to listen streams, and to no other client", async () => {
    const server = testServer();
    const session = await rawLine(server);
    await session.handshake();
    const listener = await rawLine(server);
    const acknowledged = listener.next();
    await listener.send({
      jsonrpc: "2.0",
      id: "sub",
      method: "subscriptions/listen",
      params: modern({ notifications: { toolsListChanged: true, resourceSubscriptions: ["t://r"] } }),
    });
    expect(await acknowledged).toMatchObject({
      method: "notifications/subscriptions/acknowledged",
      params: { notifications: { toolsListChanged: true }, _meta: { [META.subscriptionId]: "sub" } },
    });
    const heard = [session.next(), listener.next()];
    server.tool("new", "n", none, () => "n", open);
    for (const message of await Promise.all(heard)) {
      expect(message).toMatchObject({ method: "notifications/tools/list_changed" });
    }
    const updated = listener.next();
    server.changed("t://r");
    expect(await updated).toMatchObject({ method: "notifications/resources/updated", params: { uri: "t://r" } });
    // The session did not subscribe to the resource: its next message is the answer to its own question.
    expect(await session.ask("ping")).toMatchObject({ id: 1, result: {} });
  });
});

describe("a listen stream", () => {
  it("a listen stream is granted only the resources that may be followed, each decided as a subscription is", async () => {
    const policy = `permit (principal, action, resource);
      forbid (principal, action == Action::"resources/subscribe", resource == Resource::"t://closed");`;
    const server = createServer({ name: "s", version: "1" }, { policy });
    servers.push(server);
    server.resource("t://open", "open", "o").resource("t://closed", "closed", "c");
    const line = await rawLine(server);
    const acknowledged = line.next();
    const resourceSubscriptions = ["t://closed", "t://open", "t://nowhere"];
    await line.send({
      jsonrpc: "2.0",
      id: "sub",
      method: "subscriptions/listen",
      params: modern({ notifications: { resourceSubscriptions } }),
    });
    expect(await acknowledged).toMatchObject({ params: { notifications: { resourceSubscriptions: ["t://open"] } } });
    const heard = line.next();
    server.changed("t://closed");
    server.changed("t://open");
    expect(await heard).toMatchObject({ method: "notifications/resources/updated", params: { uri: "t://open" } });
  });
});

describe("plain methods", () => {
  it("plain methods need no handshake, answer with the tool's own result, and fail as errors", async () => {
    const server = createServer({ name: "h", version: "1" }, { policy: permitAll, plainMethods: ["fs.read"] });
    servers.push(server);
    const schema = { type: "object", properties: { path: { type: "string" } }, required: ["path"] } as const;
    server.tool("fs.read", "reads", schema, ({ path }) => ({ structuredContent: { data: path } }), open);
    const line = await rawLine(server);
    expect(await line.ask("fs.read", { path: "x" })).toMatchObject({ id: 1, result: { data: "x" } });
    expect(await line.ask("fs.read", {})).toMatchObject({ error: { code: -32602, data: { code: "INVALID_ARGS" } } });
    expect(await line.ask("fs.write", {})).toMatchObject({ error: { data: { code: "WRONG_PHASE" } } });
  });
});

describe("sessions over HTTP", () => {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const start = async (server: Server) => {
    const { url } = await server.listen({ transport: "http", port: 0 });
    const post = async (body: object, more: Record<string, string> = {}) => {
      const answer = await httpRequest(url, {
        method: "POST",
        headers: { ...headers, ...more },
        body: JSON.stringify(body),
      });
      const text = await answer.body.text();
      return { status: answer.statusCode, headers: answer.headers, text, json: () => JSON.parse(text) };
    };
    const opened = await post({
      jsonrpc: "2.0",
      id: 0,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {} },
    });
    const session = { "mcp-session-id": String(opened.headers["mcp-session-id"]) };
    await post({ jsonrpc: "2.0", method: "notifications/initialized" }, session);
    return { url, post, session };
  };

  it("sessions over HTTP are named by a header, end with DELETE, and are not found afterwards", async () => {
    const { url, post, session } = await start(testServer());
    const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
    expect((await post(ping, session)).status).toBe(200);
    expect((await post(ping)).status).toBe(400);
    expect((await post(ping, { "mcp-session-id": "made-up" })).status).toBe(404);
    expect((await httpRequest(url, { method: "DELETE", headers: session })).statusCode).toBe(204);
    expect((await post(ping, session)).status).toBe(404);
    expect((await httpRequest(url, { method: "GET" })).statusCode).toBe(405);
  });

  it("sessions over HTTP take a stream up again after the event that was seen last", async () => {
    const { url, post, session } = await start(testServer());
    const body = {
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { ...callOf("stream"), _meta: { progressToken: 1 } },
    };
    const events = (await post(body, session)).text.split("\n\n").filter((event) => event.includes("data:"));
    expect(events).toHaveLength(4);
    const idOf = (event: string): string => /^id: ?(.+)$/m.exec(event)?.[1] ?? "";
    const resume = async (last: string) =>
      httpRequest(url, { method: "GET", headers: { accept: "text/event-stream", ...session, "last-event-id": last } });
    const again = await resume(idOf(events[1] as string));
    const text = await again.body.text();
    expect(
      text
        .split("\n\n")
        .filter((event) => event.includes("data:"))
        .map(idOf),
    ).toEqual(events.slice(2).map(idOf));
    expect(text).toContain('"result"');
    expect((await resume("s99.1")).statusCode).toBe(400);
  });

  it("sessions over HTTP are bounded, and an idle one makes room", async () => {
    const server = testServer({ limits: { maxSessions: 2 } });
    const { post, session } = await start(server);
    for (let i = 0; i < 3; i++) {
      const opened = await post({
        jsonrpc: "2.0",
        id: 0,
        method: "initialize",
        params: { protocolVersion: "2025-11-25", capabilities: {} },
      });
      expect(opened.status).toBe(200);
    }
    expect((await post({ jsonrpc: "2.0", id: 1, method: "ping" }, session)).status).toBe(404);
    expect(server.handler.handshakes.sessions.size).toBe(2);
  });

  it("sessions over HTTP that are refused have a trace id all the same: the caller's own, or a new one", async () => {
    const server = testServer();
    const { url } = await start(server);
    const send = async (body: string, more: Record<string, string> = {}): Promise<string> => {
      const response = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...more },
        body,
      });
      const { error } = (await response.json()) as { error: { data: { trace_id: string } } };
      return error.data.trace_id;
    };
    const traceId = "0af7651916cd43dd8448eb211c80319c";
    const traceparent = `00-${traceId}-b7ad6b7169203331-01`;
    const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
    for (const body of ["{", "[]", '{"jsonrpc":"1.0"}', ping]) {
      expect(await send(body, { traceparent })).toBe(traceId);
      expect(await send(body)).toMatch(/^(?!0{32})[0-9a-f]{32}$/);
    }
  });

  it("sessions over HTTP of an agent that opens one after the other make room among its own, and no other loses one", () => {
    const limits = { ...DEFAULT_GATEWAY_LIMITS, maxSessions: 100, maxAgentSessions: 3, sessionIdleMs: 60_000 };
    const forgotten: string[] = [];
    const sessions = new Sessions(limits, new RetainedBytes(limits), undefined, {
      save: async () => {},
      change: async () => {},
      load: async () => undefined,
      touch: () => {},
      remove: (id) => forgotten.push(id),
    });
    const caller = (agent: string) => ({ app: "local", agent, scope: [], via: "test" });
    const other = sessions.open(caller("other"));
    const opened = Array.from({ length: 10 }, () => sessions.open(caller("busy")));
    expect(sessions.size).toBe(4);
    expect(sessions.get(other.id)).toBe(other);
    expect(forgotten).toEqual(opened.slice(0, 7).map(({ id }) => id));
    for (const session of opened.slice(-3)) session.underWay.set(1, new Cancel());
    expect(() => sessions.open(caller("busy"))).toThrow("3 sessions are open and in use");
    sessions.open(caller("other"));
    sessions.closeAll();
  });
});
