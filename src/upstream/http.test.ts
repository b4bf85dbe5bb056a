// HTTP servers that misbehave, and the requests that they get.

import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { Fault, type JsonObject } from "../mcp/index.js";
import { createDialer } from "./dialer.js";
import { cancellation, closeAll, faultOf, structuredOf, textOf, tool, upstream } from "./fixtures/calling.js";
import { type Asked, DISCOVERED, INITIALIZED, type RawHttp, rawHttp } from "./fixtures/raw-http.js";
import type { Upstream, UpstreamOptions } from "./types.js";

const dialer = createDialer({ allow: ["127.0.0.1"] });
const open: RawHttp[] = [];
afterEach(async () => {
  await closeAll();
  for (const each of open.splice(0)) await each.close();
});

type Handler = (asked: Asked) => unknown;
const DONE = { content: [{ type: "text", text: "done" }], resultType: "complete" };

async function serve(
  answer: Handler,
  options: Partial<UpstreamOptions> = {},
  other?: Parameters<typeof rawHttp>[1],
  transport: "http" | "sse" = "http",
): Promise<{ server: Upstream; raw: RawHttp }> {
  const raw = await rawHttp(answer, other);
  open.push(raw);
  return { raw, server: upstream({ name: "raw", target: { transport, url: raw.url }, dialer, ...options }) };
}

const modern =
  (call: Handler): Handler =>
  (asked) =>
    asked.method === "server/discover" ? asked.result(DISCOVERED) : call(asked);

const legacy =
  (call: Handler, session?: string): Handler =>
  (asked) => {
    if (asked.method === "server/discover") return asked.error(400, { code: -32000, message: "no session" });
    if (asked.method !== "initialize") return call(asked);
    return asked.result(INITIALIZED, session === undefined ? {} : { "mcp-session-id": session });
  };

describe("a request to a modern server", () => {
  it("a request to a modern server says in its head what its body says, and nothing that is not the caller's to say", async () => {
    const { server, raw } = await serve(
      modern((asked) => asked.result(DONE)),
      { credentials: { headers: () => ({ authorization: "Bearer ours" }) } },
    );
    const headers = { "mcp-param-city": "Köln", authorization: "Bearer theirs", "mcp-method": "x", cookie: "c" };
    await server.request(tool("naïve", {}, { headers }));
    const sent = raw.requests.at(-1);
    expect(sent?.headers).toMatchObject({
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": `=?base64?${Buffer.from("naïve").toString("base64")}?=`,
      "mcp-param-city": `=?base64?${Buffer.from("Köln").toString("base64")}?=`,
      authorization: "Bearer ours",
      accept: "application/json, text/event-stream",
    });
    expect(sent?.headers).not.toHaveProperty("cookie");
    expect(sent?.headers).not.toHaveProperty("mcp-session-id");
  });

  it("a request to a modern server that is given up closes its stream, and says nothing else", async () => {
    let closed = false;
    const { server, raw } = await serve(
      modern((asked) => {
        asked.stream();
        asked.response.on("close", () => {
          closed = true;
        });
      }),
    );
    await server.start();
    const before = raw.requests.length;
    const { cancel, stop } = cancellation();
    const call = faultOf(server.request(tool("wait", {}, { cancel })));
    await expect.poll(() => raw.requests.length).toBe(before + 1);
    stop(new Fault("Cancelled", "enough"));
    await call;
    await expect.poll(() => closed).toBe(true);
    expect(raw.requests.length).toBe(before + 1);
  });

  it("a request to a modern server whose credentials are refused is tried once more with new ones, if there are any", async () => {
    let token = "old";
    const challenges: unknown[] = [];
    const { server, raw } = await serve(
      modern((asked) => {
        if (asked.request.headers.authorization === "Bearer new") return asked.result(DONE);
        asked.response.setHeader("www-authenticate", 'Bearer scope="more"');
        return asked.error(403, { code: -1, message: "no" });
      }),
      {
        credentials: {
          headers: async () => ({ authorization: `Bearer ${token}` }),
          refused: async (challenge) => {
            challenges.push(challenge);
            token = token === "old" ? "new" : "none";
            return token === "new";
          },
        },
      },
    );
    expect(textOf(await server.request(tool("x")))).toBe("done");
    expect(challenges).toEqual([{ status: 403, wwwAuthenticate: 'Bearer scope="more"', dpopNonce: undefined }]);
    token = "gone";
    const fault = await faultOf(server.request(tool("x")));
    expect(fault).toMatchObject({ type: "Unavailable", detail: { extra: { status: 403, delivered: false } } });
    expect(raw.requests.filter((each) => each.method === "tools/call")).toHaveLength(3);
    expect(server.health().circuit).toBe("closed");
  });
});

describe("a server whose credentials are missing from the start", () => {
  it("a server whose credentials are missing from the start is asked again, in the same revision, when there are new ones", async () => {
    let token = "old";
    const { server, raw } = await serve(
      (asked) => {
        if (asked.request.headers.authorization !== "Bearer new") return asked.error(401, undefined);
        return asked.result(asked.method === "server/discover" ? DISCOVERED : DONE);
      },
      {
        credentials: {
          headers: () => ({ authorization: `Bearer ${token}` }),
          refused: async () => {
            token = "new";
            return true;
          },
        },
      },
    );
    expect(textOf(await server.request(tool("x")))).toBe("done");
    expect(raw.requests.map((each) => [each.method, each.headers["mcp-protocol-version"]])).toEqual([
      ["server/discover", "2026-07-28"],
      ["server/discover", "2026-07-28"],
      ["tools/call", "2026-07-28"],
    ]);
  });

  it("a server whose credentials are missing from the start says so when there are none", async () => {
    const { server } = await serve((asked) => asked.error(401, undefined));
    expect(await faultOf(server.request(tool("x")))).toMatchObject({
      type: "Unavailable",
      message: expect.stringContaining("does not accept our credentials (HTTP 401)"),
    });
  });
});

describe("credentials that are good for one request", () => {
  it("credentials that are good for one request are made for each, by its method, and tried again with new ones", async () => {
    const made: string[] = [];
    let refusals = 0;
    const { server, raw } = await serve(
      legacy((asked) => {
        if (refusals++ > 0) return asked.result(DONE);
        asked.response.setHeader("dpop-nonce", "n1");
        return asked.error(401, undefined);
      }, "session"),
      {
        credentials: {
          headers: async (method) => ({ dpop: `${method} ${made.push(method)}` }),
          refused: async ({ dpopNonce }) => dpopNonce === "n1",
        },
      },
    );
    const theirs = { headers: { dpop: "theirs" } };
    expect(textOf(await server.request(tool("x", {}, theirs)))).toBe("done");
    await server.close();
    await expect.poll(() => raw.requests.at(-1)?.verb).toBe("DELETE");
    const sent = raw.requests.map(({ verb, headers }) => [verb, headers.dpop]);
    expect(new Set(sent.map(([, proof]) => proof)).size).toBe(sent.length);
    for (const [method, proof] of sent) expect(proof).toMatch(new RegExp(`^${method} \\d+$`));
    expect(new Set(sent.map(([method]) => method))).toEqual(new Set(["POST", "GET", "DELETE"]));
  });
});

describe("credentials for a server of 2024-11-05", () => {
  it("credentials for a server of 2024-11-05 are made for the stream's address, and for the one that it names", async () => {
    const made: string[] = [];
    let stream: ServerResponse | undefined;
    const { server } = await serve(
      ({ id, method, response }) => {
        const result = method === "initialize" ? { ...INITIALIZED, protocolVersion: "2024-11-05" } : DONE;
        response.writeHead(202).end();
        stream?.write(`data: ${JSON.stringify({ jsonrpc: "2.0", id, result })}\n\n`);
      },
      {
        revision: "2024-11-05",
        credentials: { headers: (method, path) => ({ dpop: `${method} ${path} ${made.push(`${method} ${path}`)}` }) },
      },
      ({ method }, response) => {
        if (method !== "GET") return false;
        stream = response;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("event: endpoint\ndata: /messages?id=1\n\n");
        return true;
      },
      "sse",
    );
    expect(textOf(await server.request(tool("x")))).toBe("done");
    expect(made.slice(0, 2)).toEqual(["GET undefined", "POST /messages?id=1"]);
    expect(new Set(made.slice(1))).toEqual(new Set(["POST /messages?id=1"]));
  });
});

describe("an HTTP server that", () => {
  it.each<[string, Handler, string, RegExp]>([
    ["is in trouble", (a) => a.response.writeHead(500).end("<h1>oops"), "IoError", /HTTP 500/],
    ["asks for a rest", (a) => a.response.writeHead(503, { "retry-after": "7" }).end(), "Unavailable", /HTTP 503/],
    ["sends us away", (a) => a.response.writeHead(302, { location: "http://x/" }).end(), "ToolExecution", /redirects/],
    ["answers 202", (a) => a.response.writeHead(202).end(), "ToolExecution", /202 without an answer/],
    [
      "answers HTML",
      (a) => a.response.writeHead(200, { "content-type": "text/html" }).end("<p>"),
      "ToolExecution",
      /200/,
    ],
    ["answers half", (a) => halfAnswer(a), "IoError", /lost before it answered/],
    ["answers no JSON", (a) => jsonText(a, "{nope"), "ToolExecution", /nonsense/],
    ["answers another id", (a) => jsonText(a, '{"jsonrpc":"2.0","id":999,"result":{}}'), "ToolExecution", /200/],
    ["answers a list", (a) => jsonText(a, "[]"), "ToolExecution", /200/],
    ["answers a string", (a) => jsonText(a, '"x"'), "ToolExecution", /nonsense/],
    ["answers too much", (a) => jsonText(a, `"${"x".repeat(300_000)}"`), "TooLarge", /100000 bytes/],
    ["answers Latin-1", (a) => jsonText(a, Buffer.from('{"x":"\xe9"}', "latin1")), "IoError", /UTF-8/],
    ["answers in gzip", (a) => a.response.writeHead(200, { "content-encoding": "gzip" }).end("x"), "IoError", /gzip/],
    ["ends its stream", (a) => (a.stream(), a.response.end()), "IoError", /ended without an answer/],
    [
      "streams an endless event",
      (a) => (a.stream(), a.response.write(`data: ${"x".repeat(300_000)}`)),
      "TooLarge",
      /cap/,
    ],
    ["streams nonsense", (a) => (a.stream(), a.event("nope")), "ToolExecution", /nonsense/],
    ["hangs up", (a) => a.request.socket.destroy(), "IoError", /lost before it answered/],
  ])("%s fails that call and no other", async (_, habit, type, reason) => {
    const { server } = await serve(
      modern((asked) => (asked.params.name === "bad" ? habit(asked) : setTimeout(() => asked.result(DONE), 60))),
      { limits: { maxMessageBytes: 100_000 } },
    );
    await server.start();
    const other = server.request(tool("good"));
    const fault = await faultOf(server.request(tool("bad", {}, { timeoutMs: 2_000 })));
    expect(fault.message).toMatch(reason);
    expect(fault).toMatchObject({ type, detail: { extra: { server: "raw" } } });
    expect(textOf(await other)).toBe("done");
    expect(textOf(await server.request(tool("good")))).toBe("done");
  });

  it("errors with a status and a JSON-RPC error has answered", async () => {
    const { server } = await serve(modern((asked) => asked.error(404, { code: -32601, message: "no such thing" })));
    expect(await server.request(tool("x"))).toMatchObject({ kind: "error", error: { code: -32601 } });
    expect(server.health().counts).toMatchObject({ errors: 1, failures: 0 });
  });

  it("ends a stream that continues after its answer", async () => {
    let closed = false;
    const { server } = await serve(
      modern((asked) => {
        asked.stream();
        asked.resultEvent(DONE);
        asked.resultEvent({ content: [] });
        asked.response.on("close", () => {
          closed = true;
        });
      }),
    );
    expect(textOf(await server.request(tool("x")))).toBe("done");
    await expect.poll(() => closed).toBe(true);
    expect(server.health().counts.strayAnswers).toBe(1);
  });

  it("an HTTP server that answers a call in the stream of another is not believed", async () => {
    const held: Asked[] = [];
    const { server } = await serve(
      modern((asked) => {
        asked.stream();
        if (held.push(asked) < 2) return;
        const [first, second] = held as [Asked, Asked];
        // The first caller's stream carries an answer for the second, and progress too.
        first.event({ jsonrpc: "2.0", id: second.id, result: { content: [{ type: "text", text: "stolen" }] } });
        const params = { progressToken: second.id, progress: 1 };
        first.event({ jsonrpc: "2.0", method: "notifications/progress", params });
        first.resultEvent(DONE);
        setTimeout(() => second.resultEvent(DONE), 50);
      }),
    );
    await server.start();
    const progress: unknown[] = [];
    const hooks = { progress: (params: JsonObject) => progress.push(params) };
    const both = [server.request(tool("a", {}, { hooks })), server.request(tool("b", {}, { hooks }))];
    expect((await Promise.all(both)).map(textOf)).toEqual(["done", "done"]);
    expect(progress).toEqual([]);
    expect(server.health().counts).toMatchObject({ strayAnswers: 1, refusedMessages: 1 });
  });

  it("an HTTP server that cannot be reached is not called for a while after some tries, and comes back", async () => {
    const { server, raw } = await serve(
      modern((asked) => asked.result(DONE)),
      {
        limits: { failuresToOpen: 2 },
        timeouts: { backoffMs: 150 },
      },
    );
    await server.request(tool("x"));
    await raw.close();
    for (let n = 0; n < 2; n++) expect(await faultOf(server.request(tool("x")))).toBeInstanceOf(Fault);
    expect(server.health().circuit).toBe("open");
    const again = await rawHttpAt(new URL(raw.url).port);
    open.push(again);
    await sleep(180);
    expect(textOf(await server.request(tool("x")))).toBe("done");
    expect(server.health().circuit).toBe("closed");
  });

  it("an HTTP server that is at a loopback address is not reached unless that was allowed", async () => {
    const { server } = await serve(
      modern((asked) => asked.result(DONE)),
      { dialer: createDialer() },
    );
    expect(await faultOf(server.request(tool("x")))).toMatchObject({ type: "PolicyDeny" });
  });
});

async function rawHttpAt(port: string): Promise<RawHttp> {
  const { createServer } = await import("node:http");
  const server = createServer((_, response) => {
    let body = "";
    _.on("data", (chunk) => {
      body += String(chunk);
    }).on("end", () => {
      const { id } = JSON.parse(body) as { id: number };
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id, result: DONE }));
    });
  });
  await new Promise<void>((resolve) => server.listen(Number(port), "127.0.0.1", resolve));
  const close = (): Promise<void> => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  };
  return { url: "", requests: [], close };
}

function jsonText(asked: Asked, text: string | Buffer): void {
  asked.response.writeHead(200, { "content-type": "application/json" }).end(text);
}

function halfAnswer(asked: Asked): void {
  asked.response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
  asked.response.write('{"jsonrpc":"2.0",', () => asked.request.socket.destroy());
}

describe("a legacy server", () => {
  it("a legacy server whose stream breaks is asked for the rest, with the id of the last event", async () => {
    let asked: Asked | undefined;
    const { server, raw } = await serve(
      legacy((call) => {
        asked = call;
        call.response.writeHead(200, { "content-type": "text/event-stream" });
        call.response.write("retry: 20\nid: e1\ndata:\n\n", () => call.request.socket.destroy());
      }),
      {},
      (request, response) => {
        if (request.method !== "GET" || request.headers["last-event-id"] !== "e1") return false;
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(`id: e2\ndata: ${JSON.stringify({ jsonrpc: "2.0", id: asked?.id, result: DONE })}\n\n`);
        return true;
      },
    );
    expect(textOf(await server.request(tool("x")))).toBe("done");
    expect(raw.requests.filter((each) => each.method === "tools/call")).toHaveLength(1);
  });

  it("a legacy server that cannot give the rest fails the call, after some tries", async () => {
    const { server } = await serve(
      legacy((call) => {
        call.response.writeHead(200, { "content-type": "text/event-stream" });
        call.response.write("retry: 5\nid: e1\ndata:\n\n", () => call.request.socket.destroy());
      }),
      { limits: { maxResumes: 2 } },
      (request, response) => {
        if (request.method !== "GET" || request.headers["last-event-id"] === undefined) return false;
        response.writeHead(500).end();
        return true;
      },
    );
    expect(await faultOf(server.request(tool("x")))).toMatchObject({
      type: "IoError",
      message: expect.stringContaining("could not be picked up"),
    });
  });

  it("a legacy server is told when a call is given up, and asks on the call's own stream", async () => {
    const answered: string[] = [];
    const { server, raw } = await serve(
      legacy((call) => {
        call.stream();
        if (call.params.name === "hang") return;
        call.event({ jsonrpc: "2.0", id: "q1", method: "elicitation/create", params: { message: "who?" } });
        const timer = setInterval(() => {
          const reply = raw.requests.find((each) => each.body.includes('"id":"q1"'));
          if (reply === undefined) return;
          clearInterval(timer);
          answered.push(reply.body);
          call.resultEvent({ content: [], structuredContent: { replied: true } });
        }, 10);
      }, "s1"),
    );
    const ask = async () => ({ action: "accept" });
    await server.start();
    const { cancel, stop } = cancellation();
    // Two calls at once, and still everybody knows whose question it is.
    const hung = faultOf(server.request(tool("hang", {}, { cancel })));
    const answer = await server.request(tool("ask", {}, { hooks: { ask } }));
    expect(structuredOf(answer)).toEqual({ replied: true });
    expect(answered).toEqual(['{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}']);
    stop(new Fault("Cancelled", "enough"));
    await hung;
    await expect.poll(() => raw.requests.some((each) => each.method === "notifications/cancelled")).toBe(true);
    for (const each of raw.requests.slice(3)) expect(each.headers["mcp-session-id"]).toBe("s1");
  });

  it("a legacy server with a session id that could split a head is not talked to", async () => {
    const { server } = await serve(legacy((call) => call.result(DONE), "x y"));
    expect(await faultOf(server.request(tool("x")))).toMatchObject({ message: expect.stringContaining("session id") });
  });
});
