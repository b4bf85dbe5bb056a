// What is particular to HTTP; what all transports share is in transport.test.ts.

import { spawnSync } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { IncomingMessage, request as plainRequest } from "node:http";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { CERTIFICATE, KEY } from "../../upstream/fixtures/certificate.js";
import { type HttpClientOptions, type HttpServerOptions, httpClient, listenHttp } from "./http.js";
import type { ClientEvents, HttpRequest, Inbound, Listener, Malformed, Reply, TransportHandler } from "./types.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

interface Answer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

let reached: (Inbound | HttpRequest)[] = [];
beforeEach(() => {
  reached = [];
});

const echo: TransportHandler = {
  message(inbound) {
    reached.push(inbound);
    inbound.reply.end(inbound.text);
  },
};

async function serve(
  handler: TransportHandler = echo,
  options: HttpServerOptions = {},
): Promise<Listener & { port: number }> {
  const listener = await listenHttp(handler, options);
  cleanUp.push(() => listener.close(0));
  return Object.assign(listener, { port: options.socketPath === undefined ? Number(new URL(listener.url).port) : 0 });
}

async function open(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  cleanUp.push(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Everything the server says until it closes. */
function toTheClose(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
    });
    socket.on("close", () => resolve(text));
  });
}

async function say(port: number, text: string): Promise<string> {
  const socket = await open(port);
  const heard = toTheClose(socket);
  socket.write(text);
  return heard;
}

interface Ask {
  method?: string;
  path?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
}

function ask(port: number, { method = "POST", path = "/mcp", headers = {}, body = "[1]" }: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const type = method === "POST" ? { "content-type": "application/json" } : {};
    const req = plainRequest({ port, host: "127.0.0.1", method, path, agent: false, headers: { ...type, ...headers } });
    req.on("response", (res) => {
      let text = "";
      res.setEncoding("utf8").on("data", (piece: string) => {
        text += piece;
      });
      res.on("end", () =>
        resolve({ status: res.statusCode ?? 0, headers: res.headers as Record<string, string>, body: text }),
      );
    });
    req.on("error", reject);
    req.end(method === "POST" || method === "DELETE" ? body : undefined);
  });
}

describe("who may call", () => {
  test("a rebound name or a foreign page is refused before anything is read", async () => {
    const { port } = await serve();
    for (const headers of [
      { host: "evil.example" },
      { host: `evil.example:${port}` },
      { origin: "https://evil.example" },
      { origin: "null" },
      { origin: "http://localhost:6274" },
      { host: "localhost:6274", origin: "http://localhost:6274" },
      { "sec-fetch-site": "same-site" },
      { "sec-fetch-site": "cross-site" },
    ] as Record<string, string>[]) {
      const answer = await ask(port, { headers });
      expect(answer.status, JSON.stringify(headers)).toBe(403);
    }
    expect((await ask(port, { method: "GET", path: "/other", headers: { host: "evil.example" } })).status).toBe(403);
    for (const twice of [
      "Host: localhost\r\nHost: evil.example",
      "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: null",
    ]) {
      expect(await say(port, `GET /mcp HTTP/1.1\r\n${twice}\r\nConnection: close\r\n\r\n`)).toMatch(
        /^HTTP\/1\.1 40[03] /,
      );
    }
    expect(reached.length).toBe(0);
    expect(
      (await ask(port, { headers: { host: `localhost:${port}`, origin: `http://localhost:${port}` } })).status,
    ).toBe(200);
  });

  test("configured hosts and origins add to loopback", async () => {
    const { port } = await serve(echo, { allowedHosts: ["gate.example"], allowedOrigins: ["https://app.example"] });
    const good = { host: "gate.example:8443", origin: "https://app.example" };
    const answer = await ask(port, { headers: good });
    expect(answer.status).toBe(200);
    expect(answer.headers["access-control-allow-origin"]).toBe("https://app.example");
    expect(answer.headers.vary).toBe("Origin");
    expect((await ask(port, { headers: { ...good, origin: "http://localhost" } })).status).toBe(403);
    expect((await ask(port)).status).toBe(200);
    expect((await ask(port, { headers: { host: "evil.example" } })).status).toBe(403);
  });

  test("a preflight is answered for configured origins alone", async () => {
    const { port } = await serve(echo, { allowedOrigins: ["https://app.example"] });
    const headers = {
      origin: "https://app.example",
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization, mcp-param-region",
    };
    const answer = await ask(port, { method: "OPTIONS", headers });
    expect(answer.status).toBe(204);
    expect(answer.headers).toMatchObject({
      "access-control-allow-origin": "https://app.example",
      "access-control-allow-headers": "authorization, mcp-param-region",
      "access-control-allow-methods": "GET, POST, DELETE",
    });
    expect(
      (await ask(port, { method: "OPTIONS", headers: { ...headers, origin: "https://evil.example" } })).status,
    ).toBe(403);
    const closed = await serve();
    const loopback = await ask(closed.port, {
      method: "OPTIONS",
      headers: { ...headers, origin: `http://localhost:${closed.port}` },
    });
    expect(loopback.status).toBe(405);
    expect(loopback.headers["access-control-allow-origin"]).toBeUndefined();
  });
});

describe("what is accepted", () => {
  test("a message is JSON in UTF-8 and says so", async () => {
    const { port } = await serve();
    const types = [
      "text/plain",
      "application/jsonp",
      "application/x-www-form-urlencoded",
      "",
      "application/json; charset=latin1",
    ];
    for (const type of types) expect((await ask(port, { headers: { "content-type": type } })).status, type).toBe(415);
    expect((await ask(port, { headers: { "content-encoding": "gzip" } })).status).toBe(415);
    expect(reached.length).toBe(0);
    for (const type of ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']) {
      expect((await ask(port, { headers: { "content-type": type } })).status, type).toBe(200);
    }
  });

  test("everything but POST on the path goes to the plain HTTP handler, with path, query and body", async () => {
    const { port } = await serve({
      ...echo,
      http(request) {
        reached.push(request);
        if (request.path === "/nothing") return false;
        request.reply.end(`${request.method} ${request.path} ${request.query} ${request.body}`, { status: 201 });
        return true;
      },
    });
    expect(await ask(port, { method: "GET", path: "/mcp?x=1" })).toMatchObject({ status: 201, body: "GET /mcp x=1 " });
    expect(await ask(port, { method: "DELETE", body: "" })).toMatchObject({ status: 201 });
    expect(await ask(port, { path: "/tools/a%20b", body: "{}" })).toMatchObject({ body: "POST /tools/a%20b  {}" });
    expect((await ask(port, { method: "GET", path: "/nothing" })).status).toBe(404);
    expect((await ask(port, { path: "/mcp?x=1" })).body).toBe("[1]");
    const mute = await serve();
    expect(await ask(mute.port, { method: "GET" })).toMatchObject({ status: 405, headers: { allow: "POST" } });
    expect((await ask(mute.port, { method: "GET", path: "/" })).status).toBe(404);
  });

  test("status and headers of an answer are the handler's; a plain answer says how long it is", async () => {
    const { port } = await serve({
      message({ reply }) {
        reply.end(Buffer.from("ä"), { status: 404, headers: { "Content-Type": "text/x", "Mcp-Session-Id": "s" } });
      },
    });
    const answer = await ask(port);
    expect(answer).toMatchObject({ status: 404, body: "ä" });
    expect(answer.headers).toMatchObject({ "content-type": "text/x", "mcp-session-id": "s", "content-length": "2" });
  });

  test("a header that cannot be sent is an error of the caller, who can still answer", async () => {
    const { port } = await serve({
      message({ reply }) {
        expect(() => reply.end("{}", { headers: { x: "a\r\nSet-Cookie: b" } })).toThrow(TypeError);
        reply.end('{"second":true}');
      },
    });
    expect(await ask(port)).toMatchObject({ status: 200, body: '{"second":true}' });
  });

  test("an event stream has the headers that keep proxies from holding it back", async () => {
    const { port } = await serve({
      message({ reply }) {
        reply.open({ "mcp-session-id": "s" });
        reply.send('{"a":\n1}', "id-1");
        reply.end("{}", { status: 500 });
      },
    });
    const answer = await ask(port);
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      "mcp-session-id": "s",
    });
    expect(answer.body).toBe('event: message\nid: id-1\ndata: {"a":\ndata: 1}\n\nevent: message\ndata: {}\n\n');
  });

  test("a quiet stream is kept alive by comments", async () => {
    let reply: Reply | undefined;
    const { port } = await serve({ message: (inbound) => (reply = inbound.reply).open() }, { heartbeatMs: 20 });
    const answering = ask(port);
    await expect.poll(() => reply).toBeDefined();
    await sleep(100);
    reply?.end();
    expect((await answering).body).toMatch(/^(:\n\n){2,}$/);
  });
});

describe("what is too much", () => {
  const problems: Malformed[] = [];
  const strict: TransportHandler = {
    ...echo,
    malformed(problem, _peer, reply) {
      problems.push(problem);
      reply.end(`"${problem.kind}"`);
    },
  };
  beforeEach(() => {
    problems.length = 0;
  });

  test("a body over the cap is answered 413 and the connection continues, however the length was announced", async () => {
    const { port } = await serve(strict, { limits: { maxMessageBytes: 1000 } });
    const big = "x".repeat(300_000);
    const head = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
    const chunked = `${head}Transfer-Encoding: chunked\r\n\r\n${big.length.toString(16)}\r\n${big}\r\n0\r\n\r\n`;
    const announced = `${head}Content-Length: ${big.length}\r\n\r\n${big}`;
    const good = `${head}Content-Length: 3\r\nConnection: close\r\n\r\n[2]`;
    const pieces = `${head}Transfer-Encoding: chunked\r\n\r\n${`a\r\n${"x".repeat(10)}\r\n`.repeat(101)}0\r\n\r\n`;
    for (const bad of [chunked, announced, pieces]) {
      const heard = await say(port, bad + good);
      expect(heard.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 413", "HTTP/1.1 200"]);
      expect(heard).toContain('"too-large"');
    }
    expect(reached.map((one) => (one as Inbound).text)).toEqual(["[2]", "[2]", "[2]"]);
    expect(problems.length).toBe(3);
  });

  test("a body that was only announced too large is refused before it is sent", async () => {
    const { port } = await serve(strict, { limits: { maxMessageBytes: 1000 } });
    const socket = await open(port);
    socket.write(
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 999999999\r\n\r\n",
    );
    const [first] = (await once(socket, "data")) as [Buffer];
    expect(first.toString()).toMatch(/^HTTP\/1\.1 413 /);
  });

  test("a body that is not UTF-8 is answered 400", async () => {
    const { port } = await serve(strict);
    expect(await ask(port, { body: Buffer.from([0x22, 0xff, 0x22]) })).toMatchObject({
      status: 400,
      body: '"not-utf8"',
    });
    expect((await ask((await serve()).port, { body: Buffer.from([0xff]) })).status).toBe(400);
    expect(reached.length).toBe(0);
  });

  test("all unfinished bodies together have a cap too", async () => {
    const { port } = await serve(strict, { limits: { maxPartialBytes: 100_000 } });
    const head =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n";
    const first = await open(port);
    first.write(`${head}a`);
    await sleep(20);
    first.write("a".repeat(60_000));
    await sleep(20);
    const second = await open(port);
    second.write(`${head}a`);
    await sleep(20);
    second.write("a".repeat(60_000));
    const [heard] = (await once(second, "data")) as [Buffer];
    expect(heard.toString()).toMatch(/^HTTP\/1\.1 429 /);
    first.write("a".repeat(29_999));
    const [answer] = (await once(first, "data")) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("unfinished bodies and idle connections make room for new ones, and none of them locks others out [U12]", async () => {
    const { port } = await serve(strict, { limits: { maxConnections: 20 } });
    const head =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n";
    const known = await open(port);
    const answered = async (): Promise<string> => {
      known.write(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]",
      );
      return String(((await once(known, "data")) as [Buffer])[0]);
    };
    expect(await answered()).toMatch(/^HTTP\/1\.1 200 /);
    for (let i = 0; i < 60; i++) {
      const socket = await open(port);
      socket.on("error", () => {});
      if (i % 2 === 0) socket.write(`${head}[`);
    }
    expect((await ask(port, { body: "[2]" })).status).toBe(200);
    // The connection that was there before, with all its requests complete, is still there.
    expect(await answered()).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("a body that arrives more slowly than it has to is given up, one that is quick enough is read [U12]", async () => {
    const limits = { minBodyBytesPerSecond: 1_000, bodyMs: 60_000, idleMs: 60_000 };
    const { port } = await serve(strict, { limits });
    const head = (bytes: number): string =>
      `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`;
    const slow = await open(port);
    slow.on("error", () => {});
    const closed = once(slow, "close");
    slow.write(`${head(900)}[`);
    const drip = setInterval(() => slow.write(" "), 200);
    const quick = await open(port);
    quick.write(`${head(100_003)}[${" ".repeat(100_000)}`);
    await closed;
    clearInterval(drip);
    const answered = once(quick, "data");
    quick.write("1]");
    expect(String(((await answered) as [Buffer])[0])).toMatch(/^HTTP\/1\.1 200 /);
  }, 120_000);

  test("a head that is too large, or never finished, or a body that is never finished, ends the connection", async () => {
    const { port } = await serve(strict, { limits: { headersMs: 200, bodyMs: 200 } });
    expect(await say(port, `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${"x".repeat(20_000)}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 431 /,
    );
    expect(await say(port, "GET / HTTP/1.1\r\nHost: loc")).toMatch(/^HTTP\/1\.1 408 /);
    expect(await say(port, "")).toMatch(/^HTTP\/1\.1 408 /);
    const half =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n[1";
    expect(await say(port, half)).toMatch(/^HTTP\/1\.1 408 /);
    expect(reached.length).toBe(0);
  });

  test("requests that could be read in two ways are refused", async () => {
    const { port } = await serve();
    const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for (const smuggled of [
      `${head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      `${head}Content-Length: 3\r\nContent-Length: 4\r\n\r\n[1]`,
      `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
      `${head}Content-Length : 3\r\n\r\n[1]`,
      `${head}Content-Length: 3\n\r\n\r\n[1]`,
      "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]",
    ]) {
      expect(await say(port, smuggled), smuggled).toMatch(/^HTTP\/1\.1 400 /);
    }
    expect(await say(port, `POST http://localhost/mcp HTTP/1.1\r\nConnection: close\r\n${head.slice(20)}\r\n`)).toMatch(
      / 400 /,
    );
    expect(reached.length).toBe(0);
  });

  test("a client that sends far ahead without waiting for answers is cut off", async () => {
    let open = 0;
    const { port } = await serve({ message: () => open++ });
    const one =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]";
    expect(await say(port, one.repeat(500))).toBe("");
    expect(open).toBeLessThanOrEqual(16);
  });

  test("an answer that is not read does not stay forever", async () => {
    const text = "x".repeat(4_000_000);
    let left = 0;
    const listener = await serve(
      { message: ({ reply }) => reply.end(text) },
      { limits: { idleMs: 200, maxMessageBytes: 5_000_000 } },
    );
    const socket = await open(listener.port);
    socket.pause();
    socket.on("close", () => left++);
    const one =
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]";
    socket.write(one.repeat(5));
    for (let i = 0; i < 200 && listener.connections > 0; i++) await sleep(10);
    if (listener.connections !== 0) expect(left).toBe(1);
    expect(listener.connections).toBe(0);
  });
});

describe("what one read may hold", () => {
  const post = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

  test("a body in chunks of one byte is refused and its connection closed [U12]", async () => {
    const { port } = await serve();
    const socket = await open(port);
    const heard = toTheClose(socket);
    socket.write(`${post}Transfer-Encoding: chunked\r\n\r\n${"1\r\n[\r\n".repeat(20_000)}0\r\n\r\n`);
    expect(await heard).toMatch(/^HTTP\/1\.1 400 .*send larger chunks/s);
    expect(reached).toEqual([]);
  });

  test("the rest of a read is not made into objects after a body was refused for its pieces", async () => {
    const { port } = await serve();
    const pushed = vi.spyOn(IncomingMessage.prototype, "push");
    cleanUp.push(() => pushed.mockRestore());
    for (let i = 0; i < 3; i++) {
      const socket = await open(port);
      const heard = toTheClose(socket);
      socket.write(`${post}Transfer-Encoding: chunked\r\n\r\n${"1\r\n[\r\n".repeat(10_000)}0\r\n\r\n`);
      await heard;
      expect(pushed.mock.calls.length).toBeLessThan(1_000);
      pushed.mockClear();
    }
    // Node gives the parser of a closed connection to a new one.
    const body = "x".repeat(100_000);
    const answers = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const headers = { "content-type": "application/json" };
        return (await fetch(`http://127.0.0.1:${port}/mcp`, { method: "POST", headers, body })).text();
      }),
    );
    expect(answers.every((answer) => answer === body)).toBe(true);
  });

  test("a small body in chunks of one byte is read", async () => {
    const { port } = await serve();
    const socket = await open(port);
    const heard = toTheClose(socket);
    const chunks = `1\r\n[\r\n${"1\r\n \r\n".repeat(200)}1\r\n]\r\n0\r\n\r\n`;
    socket.write(`${post}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`);
    expect(await heard).toMatch(/^HTTP\/1\.1 200 /);
    expect(reached).toHaveLength(1);
  });

  test("requests that were read together with too many others are not parsed [U12]", async () => {
    let parsed = 0;
    const count = (): void => {
      parsed++;
    };
    subscribe("http.server.request.start", count);
    cleanUp.push(() => unsubscribe("http.server.request.start", count));
    const { port } = await serve({ message: () => {} });
    const socket = await open(port);
    const heard = toTheClose(socket);
    socket.write(`${post}Content-Length: 2\r\n\r\n{}`.repeat(1_000));
    await heard;
    expect(parsed).toBeLessThanOrEqual(20);
  });
});

describe("where it listens", () => {
  test("listens on a Unix socket that only its owner can use, also when a killed process left its file there", async () => {
    const folder = mkdtempSync(join(tmpdir(), "portcullis-http-"));
    cleanUp.push(() => rmSync(folder, { recursive: true }));
    const socketPath = join(folder, "gate.sock");
    const listenAndDie = `require("net").createServer().listen(process.argv[1], () => process.kill(process.pid, 9))`;
    spawnSync(process.execPath, ["-e", listenAndDie, socketPath]);
    expect(statSync(socketPath).isSocket()).toBe(true);
    const listener = await serve(echo, { socketPath });
    expect(statSync(socketPath).mode & 0o777).toBe(0o600);
    const client = await started({ url: listener.url, socketPath });
    await (await client.send("[7]")).done;
    expect(client.messages).toEqual(["[7]"]);
    await expect(listenHttp(echo, { socketPath })).rejects.toMatchObject({ code: "EADDRINUSE" });
    writeFileSync(join(folder, "file"), "precious");
    await expect(listenHttp(echo, { socketPath: join(folder, "file") })).rejects.toMatchObject({ code: "EADDRINUSE" });
    expect(readFileSync(join(folder, "file"), "utf8")).toBe("precious");
  });

  test("speaks HTTPS with a certificate", async () => {
    const tls = { key: KEY, cert: CERTIFICATE };
    const listener = await serve(echo, { tls, limits: { maxConnections: 10 } });
    expect(listener.url).toMatch(/^https:/);
    const trusted = { ca: CERTIFICATE, servername: "localhost" };
    const client = await started({ url: listener.url, tls: trusted });
    await (await client.send("[8]")).done;
    expect(client.messages).toEqual(["[8]"]);
    expect(listener.connections).toBe(1);
    const stranger = await started({ url: listener.url });
    await expect(stranger.send("[9]")).rejects.toMatchObject({ name: "TransportError" });
  });

  test("a port that is taken is an error that says so", async () => {
    const { port } = await serve();
    await expect(listenHttp(echo, { port })).rejects.toMatchObject({ code: "EADDRINUSE" });
  });
});

async function started(options: HttpClientOptions, hooks: Partial<ClientEvents> = {}) {
  const messages: string[] = [];
  const client = httpClient(options);
  await client.start({ message: (text) => messages.push(text), closed: () => {}, ...hooks });
  cleanUp.push(() => client.close());
  return Object.assign(client, { messages });
}

describe("the client", () => {
  /** A server that answers any request with exactly these bytes, after its head has arrived. */
  async function fake(...pieces: (string | Buffer)[]): Promise<string> {
    const server = createServer(async (socket) => {
      socket.on("error", () => {});
      await once(socket, "data");
      for (const piece of pieces) {
        socket.write(piece);
        await sleep(1);
      }
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const sockets = new Set<Socket>();
    server.on("connection", (socket) => sockets.add(socket));
    cleanUp.push(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return `http://127.0.0.1:${(server.address() as { port: number }).port}/mcp`;
  }

  const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

  test("asks for both kinds of answer and sends the caller's headers", async () => {
    const { url } = await serve();
    const client = await started({ url, headers: { Authorization: "Bearer a", "X-Both": "general" } });
    const sent = await client.send("[1]", { headers: { "x-both": "special", "Mcp-Method": "tools/call" } });
    await sent.done;
    expect(sent).toMatchObject({ status: 200, body: "[1]", headers: { "content-type": "application/json" } });
    expect(reached[0]?.peer.headers).toMatchObject({
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      authorization: "Bearer a",
      "x-both": "special",
      "mcp-method": "tools/call",
    });
  });

  test("resumes by header, ends a session by DELETE, and hands over every status with its text", async () => {
    const { url } = await serve({
      ...echo,
      http(request) {
        reached.push(request);
        if (request.method === "DELETE")
          request.reply.end("gone", { status: 405, headers: { "content-type": "text/plain" } });
        else request.reply.end("{}");
        return true;
      },
    });
    const client = await started({ url });
    await (await client.send("", { verb: "GET", headers: { "Last-Event-ID": "5" } })).done;
    expect(reached[0]?.peer.headers).toMatchObject({ accept: "text/event-stream", "last-event-id": "5" });
    const sent = await client.send("", { verb: "DELETE" });
    await sent.done;
    expect([sent.status, sent.body]).toEqual([405, "gone"]);
    expect(client.messages).toEqual(["{}"]);
  });

  test("follows no redirect", async () => {
    const other = await serve();
    const url = await fake(`HTTP/1.1 307 Moved\r\nLocation: ${other.url}\r\nContent-Length: 0\r\n\r\n`);
    const sent = await (await started({ url })).send("[1]");
    await sent.done;
    expect([sent.status, reached.length]).toEqual([307, 0]);
  });

  test("reads an event stream that comes in any pieces", async () => {
    const stream = `${STREAM}: hi\r\nretry: 42\r\n\r\nid: ä\r\ndata: {"n":"漢"}\r\n\r\nevent: other\ndata: no\n\ndata: [2]\r\r`;
    const url = await fake(...[...Buffer.from(stream)].map((byte) => Buffer.of(byte)), "\n");
    const client = await started({ url });
    const sent = await client.send("[1]");
    while (client.messages.length < 2) await sleep(5);
    expect(client.messages).toEqual(['{"n":"漢"}', "[2]"]);
    expect([sent.retryMs, sent.lastEventId]).toEqual([42, "ä"]);
  });

  test("an event stream that is cut, over the cap or undecodable rejects `done`", async () => {
    const cases: [string, (string | Buffer)[]][] = [
      ["too-large", [`${STREAM}data: ${"x".repeat(1001)}\n\n`]],
      ["too-large", [STREAM, ...Array.from({ length: 20 }, () => `: ${"c".repeat(100)}`)]],
      ["not-utf8", [STREAM, Buffer.from([0x64, 0xff, 0x0a])]],
      [
        "closed",
        ["HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: 1\n\n", "RESET"],
      ],
      ["protocol", ["HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\r\n"]],
      ["too-large", [`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n${"x".repeat(1001)}`]],
      ["timeout", ["HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n[1"]],
    ];
    for (const [kind, pieces] of cases) {
      const url = kind === "closed" ? await hangUp(pieces[0] as string) : await fake(...pieces);
      const client = await started({ url, limits: { maxMessageBytes: 1000, bodyMs: 200 } });
      const outcome = client.send("[1]").then((sent) => sent.done);
      await expect(outcome, kind).rejects.toMatchObject({ kind });
    }
  });

  async function hangUp(bytes: string): Promise<string> {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end(bytes));
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanUp.push(() => server.close());
    return `http://127.0.0.1:${(server.address() as { port: number }).port}/mcp`;
  }

  test("aborting closes the stream at the server, before and after its head", async () => {
    let aborts = 0;
    let reply: Reply | undefined;
    const { url } = await serve({
      message(inbound) {
        reply = inbound.reply;
        if (inbound.text === "[1]") reply.open();
        reply.onAbort(() => aborts++);
      },
    });
    const client = await started({ url });
    const controller = new AbortController();
    const sent = await client.send("[1]", { signal: controller.signal });
    controller.abort(new Error("changed my mind"));
    await expect(sent.done).rejects.toThrow("changed my mind");
    while (aborts === 0) await sleep(5);

    const second = new AbortController();
    const sending = client.send("[2]", { signal: second.signal });
    while (reply?.ended !== false) await sleep(5);
    second.abort();
    await expect(sending).rejects.toMatchObject({ name: "AbortError" });
    while (aborts === 1) await sleep(5);
  });

  test("a server that is not there, takes too long, or is asked too much, is told apart", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as { port: number };
    server.close();
    await once(server, "close");
    const gone = await started({ url: `http://127.0.0.1:${port}/mcp` });
    await expect(gone.send("[1]")).rejects.toMatchObject({ kind: "unreachable", code: "IO_ERROR" });

    const { url } = await serve({ message: () => {} });
    const hasty = await started({ url, answerMs: 100 });
    await expect(hasty.send("[1]")).rejects.toMatchObject({ kind: "timeout" });

    const modest = await started({ url, maxOpenRequests: 2 });
    const open = [modest.send("[1]"), modest.send("[2]")].map((sending) => sending.catch((error: unknown) => error));
    await expect(modest.send("[3]")).rejects.toMatchObject({ kind: "too-many", code: "TOO_MANY" });
    await modest.close();
    for (const failed of await Promise.all(open)) expect(failed).toMatchObject({ kind: "closed" });
    expect(() => httpClient({ url: "ftp://x/" })).toThrow(TypeError);
  });

  test("the caller decides where a name leads", async () => {
    const { port } = await serve(echo, { allowedHosts: ["gate.example"] });
    const client = await started({
      url: `http://gate.example:${port}/mcp`,
      lookup: (_host, options, callback) => {
        if (options.all) callback(null, [{ address: "127.0.0.1", family: 4 }]);
        else callback(null, "127.0.0.1", 4);
      },
    });
    await (await client.send("[1]")).done;
    expect(client.messages).toEqual(["[1]"]);
  });
});
