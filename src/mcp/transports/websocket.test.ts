// What is particular to WebSocket; what all transports share is in transport.test.ts.

import { once } from "node:events";
import { connect } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type ClientOptions, WebSocket, WebSocketServer } from "ws";
import { Fault } from "../index.js";
import type { Malformed, TransportHandler } from "./types.js";
import { listenWebSocket, type WebSocketServerOptions, webSocketClient } from "./websocket.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

let problems: Malformed[] = [];
let texts: string[] = [];
beforeEach(() => {
  problems = [];
  texts = [];
});

const echo: TransportHandler = {
  message({ text, reply }) {
    texts.push(text);
    reply.end(text);
  },
  malformed(problem, _peer, reply) {
    problems.push(problem);
    reply.end(`"${problem.kind}"`);
  },
};

async function serve(options: WebSocketServerOptions = {}, handler: TransportHandler = echo) {
  const listener = await listenWebSocket(handler, options);
  cleanUp.push(() => listener.close(0));
  return listener;
}

/** How the server answers an upgrade: the agreed subprotocol, or the reason it refused. */
function upgrade(url: string, protocols: string[], options: ClientOptions = {}): Promise<string> {
  return new Promise((resolve) => {
    const ws = new WebSocket(url, protocols, options);
    ws.on("open", () => {
      resolve(ws.protocol);
      ws.terminate();
    });
    ws.on("error", (error) => resolve(error.message));
  });
}

async function open(url: string): Promise<WebSocket> {
  const ws = new WebSocket(url, ["mcp"]);
  ws.on("error", () => {});
  cleanUp.push(() => ws.terminate());
  await once(ws, "open");
  return ws;
}

describe("who may connect", () => {
  test("pages of other origins and rebound names may not", async () => {
    const { url } = await serve();
    expect(await upgrade(url, ["mcp"])).toBe("mcp");
    expect(await upgrade(url, ["mcp"], { origin: `http://localhost:${new URL(url).port}` })).toBe("mcp");
    expect(await upgrade(url, ["mcp"], { origin: "http://localhost:6274" })).toContain("403");
    expect(await upgrade(url, ["mcp"], { headers: { "sec-fetch-site": "same-site" } })).toContain("403");
    expect(await upgrade(url, ["mcp"], { origin: "https://evil.example" })).toContain("403");
    expect(await upgrade(url, ["mcp"], { origin: "null" })).toContain("403");
    expect(await upgrade(url, ["mcp"], { headers: { host: "evil.example" } })).toContain("403");
  });

  test("the subprotocol is mcp and the path is ours", async () => {
    const { url } = await serve();
    expect(await upgrade(url, ["chat", "mcp"])).toBe("mcp");
    expect(await upgrade(url, [])).toContain("400");
    expect(await upgrade(url, ["chat"])).toContain("400");
    expect(await upgrade(url.replace("/mcp", "/other"), ["mcp"])).toContain("404");
  });

  test("a plain request is told what this is", async () => {
    const { url } = await serve();
    const answer = await fetch(url.replace("ws:", "http:"));
    expect([answer.status, answer.headers.get("upgrade")]).toEqual([426, "websocket"]);
  });

  test("the handler sees the headers of the upgrade", async () => {
    let authorization: string | undefined;
    const { url } = await serve(
      {},
      { ...echo, connected: ({ peer }) => (authorization = peer.headers?.authorization) },
    );
    const client = webSocketClient({ url, headers: { Authorization: "Bearer x" } });
    await client.start({ message: () => {}, closed: () => {} });
    await client.close();
    expect(authorization).toBe("Bearer x");
  });
});

describe("a peer that is not authenticated", () => {
  const fault = new Fault("AuthenticationError", "unknown");
  const stranger: TransportHandler = {
    ...echo,
    admit: ({ headers }) =>
      headers?.authorization === "Bearer right"
        ? {}
        : {
            maxBytes: 1_000,
            fault,
            refuse: (reply) => reply.end('"refused"', { status: 401, headers: { "www-authenticate": "Bearer" } }),
          },
  };

  test("a peer that is not authenticated is refused at the upgrade when it shows a wrong key, and not when it shows none [U12]", async () => {
    const { url } = await serve({}, stranger);
    const bearer = (key: string): ClientOptions => ({ headers: { authorization: `Bearer ${key}` } });
    expect(await upgrade(url, ["mcp"], bearer("wrong"))).toBe("Unexpected server response: 401");
    expect(await upgrade(url, ["mcp"], bearer("right"))).toBe("mcp");
    expect(await upgrade(url, ["mcp"])).toBe("mcp");
  });

  test("a peer that is not authenticated may send messages of the small limit, and the rest of a longer one is not read", async () => {
    const { url } = await serve({}, stranger);
    const ws = await open(url);
    const answered = once(ws, "message");
    const closed = once(ws, "close");
    ws.send(`"${"x".repeat(3_000_000)}"`);
    expect(String((await answered)[0])).toBe('"refused"');
    await closed;
    expect(texts).toEqual([]);
  }, 60_000);
});

describe("frames", () => {
  test("an unfinished message is cut off after its time [U12]", async () => {
    const { url } = await serve({ limits: { bodyMs: 50, idleMs: 2_000 } });
    const ws = await open(url);
    const closed = once(ws, "close");
    ws.send(`"${"x".repeat(10_000)}`, { fin: false });
    await closed;
    expect(texts).toEqual([]);
  }, 60_000);

  test("unfinished messages together have a cap, and a connection that ends gives its part back", async () => {
    const { url } = await serve({ limits: { maxPartialBytes: 1_000_000 } });
    const first = await open(url);
    first.send("x".repeat(600_000), { fin: false });
    // Read after what the first connection sent before.
    first.ping();
    await once(first, "pong");
    const second = await open(url);
    second.send("x".repeat(600_000), { fin: false });
    await once(second, "close");
    first.terminate();
    const third = await open(url);
    third.send("x".repeat(600_000), { fin: false });
    third.send('"', { fin: true });
    expect(String((await once(third, "message"))[0])).toHaveLength(600_001);
  });

  test("a binary frame is reported, answered, and ends the connection with 1003", async () => {
    const ws = await open((await serve()).url);
    const heard: string[] = [];
    ws.on("message", (data: Buffer) => heard.push(data.toString()));
    ws.send(Buffer.from("[1]"), { binary: true });
    const [code] = await once(ws, "close");
    expect([code, heard, texts]).toEqual([1003, ['"binary-frame"'], []]);
  });

  test("a frame over the cap ends the connection with 1009, text that is not UTF-8 with 1007", async () => {
    const { url } = await serve({ limits: { maxMessageBytes: 100 } });
    const large = await open(url);
    large.send("x".repeat(101));
    expect((await once(large, "close"))[0]).toBe(1009);
    const fragments = await open(url);
    for (let i = 0; i < 11; i++) fragments.send("x".repeat(10), { fin: false });
    expect((await once(fragments, "close"))[0]).toBe(1009);
    const undecodable = await open(url);
    undecodable.send(Buffer.from([0xff]), { binary: false });
    expect((await once(undecodable, "close"))[0]).toBe(1007);
    expect(problems.map((problem) => problem.kind)).toEqual(["too-large", "too-large", "not-utf8"]);
    expect(texts).toEqual([]);
  });

  test("compression is not offered unless asked for", async () => {
    const ws = await open((await serve()).url);
    expect(ws.extensions).toBe("");
    const compressing = await open((await serve({ perMessageDeflate: true })).url);
    expect(compressing.extensions).toContain("permessage-deflate");
  });
});

describe("a peer that vanished", () => {
  test("a peer that vanished is noticed by the server when it stops answering pings", async () => {
    let aborts = 0;
    const listener = await serve({ pingMs: 50 }, { message: ({ reply }) => reply.onAbort(() => aborts++) });
    const { port } = new URL(listener.url);
    const socket = connect(Number(port), "127.0.0.1");
    cleanUp.push(() => socket.destroy());
    const head = `GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n`;
    socket.write(
      `${head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${"A".repeat(22)}==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n`,
    );
    await once(socket, "data");
    // A masked text frame "[1]" with an all-zero mask; then silence, as from a laptop that was closed.
    socket.write(Buffer.from([0x81, 0x83, 0, 0, 0, 0, 0x5b, 0x31, 0x5d]));
    socket.resume();
    await once(socket, "close");
    expect(aborts).toBe(1);
    while (listener.connections > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  });

  test("a peer that vanished is noticed by the client when the server stops answering pings", async () => {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", autoPong: false });
    cleanUp.push(() => {
      for (const ws of server.clients) ws.terminate();
      server.close();
    });
    await once(server, "listening");
    const { port } = server.address() as { port: number };
    const client = webSocketClient({ url: `ws://127.0.0.1:${port}`, pingMs: 50 });
    const closed = new Promise<Error | undefined>((resolve) => {
      void client.start({ message: () => {}, closed: resolve });
    });
    expect(await closed).toMatchObject({ kind: "closed" });
  });

  test("a client that answers pings stays", async () => {
    // Long enough to answer in on a busy machine.
    const listener = await serve({ pingMs: 400 });
    const client = webSocketClient({ url: listener.url, pingMs: 400 });
    let closes = 0;
    await client.start({ message: () => {}, closed: () => closes++ });
    cleanUp.push(() => client.close());
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect([closes, listener.connections]).toEqual([0, 1]);
  });
});

test("a server that is not there, or is none of ours, is an error with its address", async () => {
  const events = { message: () => {}, closed: () => {} };
  const { url } = await serve({ path: "/other" });
  for (const target of ["ws://127.0.0.1:1/mcp", url.replace("/other", "/mcp")]) {
    await expect(webSocketClient({ url: target }).start(events)).rejects.toMatchObject({
      kind: "unreachable",
      message: expect.stringContaining(target),
    });
  }
  await expect(webSocketClient({ url }).send("[1]")).rejects.toMatchObject({ kind: "closed" });
});

describe("frames that cost more than they carry", () => {
  test("a message in more fragments than allowed ends the connection", async () => {
    const { url } = await serve();
    const ws = new WebSocket(url, ["mcp"]);
    cleanUp.push(() => ws.terminate());
    ws.on("error", () => {});
    await once(ws, "open");
    for (let i = 0; i < 300; i++) ws.send("[", { fin: false });
    const [code] = await once(ws, "close");
    expect(code).toBe(1008);
    expect(texts).toEqual([]);
  });

  test("a peer that sends pings without pause is cut off", async () => {
    const { url } = await serve();
    const ws = new WebSocket(url, ["mcp"]);
    cleanUp.push(() => ws.terminate());
    ws.on("error", () => {});
    await once(ws, "open");
    const answered = vi.spyOn(WebSocket.prototype, "pong");
    cleanUp.push(() => answered.mockRestore());
    let pongs = 0;
    ws.on("pong", () => pongs++);
    for (let i = 0; i < 5_000; i++) ws.ping("x");
    await once(ws, "close");
    expect(pongs).toBeLessThan(5_000);
    // Also of those that were read together with the one too many.
    expect(answered.mock.calls.length).toBeLessThan(1_000);
  });

  test("pings between messages are answered, and count for none of them", async () => {
    const { url } = await serve({ limits: { maxPartialBytes: 40 * 1024 } });
    const ws = new WebSocket(url, ["mcp"]);
    cleanUp.push(() => ws.terminate());
    await once(ws, "open");
    const answered = new Promise<void>((resolve) => {
      let pongs = 0;
      ws.on("pong", () => ++pongs === 90 && resolve());
    });
    for (let i = 0; i < 90; i++) ws.ping("x".repeat(120));
    await answered;
    ws.send("[1]");
    const [answer] = await once(ws, "message");
    expect(String(answer)).toBe("[1]");
  });
});
