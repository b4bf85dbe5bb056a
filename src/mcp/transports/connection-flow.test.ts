// Which connections are read, with real sockets. The flow of each caller is the test's own and pauses when told to.

import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { listenHttp } from "./http-server.js";
import { listenTcp } from "./tcp.js";
import type { CallerFlow, FlowConnection, Inbound, Listener, TransportHandler } from "./types.js";
import { listenWebSocket } from "./websocket-server.js";

class TestFlow implements CallerFlow {
  readonly isAnonymous = false;
  readonly resting = new Set<FlowConnection>();
  isFull = false;
  attached = 0;

  attach(): void {
    this.attached++;
  }
  detach(connection: FlowConnection): void {
    this.leave(connection);
    this.attached--;
  }
  rest(connection: FlowConnection): void {
    this.resting.add(connection);
    if (this.isFull) connection.pause();
    else connection.resume();
  }
  leave(connection: FlowConnection): void {
    this.resting.delete(connection);
  }
  release(): void {
    this.isFull = false;
    for (const connection of this.resting) connection.resume();
  }
}

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

/** Answers each message with itself. A message `wait` is answered when the test says so. */
class Echo implements TransportHandler {
  readonly flows = new Map<string, TestFlow>();
  readonly texts: string[] = [];
  readonly waiting: Inbound[] = [];

  flow(caller: string): TestFlow {
    const flow = this.flows.get(caller) ?? new TestFlow();
    this.flows.set(caller, flow);
    return flow;
  }
  admit({ headers }: { headers?: Record<string, unknown> }) {
    const flow = this.flow(String(headers?.["x-caller"] ?? "a"));
    return { flow };
  }
  message(inbound: Inbound): void {
    this.texts.push(inbound.text);
    inbound.channel?.authenticated?.(undefined, this.flow("a"));
    if (inbound.text === '"wait"') this.waiting.push(inbound);
    else inbound.reply.end(inbound.text);
  }
}

function post(text: string, caller = "a"): string {
  return (
    `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Caller: ${caller}\r\n` +
    `Content-Length: ${text.length}\r\n\r\n${text}`
  );
}

class Client {
  heard = "";
  isClosed = false;
  readonly socket: Socket;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (chunk: Buffer) => {
      this.heard += chunk.toString("utf8");
    });
    socket.on("close", () => {
      this.isClosed = true;
    });
    socket.on("error", () => {});
  }
  get answers(): number {
    return this.heard.split("HTTP/1.1 200").length - 1;
  }
}

async function dial(listener: Listener): Promise<Client> {
  const socket = connect(Number(new URL(listener.url).port), "127.0.0.1");
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  opened.push(() => socket.destroy());
  return new Client(socket);
}

async function serve(echo: Echo, listen: (handler: TransportHandler) => Promise<Listener>): Promise<Listener> {
  const listener = await listen(echo);
  opened.push(() => listener.close(100));
  return listener;
}

/** Long enough that a request that is read would have been read. */
const A_WHILE_MS = 100;
const until = (condition: () => boolean) => expect.poll(condition, { timeout: 20_000, interval: 5 }).toBe(true);

describe("an HTTP connection", () => {
  it("an HTTP connection is not read while its caller's flow is full, and loses nothing of what was sent meanwhile [G5]", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenHttp);
    const client = await dial(listener);
    echo.flow("a").isFull = true;
    client.socket.write(post("1"));
    await until(() => client.answers === 1);
    client.socket.write(post("2"));
    await sleep(A_WHILE_MS);
    expect(echo.texts).toEqual(["1"]);
    echo.flow("a").release();
    await until(() => client.answers === 2);
    expect(echo.texts).toEqual(["1", "2"]);
  });

  it("an HTTP connection is read while another caller's flow is full", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenHttp);
    const [loud, quiet] = [await dial(listener), await dial(listener)];
    echo.flow("loud").isFull = true;
    loud.socket.write(post("1", "loud"));
    await until(() => loud.answers === 1);
    loud.socket.write(post("2", "loud"));
    for (let i = 1; i <= 5; i++) {
      quiet.socket.write(post(`"quiet ${i}"`, "quiet"));
      await until(() => quiet.answers === i);
    }
    expect(echo.texts).not.toContain("2");
  });

  it("an HTTP connection is never paused once it carried requests of two callers, as a proxy's does", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenHttp);
    const client = await dial(listener);
    client.socket.write(post("1", "loud"));
    await until(() => client.answers === 1);
    client.socket.write(post("2", "quiet"));
    await until(() => client.answers === 2);
    echo.flow("loud").isFull = true;
    client.socket.write(post("3", "loud"));
    await until(() => client.answers === 3);
    client.socket.write(post("4", "quiet"));
    await until(() => client.answers === 4);
    expect(echo.flow("loud").attached + echo.flow("quiet").attached).toBe(0);
  });

  it("an HTTP connection is read to the end of a refused body before it is paused", async () => {
    const echo = new Echo();
    const refusing: TransportHandler = {
      admit: (peer) => ({
        ...echo.admit(peer as { headers?: Record<string, unknown> }),
        maxBytes: 0,
        refuse: (reply) => reply.end("busy", { status: 429, headers: { "retry-after": "1" } }),
      }),
      message: (inbound) => echo.message(inbound),
    };
    const listener = await serve(echo, () => listenHttp(refusing));
    const client = await dial(listener);
    echo.flow("a").isFull = true;
    const body = `"${"x".repeat(300_000)}"`;
    client.socket.write(post(body).slice(0, 1_000));
    await until(() => client.heard.startsWith("HTTP/1.1 429"));
    client.socket.write(post(body).slice(1_000));
    await until(() => echo.flow("a").resting.size === 1);
    client.socket.write(post("1"));
    await sleep(A_WHILE_MS);
    expect(client.heard.split("HTTP/1.1 429")).toHaveLength(2);
    echo.flow("a").release();
    await until(() => client.heard.split("HTTP/1.1 429").length === 3);
  });

  it("an HTTP connection is forgotten by its flow when it closes", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenHttp);
    const client = await dial(listener);
    client.socket.write(post("1"));
    await until(() => client.answers === 1);
    expect(echo.flow("a").attached).toBe(1);
    client.socket.destroy();
    await until(() => echo.flow("a").attached === 0);
    expect(echo.flow("a").resting.size).toBe(0);
  });

  it("an HTTP connection is read when the server closes, so that a request that waits is answered before the connection ends", async () => {
    const echo = new Echo();
    const listener = await listenHttp(echo);
    const client = await dial(listener);
    echo.flow("a").isFull = true;
    client.socket.write(post("1"));
    await until(() => client.answers === 1);
    client.socket.write(post("2"));
    await sleep(A_WHILE_MS);
    await listener.close(5_000);
    await until(() => client.isClosed);
    expect(client.answers).toBe(2);
    expect(client.heard.toLowerCase()).toContain("connection: close");
  });

  it("an HTTP connection is evicted while it is paused when the listener has no room for others", async () => {
    const echo = new Echo();
    const listener = await serve(echo, (handler) => listenHttp(handler, { limits: { maxConnections: 1 } }));
    const paused = await dial(listener);
    echo.flow("a").isFull = true;
    paused.socket.write(post("1"));
    await until(() => paused.answers === 1);
    const next = await dial(listener);
    next.socket.write(post("2", "b"));
    await until(() => next.answers === 1);
    await until(() => paused.isClosed);
    expect(echo.flow("a").attached).toBe(0);
  });
});

describe("a TCP connection", () => {
  it("a TCP connection is not read while its caller's flow is full and nothing is under way on it", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenTcp);
    const client = await dial(listener);
    echo.flow("a").isFull = true;
    client.socket.write('"1"\n');
    await until(() => client.heard === '"1"\n');
    client.socket.write('"2"\n');
    await sleep(A_WHILE_MS);
    expect(echo.texts).toEqual(['"1"']);
    echo.flow("a").release();
    await until(() => client.heard === '"1"\n"2"\n');
  });

  it("a TCP connection is read while a message is under way on it: the peer may have to answer a request", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenTcp);
    const client = await dial(listener);
    echo.flow("a").isFull = true;
    client.socket.write('"wait"\n');
    await until(() => echo.waiting.length === 1);
    client.socket.write("1\n");
    await until(() => client.heard === "1\n");
    echo.waiting[0]?.reply.end('"done"');
    await until(() => client.heard === '1\n"done"\n');
    client.socket.write("2\n");
    await sleep(A_WHILE_MS);
    expect(echo.texts).toEqual(['"wait"', "1"]);
  });
});

describe("a WebSocket connection", () => {
  it("a WebSocket connection is not read while its caller's flow is full and nothing is under way on it", async () => {
    const echo = new Echo();
    const listener = await serve(echo, listenWebSocket);
    const socket = new WebSocket(listener.url, "mcp");
    opened.push(() => socket.terminate());
    const heard: string[] = [];
    socket.on("message", (data: Buffer) => heard.push(data.toString("utf8")));
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    echo.flow("a").isFull = true;
    socket.send("1");
    await until(() => heard.length === 1);
    socket.send("2");
    await sleep(A_WHILE_MS);
    expect(echo.texts).toEqual(["1"]);
    echo.flow("a").release();
    await until(() => heard.length === 2);
  });
});
