import { afterEach, describe, expect, it } from "vitest";
import type { JsonObject, Notification } from "../index.js";
import type { Client } from "./client.js";
import { type ConnectTarget, connect } from "./connect.js";
import {
  closeAll,
  DISCOVERED,
  type Exchange,
  handshake,
  modern,
  overHttp,
  overMemory,
  overTcp,
  type Scripted,
  scripted,
  until,
} from "./fixtures/scripted.js";
import type { ConnectOptions } from "./options.js";

const open: Client[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.close()));
  await closeAll();
});

async function connected(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const client = await connect(target, options);
  open.push(client);
  return client;
}

const nothing = (exchange: Exchange): void => exchange.result({});
const LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26"] as const;

describe("agreeing on a revision", () => {
  it.each([
    ["memory", overMemory],
    ["http", overHttp],
    ["tcp", overTcp],
  ] as const)("takes the newest that a server over %s offers", async (_, serve) => {
    const client = await connected(await serve(scripted(modern(nothing))));
    expect(client.revision).toBe("2026-07-28");
    expect(client.server).toMatchObject({
      serverInfo: { name: "scripted", version: "1" },
      capabilities: { tools: { listChanged: true } },
    });
  });

  it.each(LEGACY)("falls back to the handshake of %s", async (revision) => {
    const server = scripted(handshake(revision, nothing));
    const client = await connected(await overMemory(server));
    expect(client.revision).toBe(revision);
    await until(() => server.exchanges.length === 3);
    expect(server.seen.map((message) => message.method)).toEqual([
      "server/discover",
      "initialize",
      "notifications/initialized",
    ]);
    expect(await client.discover()).toMatchObject({ supportedVersions: [revision], serverInfo: { name: "old" } });
  });

  it("asks once more with a version that the server names when it rejects the first", async () => {
    let asked = 0;
    const server = scripted((exchange) =>
      ++asked === 1
        ? exchange.error(-32022, "Unsupported", { supported: ["2027-01-01", "2026-07-28"], requested: "x" }, 400)
        : exchange.result(DISCOVERED),
    );
    expect((await connected(await overHttp(server))).revision).toBe("2026-07-28");
    const never = scripted((exchange) => exchange.error(-32022, "Unsupported", { supported: ["2026-07-28"] }, 400));
    await expect(connect(await overHttp(never))).rejects.toMatchObject({ code: "UNSUPPORTED_VERSION" });
    expect(never.exchanges).toHaveLength(2);
  });

  it("uses the handshake where the server says that it only has that", async () => {
    const old = handshake("2025-06-18", nothing);
    const server = scripted((exchange) =>
      exchange.message.method === "server/discover"
        ? exchange.error(-32022, "Unsupported", { supported: ["2025-06-18"] }, 400)
        : old(exchange),
    );
    expect((await connected(await overHttp(server))).revision).toBe("2025-06-18");
    expect(server.seen.find((message) => message.method === "initialize")?.params?.protocolVersion).toBe("2025-06-18");
  });

  it.each([
    [
      "an error without an id",
      (e: Exchange) => e.end({ jsonrpc: "2.0", id: null, error: { code: -32000, message: "?" } }, 400),
    ],
    ["a result that is not a discovery", (e: Exchange) => e.result({})],
    ["a page", (e: Exchange) => e.end("<html>", 405)],
    ["an internal error", (e: Exchange) => e.error(-32603, "boom", undefined, 500)],
  ])("takes %s for an older server when agreeing on a revision", async (_, answer) => {
    const old = handshake("2025-11-25", nothing);
    const server = scripted((exchange) =>
      exchange.message.method === "server/discover" ? answer(exchange) : old(exchange),
    );
    expect((await connected(await overHttp(server))).revision).toBe("2025-11-25");
  });

  it("takes silence for an older server, and a late answer for a slow one [U13]", async () => {
    const old = handshake("2025-11-25", nothing);
    const silent = scripted((exchange) => (exchange.message.method === "server/discover" ? undefined : old(exchange)));
    const timeouts = { discoveryMs: 50 };
    expect((await connected(await overMemory(silent), { timeouts })).revision).toBe("2025-11-25");
    const slow = scripted((exchange) => {
      if (exchange.message.method === "initialize") return exchange.error(-32601, "Method not found");
      setTimeout(() => exchange.result(DISCOVERED), 200);
    });
    expect((await connected(await overMemory(slow), { timeouts })).revision).toBe("2026-07-28");
  });

  it("does not negotiate again where trying is pointless", async () => {
    const closed = scripted((exchange) => exchange.end("", 401));
    await expect(connect(await overHttp(closed))).rejects.toMatchObject({ family: "policy", code: "UNAUTHENTICATED" });
    expect(closed.exchanges).toHaveLength(1);
    await expect(connect("http://127.0.0.1:9/mcp")).rejects.toMatchObject({ family: "protocol", code: "IO_ERROR" });
    await expect(connect("tcp://127.0.0.1:9")).rejects.toMatchObject({ family: "protocol", code: "IO_ERROR" });
    await expect(connect({ command: "/nonexistent/server" })).rejects.toMatchObject({ code: "IO_ERROR" });
    await expect(connect("ftp://example.com")).rejects.toThrow("not a transport");
    await expect(connect("not an address")).rejects.toThrow("is not an address");
  });

  it("speaks exactly the revision that was asked for, or not at all", async () => {
    const both = (exchange: Exchange): void => {
      if (exchange.message.method === "server/discover") return exchange.result(DISCOVERED);
      if (exchange.message.method !== "initialize") return exchange.result({});
      const { protocolVersion } = exchange.message.params as { protocolVersion: string };
      exchange.result({ protocolVersion, capabilities: {}, serverInfo: { name: "both", version: "1" } });
    };
    const target = await overMemory(scripted(both));
    for (const revision of ["2026-07-28", ...LEGACY] as const) {
      expect((await connected(target, { revision })).revision).toBe(revision);
    }
    const old = await overMemory(scripted(handshake("2025-06-18", nothing)));
    await expect(connect(old, { revision: "2025-11-25" })).rejects.toMatchObject({ code: "UNSUPPORTED_VERSION" });
    await expect(connect(old, { revision: "2026-07-28" })).rejects.toMatchObject({ code: "UNSUPPORTED_VERSION" });
  });

  it("rejects a server that answers the handshake with an unknown revision", async () => {
    const server = scripted(handshake("2024-11-05", nothing));
    await expect(connect(await overMemory(server))).rejects.toMatchObject({ code: "UNSUPPORTED_VERSION" });
  });
});

describe("every request of 2026-07-28", () => {
  it("says again who asks, in which revision and what it can do", async () => {
    const server = scripted(modern(nothing));
    const client = await connected(await overHttp(server), {
      clientInfo: { name: "me", version: "7" },
      handlers: { roots: [], elicitation: () => ({ action: "cancel" }) },
      capabilities: { extensions: { "com.example/x": {} } },
      logLevel: "warning",
      headers: () => ({ authorization: "Bearer abc" }),
    });
    await client.request("tools/call", { name: "naïve", _meta: { own: 1 } });
    for (const exchange of server.exchanges) {
      expect(exchange.message.params?._meta).toMatchObject({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "me", version: "7" },
        "io.modelcontextprotocol/clientCapabilities": {
          roots: {},
          elicitation: { form: {} },
          extensions: { "com.example/x": {} },
        },
        "io.modelcontextprotocol/logLevel": "warning",
      });
      expect(exchange.headers).toMatchObject({
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": exchange.message.method,
        authorization: "Bearer abc",
      });
    }
    expect(server.exchanges.at(-1)?.headers["mcp-name"]).toBe("=?base64?bmHDr3Zl?=");
    expect(server.seen.at(-1)?.params?._meta?.own).toBe(1);
  });

  it("learns anew which parameters are mirrored when the server says that headers are missing", async () => {
    const server = scripted(
      modern((exchange) => {
        if (exchange.message.method === "tools/list") {
          const inputSchema = { type: "object", properties: { region: { type: "string", "x-mcp-header": "Region" } } };
          return exchange.result({ tools: [{ name: "sql", inputSchema }] });
        }
        if (exchange.headers["mcp-param-region"] !== "eu")
          return exchange.error(-32020, "Header mismatch", undefined, 400);
        exchange.result({ content: [] });
      }),
    );
    const client = await connected(await overHttp(server));
    expect(await client.callTool("sql", { region: "eu" })).toEqual({ content: [] });
    expect(server.seen.map((message) => message.method)).toEqual([
      "server/discover",
      "tools/call",
      "tools/list",
      "tools/call",
    ]);
    await expect(client.callTool("sql", { region: "us" })).rejects.toMatchObject({ code: "HEADER_MISMATCH" });
  });

  it("leaves out a tool that cannot be called over HTTP, says why, and does not call it", async () => {
    const warnings: string[] = [];
    const tools = [
      { name: "good", inputSchema: { type: "object" } },
      { name: "bad", inputSchema: { type: "object", properties: { a: { type: "number", "x-mcp-header": "A" } } } },
    ];
    const server = scripted(
      modern((exchange) => exchange.result(exchange.message.method === "tools/list" ? { tools } : { content: [] })),
    );
    const client = await connected(await overHttp(server), { onWarning: (message) => warnings.push(message) });
    expect((await client.listTools()).map((tool) => tool.name)).toEqual(["good"]);
    expect(client.rejectedTool("bad")).toContain("needs type string, integer or boolean");
    expect(warnings).toEqual([expect.stringContaining("tool `bad` is left out")]);
    await expect(client.callTool("bad")).rejects.toMatchObject({ family: "protocol" });
    expect(server.count("tools/call")).toBe(0);
    const other = await connected(await overMemory(server));
    expect(await other.listTools()).toHaveLength(2);
  });
});

describe("questions inside an answer", () => {
  const ask = (more: object): object => ({ resultType: "input_required", ...more });
  const confirm = { confirm: { method: "elicitation/create", params: { message: "sure?", requestedSchema: {} } } };

  it("questions inside an answer are answered by the handlers, with the state as it came and a new id each time", async () => {
    const state = 'opaque "\u{1F512}\\ \ud800 state';
    const server = scripted(
      modern((exchange) => {
        const { inputResponses, requestState } = exchange.message.params ?? {};
        if (!inputResponses) return exchange.result(ask({ inputRequests: confirm, requestState: state }));
        expect(requestState).toBe(state);
        exchange.result({ resultType: "complete", content: [], said: inputResponses });
      }),
    );
    const handlers = { elicitation: () => ({ action: "accept" as const, content: { yes: true } }) };
    const client = await connected(await overHttp(server), { handlers });
    for (const call of [
      () => client.callTool("t", { a: 1 }),
      () => client.readResource("test://r"),
      () => client.getPrompt("p"),
    ]) {
      expect(await call()).toMatchObject({ said: { confirm: { action: "accept", content: { yes: true } } } });
    }
    const [first, second] = server.seen.filter((message) => message.method === "tools/call");
    expect(second?.id).not.toBe(first?.id);
    expect(second?.params).toMatchObject({ name: "t", arguments: { a: 1 } });
  });

  it("questions inside an answer are bounded in rounds and in number, and a state alone is simply echoed", async () => {
    const endless = scripted(modern((exchange) => exchange.result(ask({ requestState: "again" }))));
    const client = await connected(await overMemory(endless), { limits: { maxRounds: 3 } });
    await expect(client.callTool("t")).rejects.toMatchObject({ code: "TOO_MANY" });
    expect(endless.count("tools/call")).toBe(4);
    expect(endless.seen.at(-1)?.params).not.toHaveProperty("inputResponses");
    const many = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`q${i}`, { method: "roots/list" }]));
    const flood = await connected(await overMemory(scripted(modern((e) => e.result(ask({ inputRequests: many }))))), {
      handlers: { roots: [] },
    });
    await expect(flood.callTool("t")).rejects.toMatchObject({ family: "protocol" });
  });

  it.each([
    ["asks for what the client did not offer", ask({ inputRequests: confirm })],
    ["asks with an unknown method", ask({ inputRequests: { q: { method: "tools/call", params: {} } } })],
    ["asks nothing", ask({})],
    ["has a state that is not a string", ask({ requestState: 7 })],
    ["has a result type that was not agreed to", { resultType: "task", task: {} }],
  ])("make the call fail when the server %s", async (_, result) => {
    const client = await connected(await overMemory(scripted(modern((exchange) => exchange.result(result)))));
    await expect(client.callTool("t")).rejects.toMatchObject({ family: "protocol" });
  });

  it("questions inside an answer are plain results in a revision that has none", async () => {
    const server = scripted(handshake("2025-11-25", (exchange) => exchange.result(ask({ requestState: "s" }))));
    const client = await connected(await overMemory(server));
    expect(await client.callTool("t")).toEqual({ resultType: "input_required", requestState: "s" });
  });

  it("questions inside an answer whose handler fails end the call in words, with the handler's error as the cause", async () => {
    const server = scripted(modern((exchange) => exchange.result(ask({ inputRequests: confirm }))));
    const broken = new Error("no screen");
    const elicitation = (): never => {
      throw broken;
    };
    const client = await connected(await overMemory(server), { handlers: { elicitation } });
    await expect(client.callTool("t")).rejects.toMatchObject({ family: "protocol", cause: broken });
    const slow = await connected(await overMemory(server), {
      handlers: { elicitation: () => new Promise<never>(() => {}) },
      timeouts: { inputMs: 30 },
    });
    await expect(slow.callTool("t")).rejects.toMatchObject({ family: "protocol", code: "CANCELLED" });
  });

  it("questions inside an answer may only come where the revision allows them, and other result types where the caller knows them", async () => {
    const server = scripted(
      modern((exchange) =>
        exchange.result(
          exchange.message.method === "tools/call"
            ? { resultType: "task", task: { id: 1 } }
            : ask({ requestState: "s" }),
        ),
      ),
    );
    const client = await connected(await overMemory(server), { resultTypes: ["task"] });
    expect(await client.callTool("t")).toMatchObject({ task: { id: 1 } });
    await expect(client.listTools()).rejects.toMatchObject({ family: "protocol" });
  });
});

describe("questions as requests", () => {
  const called = (script: (exchange: Exchange) => void): Scripted =>
    scripted(
      handshake("2025-11-25", (exchange) =>
        exchange.message.method === "tools/call" ? script(exchange) : exchange.end(),
      ),
    );
  const handlers = {
    elicitation: (_: JsonObject, { withDefaults }: { withDefaults(): JsonObject }) => ({
      action: "accept" as const,
      content: withDefaults(),
    }),
    sampling: () => ({ role: "assistant", content: { type: "text", text: "hi" }, model: "m" }),
    roots: () => [{ uri: "file:///p" }],
  };

  /** Sends one request from the server while a call is under way, and gives what the client answered. */
  async function answerTo(method: string, params: JsonObject, options: ConnectOptions = {}): Promise<JsonObject> {
    const server = called((exchange) => {
      exchange.inbound.channel?.send(JSON.stringify({ jsonrpc: "2.0", id: "q1", method, params }));
    });
    const client = await connected(await overMemory(server), { handlers, ...options });
    client.callTool("t").catch(() => {});
    const answered = (): JsonObject | undefined =>
      server.seen.find((m) => (m.id as unknown) === "q1") as JsonObject | undefined;
    await until(() => answered() !== undefined);
    return answered() as JsonObject;
  }

  it("questions as requests are answered by the same handlers", async () => {
    const requestedSchema = {
      type: "object",
      properties: { name: { type: "string", default: "Ada" }, age: { type: "integer" } },
    };
    expect(await answerTo("elicitation/create", { message: "?", requestedSchema })).toMatchObject({
      result: { action: "accept", content: { name: "Ada" } },
    });
    expect(await answerTo("sampling/createMessage", { messages: [] })).toMatchObject({ result: { model: "m" } });
    expect(await answerTo("roots/list", {})).toMatchObject({ result: { roots: [{ uri: "file:///p" }] } });
    expect(await answerTo("ping", {})).toMatchObject({ result: {} });
  });

  it("questions as requests are refused in words when there is no handler, or it fails, or takes too long", async () => {
    expect(await answerTo("elicitation/create", {}, { handlers: {} })).toMatchObject({ error: { code: -32601 } });
    expect(await answerTo("tasks/steal", {})).toMatchObject({ error: { code: -32601 } });
    expect(await answerTo("elicitation/create", { mode: "url", url: "https://x" })).toMatchObject({
      error: { code: -32602 },
    });
    const broken = {
      sampling: () => {
        throw new Error("secret inside");
      },
    };
    const answer = await answerTo("sampling/createMessage", {}, { handlers: broken });
    expect(answer).toMatchObject({ error: { code: -32603 } });
    expect(JSON.stringify(answer)).not.toContain("secret");
    const stuck = { sampling: () => new Promise<JsonObject>(() => {}) };
    expect(await answerTo("sampling/createMessage", {}, { handlers: stuck, timeouts: { inputMs: 30 } })).toMatchObject({
      error: { message: expect.stringContaining("30 ms") },
    });
  });

  it("questions as requests can be taken back by the server, and too many at once are refused", async () => {
    const signals: AbortSignal[] = [];
    const waiting = {
      sampling: (_: JsonObject, { signal }: { signal: AbortSignal }) => {
        signals.push(signal);
        return new Promise<JsonObject>(() => {});
      },
    };
    const server = called((exchange) => {
      for (const id of ["a", "b", "c"]) {
        exchange.inbound.channel?.send(
          JSON.stringify({ jsonrpc: "2.0", id, method: "sampling/createMessage", params: {} }),
        );
      }
      const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "a" } };
      exchange.inbound.channel?.send(JSON.stringify(cancel));
    });
    const client = await connected(await overMemory(server), { handlers: waiting, limits: { maxInputs: 2 } });
    client.callTool("t").catch(() => {});
    await until(() => signals[0]?.aborted === true);
    await until(() => server.seen.some((message) => (message.id as unknown) === "c"));
    expect(signals).toHaveLength(2);
    expect(server.seen.find((message) => (message.id as unknown) === "c")).toHaveProperty("error");
    expect(server.seen.find((message) => (message.id as unknown) === "a")).toBeUndefined();
  });

  it("questions as requests have no place in 2026-07-28: they are counted and not answered", async () => {
    const server = scripted(
      modern((exchange) => {
        exchange.send({ jsonrpc: "2.0", id: "q1", method: "roots/list" });
        exchange.result({ content: [] });
      }),
    );
    const client = await connected(await overMemory(server), { handlers });
    await client.callTool("t");
    expect(client.stats.unexpectedRequests).toBe(1);
    expect(server.exchanges).toHaveLength(2);
  });

  it("over HTTP come on the call's own stream and are answered by a POST in the session", async () => {
    const server = scripted({
      message: handshake(
        "2025-11-25",
        (exchange) => {
          if (exchange.message.method !== "tools/call") return exchange.end();
          exchange.send({ jsonrpc: "2.0", id: 77, method: "roots/list" });
          const look = setInterval(() => {
            const answer = server.exchanges.find((one) => one.message.id === 77);
            if (!answer) return;
            clearInterval(look);
            exchange.result({ content: [], roots: answer.message.result, session: answer.headers["mcp-session-id"] });
          }, 5);
        },
        () => "s1",
      ),
    });
    const client = await connected(await overHttp(server), { handlers });
    expect(await client.callTool("t")).toMatchObject({ roots: { roots: [{ uri: "file:///p" }] }, session: "s1" });
  });
});

describe("sessions of the handshake revisions on HTTP", () => {
  function sessions(script: (exchange: Exchange, live: () => string) => void) {
    let count = 0;
    const live = (): string => `s${count}`;
    const server = scripted({
      message: handshake(
        "2025-11-25",
        (exchange) => script(exchange, live),
        () => `s${++count}`,
      ),
      http: (request) => {
        request.reply.end(undefined, { status: request.method === "DELETE" ? 200 : 405 });
        return true;
      },
    });
    return server;
  }

  it("sessions of the handshake revisions on HTTP are named on every request, with the revision, and ended when the client closes", async () => {
    const server = sessions((exchange) => exchange.result({ tools: [] }));
    const client = await connect(await overHttp(server));
    await client.listTools();
    expect(server.exchanges.at(-1)?.headers).toMatchObject({
      "mcp-session-id": "s1",
      "mcp-protocol-version": "2025-11-25",
    });
    expect(server.exchanges.find((e) => e.message.method === "initialize")?.headers).not.toHaveProperty(
      "mcp-session-id",
    );
    await until(() => server.verbs.length === 1);
    await client.close();
    expect(server.verbs.map((verb) => [verb.method, verb.peer.headers?.["mcp-session-id"]])).toEqual([
      ["GET", "s1"],
      ["DELETE", "s1"],
    ]);
  });

  it("sessions of the handshake revisions on HTTP that the server lost are started again once, for all requests under way", async () => {
    let lost = true;
    const server = sessions((exchange, live) => {
      const stale = exchange.headers["mcp-session-id"] !== live();
      if ((lost && live() === "s1") || stale)
        return exchange.end({ jsonrpc: "2.0", id: null, error: { code: -32001, message: "Session not found" } }, 404);
      exchange.result({ content: [], in: exchange.headers["mcp-session-id"] });
    });
    const client = await connected(await overHttp(server));
    const results = await Promise.all([client.callTool("a"), client.callTool("b"), client.callTool("c")]);
    expect(results.map((result) => result.in)).toEqual(["s2", "s2", "s2"]);
    expect(server.count("initialize")).toBe(2);
    lost = false;
  });

  it("sessions of the handshake revisions on HTTP with a name that cannot be sent back are refused", async () => {
    const server = scripted(handshake("2025-11-25", nothing, () => "two words"));
    await expect(connect(await overHttp(server))).rejects.toMatchObject({
      family: "protocol",
      code: "INVALID_REQUEST",
    });
  });

  it("sessions of the handshake revisions on HTTP that are lost again at once are an error, not a loop", async () => {
    const server = sessions((exchange) => exchange.end("", 404));
    const client = await connected(await overHttp(server));
    await expect(client.callTool("a")).rejects.toMatchObject({ status: 404, family: "protocol" });
    expect(server.count("tools/call")).toBe(2);
  });
});

describe("event streams of the handshake revisions", () => {
  it("event streams of the handshake revisions are picked up again where they broke off, after the delay the server asked for", async () => {
    const opened: (string | undefined)[] = [];
    let call: Exchange | undefined;
    let endedAt = 0;
    let resumedAt = 0;
    const server = scripted({
      message: handshake("2025-11-25", (exchange) => {
        call = exchange;
        exchange.inbound.reply.open({}, 120);
        exchange.inbound.reply.send("", "e1");
        exchange.end();
        endedAt = performance.now();
      }),
      http: (request) => {
        const last = request.peer.headers?.["last-event-id"] as string | undefined;
        opened.push(last);
        if (last === undefined) return false;
        resumedAt = performance.now();
        request.reply.open({}, 10);
        if (last === "e1") {
          request.reply.send("", "e2");
          request.reply.end();
        } else {
          request.reply.send(
            JSON.stringify({ jsonrpc: "2.0", id: call?.message.id, result: { content: [], resumed: last } }),
            "e3",
          );
        }
        return true;
      },
    });
    const client = await connected(await overHttp(server));
    expect(await client.callTool("t")).toMatchObject({ resumed: "e2" });
    expect(opened).toEqual([undefined, "e1", "e2"]);
    expect(resumedAt - endedAt).toBeGreaterThanOrEqual(115);
  });

  it("event streams of the handshake revisions that cannot be picked up fail the call after a bounded number of attempts", async () => {
    let attempts = 0;
    const server = scripted({
      message: handshake("2025-11-25", (exchange) => {
        exchange.inbound.reply.open({}, 1);
        exchange.inbound.reply.send("", "e1");
        exchange.end();
      }),
      http: (request) => {
        if (request.peer.headers?.["last-event-id"] === undefined) return false;
        attempts++;
        request.reply.open({}, 1);
        request.reply.end();
        return true;
      },
    });
    const client = await connected(await overHttp(server), { limits: { maxResumes: 3 } });
    await expect(client.callTool("t")).rejects.toMatchObject({ family: "protocol" });
    expect(attempts).toBe(4);
  });

  it("event streams of the handshake revisions that the server opens by itself bring notifications", async () => {
    const changed: string[] = [];
    const server = scripted({
      message: handshake("2025-11-25", nothing),
      http: (request) => {
        if (request.method !== "GET") return false;
        request.reply.open();
        request.reply.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', "n1");
        return true;
      },
    });
    await connected(await overHttp(server), { onListChanged: (kind) => changed.push(kind) });
    await until(() => changed.length === 1);
    expect(changed).toEqual(["tools"]);
  });
});

describe("giving up a call", () => {
  it("tells the server by a notification, or by closing the stream where that is the word", async () => {
    const waiting = (): void => {};
    for (const [serve, script, byStream] of [
      [overMemory, modern(waiting), false],
      [overMemory, handshake("2025-11-25", waiting), false],
      [overHttp, handshake("2025-11-25", (e: Exchange) => e.inbound.reply.open()), false],
      [overHttp, modern((e) => e.inbound.reply.open()), true],
    ] as const) {
      const server = scripted(script);
      const client = await connected(await serve(server));
      const stop = new AbortController();
      const call = client.callTool("t", {}, { signal: stop.signal });
      await until(() => server.count("tools/call") === 1);
      const exchange = server.exchanges.find((one) => one.message.method === "tools/call") as Exchange;
      let closed = false;
      exchange.inbound.reply.onAbort(() => {
        closed = true;
      });
      stop.abort();
      await expect(call).rejects.toMatchObject({ code: "CANCELLED" });
      if (byStream) await until(() => closed);
      else await until(() => server.count("notifications/cancelled") === 1);
      const told = server.seen.find((message) => message.method === "notifications/cancelled");
      expect(told?.params?.requestId).toBe(byStream ? undefined : exchange.message.id);
    }
  });
});

describe("lists", () => {
  const page = (n: number, more: object = {}): object => ({
    tools: [{ name: `t${n}`, inputSchema: { type: "object" }, future: { kept: n } }],
    ...more,
  });

  it("lists are read to their end, and unknown fields are kept", async () => {
    const server = scripted(
      modern((exchange) => {
        const cursor = Number(exchange.message.params?.cursor ?? 0);
        exchange.result(page(cursor, cursor < 2 ? { nextCursor: String(cursor + 1) } : {}));
      }),
    );
    const client = await connected(await overMemory(server));
    const tools = await client.listTools();
    expect(tools.map((tool) => tool.name)).toEqual(["t0", "t1", "t2"]);
    expect(tools[1]?.future).toEqual({ kept: 1 });
  });

  it.each([
    ["has no end", (n: number) => page(n, { nextCursor: String(n + 1) }), "TOO_LARGE"],
    ["goes in circles", () => page(0, { nextCursor: "1" }), "INVALID_REQUEST"],
    ["is not a list", () => ({ tools: "all of them" }), "INVALID_REQUEST"],
    ["holds something that is not a tool", () => ({ tools: [{ title: "?" }] }), "INVALID_REQUEST"],
  ])("lists that %s are an error", async (_, make, code) => {
    const server = scripted(modern((exchange) => exchange.result(make(Number(exchange.message.params?.cursor ?? 0)))));
    const client = await connected(await overMemory(server), { limits: { maxPages: 5 } });
    await expect(client.listTools()).rejects.toMatchObject({ family: "protocol", code });
    expect(server.count("tools/list")).toBeLessThanOrEqual(5);
  });

  it("lists are remembered as long as the server says, and forgotten when it says that they changed", async () => {
    const server = scripted(modern((exchange) => exchange.result(page(1, { ttlMs: 60_000, cacheScope: "private" }))));
    const listener = await overMemory(server);
    const client = await connected(listener);
    await Promise.all([client.listTools(), client.listTools()]);
    await client.listTools();
    expect(server.count("tools/list")).toBe(1);
    await client.listTools({ fresh: true });
    expect(server.count("tools/list")).toBe(2);
    server.exchanges[0]?.inbound.channel?.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    // Messages come in order, so after an answer the notification is here too.
    await client.ping();
    await client.listTools();
    expect(server.count("tools/list")).toBe(3);
  });

  it("lists that changed while they were being read are not taken for fresh", async () => {
    const server = scripted(
      modern((exchange) => {
        exchange.send({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
        exchange.result(page(1, { ttlMs: 60_000 }));
      }),
    );
    const client = await connected(await overMemory(server));
    await client.listTools();
    await client.listTools();
    expect(server.count("tools/list")).toBe(2);
  });

  it("lists without a lifetime are asked for every time, and so is every revision before lifetimes", async () => {
    for (const script of [modern((e) => e.result(page(1))), handshake("2025-11-25", (e) => e.result(page(1)))]) {
      const server = scripted(script);
      const client = await connected(await overMemory(server));
      await client.listTools();
      await client.listTools();
      expect(server.count("tools/list")).toBe(2);
    }
  });
});

describe("several calls at once", () => {
  it("several calls at once are one JSON-RPC batch where the revision has batches, split at the limit [U13]", async () => {
    const texts: string[] = [];
    const inner = handshake("2025-03-26", nothing);
    const server = scripted((exchange) => {
      const batch = exchange.message as unknown as { id: number; params: { name: string } }[];
      if (!Array.isArray(batch)) return inner(exchange);
      texts.push(exchange.inbound.text);
      const answers = batch.map(({ id, params }) =>
        params.name === "t2"
          ? { jsonrpc: "2.0", id, error: { code: -32602, message: "Unknown tool" } }
          : { jsonrpc: "2.0", id, result: { content: [], is: params.name } },
      );
      exchange.end(JSON.stringify(answers.reverse()));
    });
    for (const serve of [overMemory, overHttp]) {
      texts.length = 0;
      const client = await connected(await serve(server), { limits: { maxBatch: 3 } });
      const settled = await client.batchCalls(Array.from({ length: 5 }, (_, i) => ({ name: `t${i}` })));
      expect(settled.map((one) => (one.status === "fulfilled" ? one.value.is : one.reason.code))).toEqual([
        "t0",
        "t1",
        "INVALID_PARAMS",
        "t3",
        "t4",
      ]);
      expect(texts.map((text) => JSON.parse(text).length)).toEqual([3, 2]);
    }
  });

  it("several calls at once are single calls in other revisions, a few at a time, with the results in order", async () => {
    let running = 0;
    let most = 0;
    const server = scripted(
      modern((exchange) => {
        most = Math.max(most, ++running);
        const name = exchange.message.params?.name as string;
        setTimeout(() => {
          running--;
          exchange.result({ content: [], is: name });
        }, 20 - Number(name));
      }),
    );
    const client = await connected(await overMemory(server), { limits: { maxConcurrent: 4 } });
    const settled = await client.batchCalls(Array.from({ length: 10 }, (_, i) => ({ name: String(i) })));
    expect(settled.map((one) => one.status === "fulfilled" && one.value.is)).toEqual([..."0123456789"]);
    expect(most).toBe(4);
    expect(await client.batchCalls([])).toEqual([]);
  });
});

describe("hearing of changes", () => {
  const filter = { toolsListChanged: true, resourceSubscriptions: ["test://a"] };
  const id = (exchange: Exchange): object => ({ "io.modelcontextprotocol/subscriptionId": exchange.message.id });
  const note = (exchange: Exchange, method: string, params: object = {}): object => ({
    jsonrpc: "2.0",
    method,
    params: { ...params, _meta: id(exchange) },
  });

  it.each([
    ["memory", overMemory],
    ["http", overHttp],
  ] as const)("2026-07-28 over %s: a listen stream that is acknowledged, tells, and ends", async (_, serve) => {
    const streams: Exchange[] = [];
    const server = scripted(
      modern((exchange) => {
        if (exchange.message.method !== "subscriptions/listen") return exchange.result({ tools: [] });
        streams.push(exchange);
        exchange.send(
          note(exchange, "notifications/subscriptions/acknowledged", { notifications: { toolsListChanged: true } }),
        );
        exchange.send(note(exchange, "notifications/tools/list_changed"));
        exchange.send(note(exchange, "notifications/resources/updated", { uri: "test://a" }));
        exchange.send(note(exchange, "notifications/resources/updated", { uri: "test://not-asked" }));
      }),
    );
    const heard: object[] = [];
    const client = await connected(await serve(server));
    const subscription = await client.listen(filter, (change) => heard.push(change));
    expect(subscription.accepted).toEqual({ toolsListChanged: true });
    expect(server.seen.at(-1)?.params?.notifications).toEqual(filter);
    await until(() => heard.length === 2);
    expect(heard).toEqual([{ kind: "tools" }, { kind: "resource", uri: "test://a" }]);
    streams[0]?.result({ resultType: "complete", _meta: id(streams[0]) });
    expect(await subscription.closed).toBe("ended");
    const second = await client.listen(filter, () => {});
    await second.close();
    expect(await second.closed).toBe("closed");
  });

  it("one that is never acknowledged is given up, and there are not too many", async () => {
    const server = scripted(modern(() => {}));
    const client = await connected(await overMemory(server), {
      timeouts: { discoveryMs: 40 },
      limits: { maxListens: 2 },
    });
    await expect(client.listen(filter, () => {})).rejects.toMatchObject({ code: "TIMEOUT" });
    await until(() => server.count("notifications/cancelled") === 1);
    const refusing = scripted(modern((exchange) => exchange.error(-32601, "Method not found")));
    const other = await connected(await overMemory(refusing));
    await expect(other.listen(filter, () => {})).rejects.toMatchObject({ code: "METHOD_NOT_FOUND" });
  });

  it("for the connection's own callback the stream is opened again when it breaks, and never costs the connection", async () => {
    const changed: string[] = [];
    const warnings: string[] = [];
    const streams: Exchange[] = [];
    const server = scripted(
      modern((exchange) => {
        if (exchange.message.method !== "subscriptions/listen") return exchange.result({ tools: [] });
        streams.push(exchange);
        exchange.send(note(exchange, "notifications/subscriptions/acknowledged", { notifications: {} }));
        if (streams.length === 1) return exchange.end();
        exchange.send(note(exchange, "notifications/tools/list_changed"));
      }),
    );
    await connected(await overHttp(server), {
      onListChanged: (kind) => changed.push(kind),
      onWarning: (warning) => warnings.push(warning),
    });
    await until(() => changed.length === 1);
    expect(streams).toHaveLength(2);
    expect(warnings).toEqual(["changes of lists are not heard: the stream broke"]);
    const refusing = scripted(modern((exchange) => exchange.error(-32601, "Method not found")));
    const client = await connected(await overMemory(refusing), {
      onListChanged: () => {},
      onWarning: (warning) => warnings.push(warning),
    });
    expect(client.revision).toBe("2026-07-28");
    expect(warnings.at(-1)).toContain("Method not found");
  });

  it("earlier revisions: resources are subscribed to one by one, once for all listeners", async () => {
    const server = scripted(handshake("2025-11-25", nothing));
    const heard: string[] = [];
    const client = await connected(await overMemory(server));
    const [a, b] = [
      await client.subscribe("test://a", (uri) => heard.push(uri)),
      await client.subscribe("test://a", () => {}),
    ];
    expect(server.count("resources/subscribe")).toBe(1);
    const updated = { jsonrpc: "2.0", method: "notifications/resources/updated", params: { uri: "test://a" } };
    server.exchanges[0]?.inbound.channel?.send(JSON.stringify(updated));
    await until(() => heard.length === 1);
    await a.close();
    expect(server.count("resources/unsubscribe")).toBe(0);
    await b.close();
    expect(server.count("resources/unsubscribe")).toBe(1);
  });

  it("callbacks of the connection hear of lists, resources, logs and everything else; one that throws stops nothing", async () => {
    const heard: unknown[] = [];
    const server = scripted(
      handshake("2025-11-25", (exchange) => {
        const say = (method: string, params?: object): void => exchange.send({ jsonrpc: "2.0", method, params });
        say("notifications/prompts/list_changed");
        say("notifications/resources/updated", { uri: "test://a" });
        say("notifications/message", { level: "error", logger: "db", data: { lost: true } });
        say("notifications/elicitation/complete", { elicitationId: "e" });
        exchange.result({ content: [] });
      }),
    );
    const client = await connected(await overMemory(server), {
      onListChanged: (kind) => {
        heard.push(kind);
        throw new Error("from a callback");
      },
      onResourceUpdated: (uri) => heard.push(uri),
      onLog: (entry) => heard.push(entry),
      onNotification: (message: Notification) => heard.push(message.method),
      onWarning: (warning) => heard.push(warning),
    });
    await client.callTool("t");
    expect(heard).toEqual([
      "prompts",
      "a callback threw: Error: from a callback",
      "test://a",
      { level: "error", logger: "db", data: { lost: true } },
      "notifications/elicitation/complete",
    ]);
  });
});

describe("the rest of the protocol", () => {
  it.each(["2026-07-28", "2025-11-25"])("in %s", async (revision) => {
    const script = (exchange: Exchange): void => {
      const answers: Record<string, object> = {
        "resources/list": { resources: [{ uri: "test://a", name: "a" }] },
        "resources/templates/list": { resourceTemplates: [{ uriTemplate: "test://{x}", name: "x" }] },
        "resources/read": { contents: [{ uri: "test://a", text: "A" }], unknown: 1 },
        "prompts/list": { prompts: [{ name: "p" }] },
        "prompts/get": { messages: [{ role: "user", content: { type: "text", text: "P" } }] },
        "completion/complete": { completion: { values: ["v"] } },
        "tools/validate": { valid: false, problems: [] },
      };
      exchange.result(answers[exchange.message.method ?? ""] ?? {});
    };
    const server = scripted(revision === "2026-07-28" ? modern(script) : handshake(revision, script));
    const client = await connected(await overMemory(server));
    expect(await client.listResources()).toEqual([{ uri: "test://a", name: "a" }]);
    expect(await client.listResourceTemplates()).toEqual([{ uriTemplate: "test://{x}", name: "x" }]);
    expect(await client.readResource("test://a")).toMatchObject({ contents: [{ text: "A" }], unknown: 1 });
    expect(await client.listPrompts()).toEqual([{ name: "p" }]);
    expect((await client.getPrompt("p", { a: "b" })).messages).toHaveLength(1);
    expect(
      (await client.complete({ type: "ref/prompt", name: "p" }, { name: "a", value: "" })).completion.values,
    ).toEqual(["v"]);
    expect(await client.validate("t", { a: 1 })).toEqual({ valid: false, problems: [] });
    await client.setLevel("debug");
    await client.ping();
    await client.rootsChanged();
    const methods = server.seen.map((message) => message.method);
    if (revision === "2026-07-28") {
      expect(methods).not.toContain("logging/setLevel");
      expect(methods).not.toContain("ping");
      expect(server.seen.at(-1)?.params?._meta).toMatchObject({ "io.modelcontextprotocol/logLevel": "debug" });
    } else {
      expect(methods).toEqual(expect.arrayContaining(["logging/setLevel", "ping"]));
      await until(() => server.count("notifications/roots/list_changed") === 1);
    }
  });

  it("what has no JSON form is refused before it is sent", async () => {
    const server = scripted(modern(nothing));
    const client = await connected(await overMemory(server));
    const cyclic: JsonObject = {};
    cyclic.self = cyclic;
    await expect(client.callTool("t", cyclic)).rejects.toMatchObject({ family: "protocol", code: "INVALID_PARAMS" });
    expect(server.count("tools/call")).toBe(0);
  });

  it("notifications named like members of every object are notifications like any other", async () => {
    const heard: string[] = [];
    const server = scripted(
      handshake("2025-11-25", (exchange) => {
        for (const method of ["constructor", "__proto__", "toString"]) exchange.send({ jsonrpc: "2.0", method });
        exchange.send({
          jsonrpc: "2.0",
          method: "notifications/progress",
          params: { progressToken: exchange.message.id, progress: "lots" },
        });
        exchange.result({ content: [] });
      }),
    );
    const client = await connected(await overMemory(server), {
      onNotification: ({ method }) => heard.push(method),
      onListChanged: (kind) => heard.push(`list ${kind}`),
    });
    const reports: unknown[] = [];
    await client.callTool("t", {}, { onProgress: (report) => reports.push(report) });
    expect(heard).toEqual(["constructor", "__proto__", "toString"]);
    expect(reports).toEqual([]);
  });

  it("the connection's end is told once, and calls after it fail", async () => {
    const ends: (Error | undefined)[] = [];
    const server = scripted(modern((exchange) => exchange.inbound.channel?.close()));
    const client = await connected(await overMemory(server), { onClose: (error) => ends.push(error) });
    await expect(client.callTool("t")).rejects.toMatchObject({ code: "IO_ERROR" });
    expect(ends).toEqual([expect.any(Error)]);
    await expect(client.listTools()).rejects.toMatchObject({ code: "IO_ERROR" });
    await client.close();
    expect(ends).toHaveLength(1);
  });
});
