import { afterEach, describe, expect, it } from "vitest";
import type { JsonObject } from "../index.js";
import { httpClient } from "../transports/index.js";
import { ClientConversation, type HowToAsk, paramsText } from "./conversation.js";
import { McpError, ProtocolError, ToolFailure } from "./errors.js";
import {
  closeAll,
  type Exchange,
  modern,
  overHttp,
  overMemory,
  type Script,
  scripted,
  until,
} from "./fixtures/scripted.js";
import type { ConnectOptions } from "./options.js";

const open: ClientConversation[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((conversation) => conversation.close()));
  await closeAll();
});

async function opened(conversation: ClientConversation): Promise<ClientConversation> {
  open.push(conversation);
  await conversation.open();
  return conversation;
}

const NO_EVENTS = { notification() {}, change() {}, renewed() {} };

async function linkTo(script: Script["message"], options: ConnectOptions = {}) {
  const server = scripted(modern(script));
  const link = await opened(new ClientConversation((await overMemory(server)).client(), options, NO_EVENTS));
  return { link, server };
}

function call(link: ClientConversation, name = "t", how: Partial<HowToAsk> = {}): Promise<JsonObject> {
  return link.request("tools/call", { name }, { timeoutMs: 5_000, ...how });
}

describe("answers", () => {
  it("answers are matched by their own id whatever the order they come in", async () => {
    const held: Exchange[] = [];
    const { link } = await linkTo((exchange) => {
      held.push(exchange);
      if (held.length === 3) for (const one of held.reverse()) one.result({ for: one.message.params?.name });
    });
    const names = ["a", "b", "c"];
    const answers = await Promise.all(names.map((name) => call(link, name)));
    expect(answers.map((answer) => answer.for)).toEqual(names);
    expect(link.stats).toEqual({ strayAnswers: 0, malformed: 0, unexpectedRequests: 0 });
  });

  it("answers that come twice, to no request or with a look-alike id are dropped and counted", async () => {
    const { link } = await linkTo((exchange) => {
      const { id } = exchange.message;
      exchange.send({ jsonrpc: "2.0", id: String(id), result: { forged: "by string id" } });
      exchange.send({ jsonrpc: "2.0", id: 9_999, result: { forged: "by another id" } });
      exchange.send({ jsonrpc: "2.0", id, result: { right: true } });
      exchange.result({ forged: "by a second answer" });
    });
    expect(await call(link)).toEqual({ right: true });
    await until(() => link.stats.strayAnswers === 3);
  });

  it("answers keep unknown fields, and integers that JavaScript rounds do not fail the request", async () => {
    const { link } = await linkTo((exchange) =>
      exchange.end(
        `{"jsonrpc":"2.0","id":${exchange.message.id},"result":{"new":{"x":[1]},"big":12345678901234567890}}`,
      ),
    );
    expect(await call(link)).toEqual({ new: { x: [1] }, big: Number("12345678901234567890") });
  });

  it("answers that are not JSON, not a message or nested without end are counted and stop nothing", async () => {
    const { link } = await linkTo((exchange) => {
      exchange.send("not json");
      exchange.send('{"jsonrpc":"1.0"}');
      exchange.send("[".repeat(200) + "]".repeat(200));
      exchange.send(`[{"jsonrpc":"2.0","id":${exchange.message.id},"result":{"in":"a batch that was not asked for"}}]`);
      exchange.result({ ok: true });
    });
    expect(await call(link)).toEqual({ ok: true });
    expect(link.stats.malformed).toBe(4);
  });

  it("answers that are nested without end fail their own request at once, however their server writes them", async () => {
    const deep = `{"x":${"[".repeat(200)}${"]".repeat(200)}}`;
    for (const write of [
      (id: unknown) => `{"jsonrpc":"2.0","id":${id},"result":${deep}}`,
      (id: unknown) => `{"result":${deep},"jsonrpc":"2.0","id":${id}}`,
    ]) {
      const { link } = await linkTo((exchange) => exchange.end(write(exchange.message.id)));
      const [first, second] = await Promise.allSettled([call(link), call(link)]);
      for (const each of [first, second]) {
        expect(each).toMatchObject({ status: "rejected", reason: { code: "TOO_LARGE" } });
      }
    }
  });

  it("answers whose result is not an object fail the request at once", async () => {
    const { link } = await linkTo((exchange) => exchange.end({ jsonrpc: "2.0", id: exchange.message.id, result: 7 }));
    await expect(call(link)).rejects.toMatchObject({ family: "protocol", code: "INVALID_REQUEST" });
  });

  it("answers that are errors keep code, message and data", async () => {
    const { link } = await linkTo((exchange) => exchange.error(-32602, "no such thing", { hint: "x" }));
    const error = await call(link).catch((e: McpError) => e);
    expect(error).toBeInstanceOf(ProtocolError);
    expect(error).toMatchObject({
      code: "INVALID_PARAMS",
      wireCode: -32602,
      data: { hint: "x" },
      message: "no such thing",
    });
  });

  it("answers that are errors show what to do and which rule it was where code looks for them", async () => {
    const data = { suggestions: ["ask for less", 7], rule: "no-shell" };
    const { link } = await linkTo((exchange) => exchange.error(-32602, "no such thing", data));
    const error = await call(link).catch((e: McpError) => e);
    expect(error).toMatchObject({ suggestions: ["ask for less"], rules: [{ id: "no-shell" }], data });
  });
});

describe("a request", () => {
  it("a request that is not answered in time fails, is cancelled, and its late answer is dropped", async () => {
    let late: Exchange | undefined;
    const { link, server } = await linkTo((exchange) => {
      late = exchange;
    });
    const error = await call(link, "t", { timeoutMs: 50 }).catch((e: McpError) => e);
    expect(error).toBeInstanceOf(ToolFailure);
    expect(error).toMatchObject({
      code: "TIMEOUT",
      family: "tool",
      message: "tools/call was not answered within 50 ms",
    });
    await until(() => server.count("notifications/cancelled") === 1);
    expect(server.seen.at(-1)?.params?.requestId).toBe(late?.message.id);
    late?.result({ too: "late" });
    await until(() => link.stats.strayAnswers === 1);
  });

  it("lives on while it reports progress, but not past the total", async () => {
    const reports: number[] = [];
    let timer: NodeJS.Timeout | undefined;
    const { link } = await linkTo(
      (exchange) => {
        let progress = 0;
        const progressToken = exchange.message.params?._meta?.progressToken;
        timer = setInterval(() => {
          exchange.send({
            jsonrpc: "2.0",
            method: "notifications/progress",
            params: { progressToken, progress: ++progress },
          });
          if (progress === 6 && exchange.message.params?.name === "ends") exchange.result({ ok: true });
        }, 100);
      },
      { timeouts: { totalMs: 2_000 } },
    );
    const onProgress = ({ progress }: { progress: number }): number => reports.push(progress);
    const answer = await call(link, "ends", { timeoutMs: 1_500, onProgress });
    clearInterval(timer);
    expect(answer).toEqual({ ok: true });
    expect(reports).toEqual([1, 2, 3, 4, 5, 6]);
    const endless = call(link, "endless", { timeoutMs: 1_500 });
    await expect(endless).rejects.toMatchObject({ code: "TIMEOUT" });
    clearInterval(timer);
  });

  it("a request ends when its caller aborts it, before or after it was sent", async () => {
    const { link, server } = await linkTo(() => {});
    const already = AbortSignal.abort(new Error("changed my mind"));
    await expect(call(link, "t", { signal: already })).rejects.toMatchObject({ code: "CANCELLED" });
    expect(server.count("tools/call")).toBe(0);
    const stop = new AbortController();
    const request = call(link, "t", { signal: stop.signal });
    await until(() => server.count("tools/call") === 1);
    stop.abort();
    await expect(request).rejects.toMatchObject({ code: "CANCELLED", family: "tool" });
    await until(() => server.count("notifications/cancelled") === 1);
  });

  it("over the size limit is a protocol error and nothing is sent", async () => {
    const { link, server } = await linkTo((exchange) => exchange.result({}), { limits: { maxMessageBytes: 1_000 } });
    await expect(call(link, "é".repeat(600))).rejects.toMatchObject({
      family: "protocol",
      code: "TOO_LARGE",
    });
    expect(server.count("tools/call")).toBe(0);
    await expect(call(link, "é".repeat(300))).resolves.toBeDefined();
  });

  it("waits its turn, and one too many is refused", async () => {
    const held: Exchange[] = [];
    const { link } = await linkTo((exchange) => held.push(exchange), { limits: { maxInFlight: 2, maxQueued: 1 } });
    const [first, second, third] = [call(link), call(link), call(link)];
    await expect(call(link)).rejects.toMatchObject({ code: "TOO_MANY", retryable: true });
    await until(() => held.length === 2);
    held[0]?.result({ n: 1 });
    await first;
    await until(() => held.length === 3);
    held[1]?.result({ n: 2 });
    held[2]?.result({ n: 3 });
    expect(await third).toEqual({ n: 3 });
    await second;
  });

  it("fails when the server goes away, and so does every later one", async () => {
    const { link } = await linkTo((exchange) => exchange.inbound.channel?.close());
    await expect(call(link)).rejects.toMatchObject({ family: "protocol", code: "IO_ERROR" });
    expect(link.over).toBe(true);
    await expect(call(link)).rejects.toMatchObject({ code: "IO_ERROR" });
  });
});

describe("on HTTP", () => {
  async function httpLink(script: Script["message"]): Promise<ClientConversation> {
    const transport = httpClient({ url: await overHttp(scripted(modern(script))) });
    return opened(new ClientConversation(transport, {}, NO_EVENTS));
  }

  it("an error that names no request belongs to the request whose response it came in", async () => {
    const link = await httpLink((exchange) => {
      const code = exchange.message.params?.name === "a" ? -32020 : -32022;
      exchange.end({ jsonrpc: "2.0", id: null, error: { code, message: "no" } }, 400);
    });
    const [a, b] = await Promise.allSettled(["a", "b"].map((name) => call(link, name)));
    expect(a).toMatchObject({ reason: { code: "HEADER_MISMATCH", status: 400 } });
    expect(b).toMatchObject({ reason: { code: "UNSUPPORTED_VERSION", status: 400 } });
  });

  it.each([
    [401, "policy", "UNAUTHENTICATED"],
    [403, "policy", "FORBIDDEN"],
    [413, "protocol", "TOO_LARGE"],
    [429, "policy", "RATE_LIMITED"],
    [500, "protocol", "INTERNAL"],
    [404, "protocol", "INVALID_REQUEST"],
  ])("status %i without an answer is %s %s", async (status, family, code) => {
    const link = await httpLink((exchange) => exchange.end("<html>", status));
    await expect(call(link)).rejects.toMatchObject({ family, code, status });
  });

  it("a response that ends without the answer fails the request at once", async () => {
    const link = await httpLink((exchange) => {
      exchange.inbound.reply.open();
      exchange.end();
    });
    await expect(call(link)).rejects.toMatchObject({ family: "protocol", status: 200 });
  });
});

describe("parameters", () => {
  it("parameters carry canonical arguments exactly as they were hashed", () => {
    expect(paramsText({ name: "t" }, '{"10":1,"9":2}')).toBe('{"arguments":{"10":1,"9":2},"name":"t"}');
    expect(paramsText({}, "{}")).toBe('{"arguments":{}}');
  });
});
