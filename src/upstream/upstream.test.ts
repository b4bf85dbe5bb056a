// One server on stdio: what goes out, what comes back, and whose it is.

import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { Fault, type JsonObject } from "../mcp/index.js";
import { cancellation, closeAll, faultOf, fixture, structuredOf, textOf, tool } from "./fixtures/calling.js";

afterEach(closeAll);

function seenBy(answer: Awaited<ReturnType<ReturnType<typeof fixture>["request"]>>): JsonObject {
  if (answer.kind === "error") throw new Error(answer.text);
  return (answer.value._meta as JsonObject).seen as JsonObject;
}

describe("a server", () => {
  it("a server is started by the first call, not before", async () => {
    const server = fixture("");
    expect(server.state).toBe("idle");
    expect(textOf(await server.request(tool("echo", { text: "hi" })))).toBe("hi");
    expect(server.state).toBe("ready");
    expect(server.revision).toBe("2025-11-25");
    expect(server.health()).toMatchObject({ circuit: "closed", restarts: 0, inFlight: 0, queued: 0 });
    await server.close();
    expect(server.state).toBe("stopped");
    expect(await faultOf(server.request(tool("echo")))).toMatchObject({ type: "Unavailable" });
  });

  it.each([
    ["2026-07-28", "modern"],
    ["2025-11-25", ""],
    ["2025-11-25", "silent-on-discover"],
    ["2025-11-25", "crash-on-discover"],
    ["2025-11-25", "slow-start"],
    ["2024-11-05", "first"],
  ])("speaks %s when it is %s", async (revision, habits) => {
    const server = fixture(habits, { timeouts: { discoverMs: 200 } });
    expect(textOf(await server.request(tool("echo", { text: "x" })))).toBe("x");
    expect(server.revision).toBe(revision);
  });

  it("a server is held to a revision that was demanded", async () => {
    expect(await faultOf(fixture("", { revision: "2026-07-28" }).start())).toMatchObject({
      type: "UnsupportedVersion",
    });
    expect(await faultOf(fixture("first", { revision: "2025-11-25" }).start())).toMatchObject({
      type: "UnsupportedVersion",
    });
    expect(await faultOf(fixture("", { revision: "1999-01-01" }).start())).toMatchObject({
      type: "UnsupportedVersion",
    });
  });

  it("shows what it offers, all pages, unknown fields included, impostors left out", async () => {
    expect(await fixture("").catalogue()).toEqual({
      revision: "2025-11-25",
      serverInfo: { name: "fixture", version: "1" },
      instructions: "be kind",
      capabilities: { tools: { listChanged: true } },
      tools: [
        { name: "echo", inputSchema: { type: "object" }, unknown: { kept: 1 } },
        { name: "count", inputSchema: {} },
      ],
      resources: [],
      resourceTemplates: [],
      prompts: [],
    });
    const modern = await fixture("modern").catalogue();
    expect(modern).toMatchObject({ instructions: "be kind", resources: [{ uri: "x://1", name: "one" }] });
  });

  it.each([
    ["endless-pages", { maxPages: 20 }, /more than 20 pages of tools/],
    ["endless-pages", { maxEntries: 10 }, /more than 10 tools/],
    ["endless-pages", { maxCatalogueBytes: 1_000 }, /more than 1000 bytes in its lists/],
    ["same-cursor", {}, /same cursor again/],
  ])("a server whose lists have no end is refused: %s %o", async (habits, limits, reason) => {
    const server = fixture(habits, { limits });
    await expect(server.catalogue()).rejects.toThrow(reason);
    expect(textOf(await server.request(tool("echo", { text: "still" })))).toBe("still");
  });

  it("a server that changed its tools says so, and its lists are read again", async () => {
    const server = fixture("");
    const changes: unknown[] = [];
    server.onChange((change) => changes.push(change));
    const first = await server.catalogue();
    expect(await server.catalogue()).toBe(first);
    await server.request(tool("change"));
    await expect.poll(() => changes).toEqual(["tools"]);
    expect(await server.catalogue()).not.toBe(first);
  });

  it("stops an idle server, and starts it again for the next call", async () => {
    const server = fixture("", { timeouts: { idleMs: 150 } });
    await server.request(tool("count"));
    await expect.poll(() => server.state).toBe("idle");
    expect(textOf(await server.request(tool("count")))).toBe("1");
    expect(server.health().restarts).toBe(1);
  });
});

describe("what goes out", () => {
  it("sends the given text, with a progress token of ours only when a listener is there", async () => {
    const server = fixture("");
    const call = tool("echo", { text: "a", n: 1 });
    expect(seenBy(await server.request(call))).toEqual({ arguments: { text: "a", n: 1 }, name: "echo" });
    const meta = { meta: '{"com.example/x":{"y":1}}', trace: { traceparent: "00-1-2-03" }, hooks: { progress() {} } };
    expect(seenBy(await server.request({ ...call, ...meta }))).toMatchObject({
      _meta: { "com.example/x": { y: 1 }, traceparent: "00-1-2-03", progressToken: expect.any(Number) },
    });
  });

  it("a request may carry no more than a trace, or an empty `_meta`", async () => {
    const server = fixture("");
    const seen = async (more: object): Promise<unknown> =>
      seenBy(await server.request({ ...tool("echo"), ...more }))._meta;
    expect(await seen({ trace: { traceparent: "00-ab-cd-01", tracestate: 'a="b"', baggage: "c=d" } })).toEqual({
      traceparent: "00-ab-cd-01",
      tracestate: 'a="b"',
      baggage: "c=d",
    });
    expect(await seen({ trace: { traceparent: '"' }, meta: "{}" })).toEqual({ traceparent: '"' });
    expect(await seen({ trace: {}, meta: "{}" })).toBeUndefined();
  });

  it("a request says everything again in 2026-07-28", async () => {
    const server = fixture("modern", { clientInfo: { name: "gate", version: "2" } });
    const call = tool("echo", {}, { capabilities: '{"elicitation":{}}', logLevel: "info" });
    expect(seenBy(await server.request(call))._meta).toEqual({
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "gate", version: "2" },
      "io.modelcontextprotocol/clientCapabilities": { elicitation: {} },
      "io.modelcontextprotocol/logLevel": "info",
    });
  });

  it.each(["progressToken", "io.modelcontextprotocol/protocolVersion", "traceparent"])(
    "a request never has `_meta.%s` of the caller's",
    async (key) => {
      const server = fixture("");
      const fault = await faultOf(server.request(tool("count", {}, { meta: JSON.stringify({ [key]: "mine" }) })));
      expect(fault).toMatchObject({ type: "InvalidParams" });
      expect(textOf(await server.request(tool("count")))).toBe("1");
    },
  );

  it("a request over the size limit is not sent", async () => {
    const server = fixture("", { limits: { maxMessageBytes: 10_000 } });
    const fault = await faultOf(server.request(tool("echo", { text: "x".repeat(20_000) })));
    expect(fault).toMatchObject({ type: "TooLarge", detail: { extra: { delivered: false } } });
    expect(textOf(await server.request(tool("count")))).toBe("1");
  });

  it("a request cannot smuggle a second message in a line break", async () => {
    const server = fixture("");
    const params = '{"name":"count",\n"arguments":{}}';
    expect(textOf(await server.request({ method: "tools/call", params, timeoutMs: 1_000 }))).toBe("1");
  });
});

describe("what comes back", () => {
  it("an answer is what the server wrote, and an error of its is an answer too", async () => {
    const server = fixture("");
    const answer = await server.request(tool("nothing"));
    expect(answer).toEqual({
      kind: "error",
      text: '{"code":-32602,"message":"Unknown tool: nothing"}',
      error: { code: -32602, message: "Unknown tool: nothing" },
    });
    expect(server.health()).toMatchObject({ circuit: "closed", counts: { errors: 1, failures: 0 } });
  });

  it("before the answer goes to the call it belongs to", async () => {
    const server = fixture("");
    const progress: JsonObject[] = [];
    const logs: JsonObject[] = [];
    const hooks = { progress: (p: JsonObject) => progress.push(p), log: (p: JsonObject) => logs.push(p) };
    await server.request(tool("steps", {}, { hooks }));
    expect(progress).toEqual([1, 2, 3].map((n) => ({ progress: n, total: 3, extra: "kept" })));
    expect(logs).toEqual([{ level: "info", data: "a log line" }]);
  });

  it("drops a message that could belong to any of several calls", async () => {
    const server = fixture("");
    await server.start();
    const logs: unknown[] = [];
    const hooks = { progress() {}, log: (p: JsonObject) => logs.push(p) };
    const slow = server.request(tool("slow", { ms: 150 }));
    await server.request(tool("steps", {}, { hooks }));
    expect(logs).toEqual([]);
    expect(server.health().counts.refusedMessages).toBe(1);
    await slow;
  });

  it("lets the caller of a call answer the client request that belongs to it", async () => {
    const server = fixture("", { clientCapabilities: { elicitation: {} } });
    const asked: unknown[] = [];
    const hooks = {
      ask: async (method: string, params: JsonObject) => {
        asked.push([method, params]);
        return { action: "accept", content: { name: "Ada" } };
      },
    };
    const answer = await server.request(tool("ask", { params: { message: "who?" } }, { hooks }));
    expect(asked).toEqual([["elicitation/create", { message: "who?" }]]);
    expect(structuredOf(answer)).toEqual({ action: "accept", content: { name: "Ada" } });
  });

  it("an answer as a question is for the one call in flight, whatever we ask the server for ourselves meanwhile", async () => {
    const server = fixture("slow-lists", { clientCapabilities: { elicitation: {} } });
    await server.start();
    const listing = server.catalogue();
    const ask = async () => ({ action: "accept", content: {} });
    expect(structuredOf(await server.request(tool("ask", {}, { hooks: { ask } })))).toEqual({
      action: "accept",
      content: {},
    });
    await listing;
  });

  it("refuses a client request that no listener answers, or that could belong to any of several calls", async () => {
    const server = fixture("");
    await server.start();
    const ask = async () => ({ action: "accept" });
    expect(structuredOf(await server.request(tool("ask")))).toMatchObject({ error: { code: -32601 } });
    const slow = server.request(tool("slow", { ms: 150 }, { hooks: { ask } }));
    expect(structuredOf(await server.request(tool("ask", {}, { hooks: { ask } })))).toMatchObject({
      error: { code: -32600, message: expect.stringContaining("no single call") },
    });
    await slow;
    const other = tool("ask", { method: "tools/call" }, { hooks: { ask } });
    expect(structuredOf(await server.request(other))).toMatchObject({ error: { code: -32601 } });
  });

  it("an answer as a question for a call that was given up is not put to the next caller", async () => {
    const server = fixture("");
    await server.start();
    const first = cancellation();
    const abandoned = faultOf(server.request(tool("askAfterCancel", { ms: 100 }, { cancel: first.cancel })));
    await sleep(20);
    first.stop(new Fault("Cancelled", "gone"));
    await abandoned;
    let asked = 0;
    const hooks = { ask: async () => ({ asked: ++asked }) };
    await server.request(tool("slow", { ms: 300 }, { hooks }));
    expect(asked).toBe(0);
  });

  it("an answer as a question stops the call's clock, within a limit of its own", async () => {
    const server = fixture("", { timeouts: { questionMs: 400 } });
    await server.start();
    const late = async () => {
      await sleep(250);
      return { action: "accept" };
    };
    const answer = await server.request(tool("ask", {}, { hooks: { ask: late }, timeoutMs: 200 }));
    expect(structuredOf(answer)).toEqual({ action: "accept" });
    const never = () => new Promise<JsonObject>(() => {});
    const refused = await server.request(tool("ask", {}, { hooks: { ask: never }, timeoutMs: 200 }));
    expect(structuredOf(refused)).toMatchObject({ error: { code: -32800 } });
  });

  it("an answer as `input_required` is an answer like any other, its state untouched", async () => {
    const server = fixture("modern");
    const first = await server.request(tool("input"));
    expect(first).toMatchObject({ value: { resultType: "input_required", requestState: "opaque" } });
    const params = '{"inputResponses":{"who":{"action":"accept"}},"name":"input","requestState":"opaque"}';
    const second = await server.request({ method: "tools/call", params, name: "input", timeoutMs: 1_000 });
    expect(structuredOf(second)).toEqual({ who: { action: "accept" } });
  });
});

describe("a call", () => {
  it("a call that is cancelled is cancelled at the server, and its late answer is dropped [G5]", async () => {
    const server = fixture("");
    await server.start();
    const { cancel, stop } = cancellation();
    const call = server.request(tool("late", { ms: 100 }, { cancel }));
    await sleep(20);
    const why = new Fault("Cancelled", "changed my mind");
    stop(why);
    expect(await faultOf(call)).toBe(why);
    await sleep(150);
    const ids = structuredOf(await server.request(tool("cancelled"))).cancelled as number[];
    expect(ids).toHaveLength(1);
    expect(server.health().counts).toMatchObject({ cancelled: 1, strayAnswers: 1 });
  });

  it("a call that is cancelled before it was sent is never sent", async () => {
    const server = fixture("slow-start");
    const { cancel, stop } = cancellation();
    const call = server.request(tool("count", {}, { cancel }));
    stop(new Fault("Cancelled", "no"));
    expect(await faultOf(call)).toMatchObject({ type: "Cancelled" });
    expect(await faultOf(server.request(tool("count", {}, { cancel })))).toMatchObject({ type: "Cancelled" });
    expect(textOf(await server.request(tool("count")))).toBe("1");
  });

  it("a call that runs out of time says so, is cancelled at the server, and others go on [G5]", async () => {
    const server = fixture("");
    await server.start();
    const slow = server.request(tool("slow", { ms: 300 }));
    const fault = await faultOf(server.request(tool("hang", {}, { timeoutMs: 100 })));
    expect(fault).toMatchObject({
      type: "ToolTimeout",
      detail: { extra: { server: "fixture", delivered: true, tool_name: "hang", timeout_ms: 100 } },
    });
    expect(textOf(await slow)).toBe("slow");
    expect(structuredOf(await server.request(tool("cancelled"))).cancelled).toHaveLength(1);
  });

  it("waits for its turn, and one too many is refused", async () => {
    const server = fixture("", { limits: { maxInFlight: 2, maxQueued: 2 } });
    await server.start();
    const calls = Array.from({ length: 5 }, () => server.request(tool("slow", { ms: 60 })));
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes.map((outcome) => outcome.status)).toEqual([
      "fulfilled",
      "fulfilled",
      "fulfilled",
      "fulfilled",
      "rejected",
    ]);
    expect(server.health()).toMatchObject({ inFlight: 0, queued: 0, counts: { refused: 1 } });
  });

  it("a call that runs out of time in the queue gives its turn back", async () => {
    const server = fixture("", { limits: { maxInFlight: 1 } });
    await server.start();
    const slow = server.request(tool("slow", { ms: 150 }));
    const fault = await faultOf(server.request(tool("count", {}, { timeoutMs: 50 })));
    expect(fault).toMatchObject({ type: "ToolTimeout", detail: { extra: { delivered: false } } });
    await slow;
    expect(textOf(await server.request(tool("count")))).toBe("2");
    expect(server.health()).toMatchObject({ inFlight: 0, queued: 0 });
  });

  it("among many gets its own answer", async () => {
    const server = fixture("");
    const answers = await Promise.all(
      Array.from({ length: 500 }, (_, n) => server.request(tool("echo", { text: `n${n}` }))),
    );
    expect(answers.map(textOf)).toEqual(Array.from({ length: 500 }, (_, n) => `n${n}`));
  });
});
