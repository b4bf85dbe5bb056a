// What is particular to TCP; what all transports share is in transport.test.ts.

import { once } from "node:events";
import { connect, createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { ByteBudget, Fault } from "../index.js";
import { listenTcp, type TcpServerOptions, tcpClient } from "./tcp.js";
import type { Reply, TransportHandler } from "./types.js";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

async function serve(handler: TransportHandler, options: TcpServerOptions = {}): Promise<number> {
  const listener = await listenTcp(handler, options);
  cleanUp.push(() => listener.close(0));
  expect(listener.url).toMatch(/^tcp:\/\/127\.0\.0\.1:\d+$/);
  return Number(new URL(listener.url).port);
}

/** Says this, closes its own side, and gives back what it hears. */
async function say(port: number, text: string | Buffer): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  let heard = "";
  socket.on("data", (chunk: Buffer) => (heard += chunk));
  socket.on("error", () => {});
  socket.end(text);
  await once(socket, "close");
  return heard;
}

test("a peer that speaks another protocol is cut off, whatever follows its first line", async () => {
  const reached: string[] = [];
  const port = await serve({
    message({ text, reply }) {
      reached.push(text);
      reply.end(text);
    },
    malformed: (problem, _peer, reply) => reply.end(problem.kind),
  });
  const message = '{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n';
  const post = `POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n${message}`;
  for (const text of [
    post,
    `\r\n${post}`,
    `M-SEARCH * HTTP/1.1\r\n\r\n${message}`,
    `GET /\r\n${message}`,
    `PROXY TCP4 203.0.113.7 127.0.0.1 50000 7422\r\n${message}`,
    `\r\n\r\n\0\r\nQUIT\n!\u0011\0\f\n${message}`,
    Buffer.concat([Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0xfc, 0xff]), Buffer.from(`\n${message}`)]),
  ]) {
    expect([text, await say(port, text)]).toEqual([text, ""]);
  }
  expect(reached).toEqual([]);
  expect(await say(port, '{"POST":"/ HTTP/1.1"}\n')).toBe('{"POST":"/ HTTP/1.1"}\n');
});

test("a peer that only finished sending still gets its answers", async () => {
  const port = await serve({ message: ({ text, reply }) => void setTimeout(() => reply.end(text), 50) });
  expect(await say(port, "[1]\n[2]\n[3]")).toBe("[1]\n[2]\n[3]\n");
});

test("a peer that closed its side and is owed something that never comes is let go after a while", async () => {
  let aborts = 0;
  const port = await serve({ message: ({ reply }) => reply.onAbort(() => aborts++) }, { lingerMs: 50 });
  expect(await say(port, "[1]\n")).toBe("");
  expect(aborts).toBe(1);
});

test("who sends work but takes no answers gets no more work done", async () => {
  let calls = 0;
  const answer = `"${"a".repeat(100_000)}"`;
  const port = await serve(
    {
      message({ reply }) {
        calls++;
        reply.end(answer);
      },
    },
    { limits: { maxBufferedBytes: 10_000_000, idleMs: 60_000 } },
  );
  const socket = connect(port, "127.0.0.1");
  cleanUp.push(() => socket.destroy());
  socket.on("error", () => {});
  socket.pause();
  // One request at a time, so that none of them shares a chunk with a thousand others.
  for (let i = 0; i < 1000 && !socket.destroyed; i++) {
    socket.write("[1]\n");
    await sleep(0);
  }
  await sleep(100);
  expect(socket.destroyed).toBe(false);
  expect(calls).toBeGreaterThan(50);
  expect(calls).toBeLessThan(400);
});

test("a server that is not there, or does not accept in time, is an error with its address", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  const events = { message: () => {}, closed: () => {} };
  await expect(tcpClient({ port }).start(events)).rejects.toMatchObject({
    kind: "unreachable",
    message: expect.stringContaining(`127.0.0.1:${port}`),
  });
  const lookup = () => {};
  const lost = tcpClient({ host: "gate.example", port, lookup, connectTimeoutMs: 50 });
  await expect(lost.start(events)).rejects.toMatchObject({ kind: "timeout" });
  await expect(tcpClient({ port }).send("[1]")).rejects.toMatchObject({ kind: "closed" });
});

test("a server that hangs up is reported with its address", async () => {
  const port = await serve({ message: ({ channel }) => channel?.close("enough") });
  const client = tcpClient({ port });
  const closed = new Promise<Error | undefined>((resolve) => {
    void client.start({ message: () => {}, closed: resolve }).then(() => client.send("[1]"));
  });
  expect(await closed).toMatchObject({ kind: "closed", message: expect.stringContaining(String(port)) });
});

test("a line that does not end is cut off after its time, whatever else is limited [U12]", async () => {
  for (const idleMs of [0, 120_000]) {
    const limits = { bodyMs: 50, idleMs };
    const port = await serve({ message: ({ text, reply }) => reply.end(text) }, { limits });
    const socket = connect({ port, host: "127.0.0.1" });
    cleanUp.push(() => socket.destroy());
    socket.on("error", () => {});
    const closed = once(socket, "close");
    socket.write('{"unfinished":');
    await closed;
  }
}, 60_000);

test("a peer that is not authenticated may send lines of the small limit, and more once it is [U12]", async () => {
  const fault = new Fault("AuthenticationError", "unknown");
  const read: number[] = [];
  const port = await serve({
    admit: () => ({ maxBytes: 1_000, fault, refuse: (reply) => reply.end('"refused"') }),
    message({ text, reply, channel }) {
      read.push(text.length);
      if (text === '["key"]') channel?.authenticated?.(undefined);
      reply.end('"read"');
    },
  });
  const long = `["${"x".repeat(5_000)}"]`;
  expect(await say(port, `${long}\n["short"]\n["key"]\n${long}\n`)).toBe('"refused"\n"read"\n"read"\n"read"\n');
  expect(read).toEqual([9, 7, 5_004]);
});

test("messages that arrive in one read are handled over several turns of the event loop [U12]", async () => {
  let inTurn = 0;
  let most = 0;
  let isCounting = false;
  const port = await serve({
    message({ text, reply }) {
      most = Math.max(most, ++inTurn);
      if (!isCounting) {
        isCounting = true;
        setImmediate(() => {
          inTurn = 0;
          isCounting = false;
        });
      }
      reply.end(text);
    },
  });
  expect(await say(port, "[1]\n".repeat(2_000))).toBe("[1]\n".repeat(2_000));
  expect(most).toBeLessThanOrEqual(32);
});

test("a caller that is not authenticated is disconnected after a few refused messages", async () => {
  let refused = 0;
  const port = await serve({
    admit: () => ({ fault: new Fault("AuthenticationError", "authentication required") }),
    message({ reply }) {
      refused++;
      reply.end("no");
    },
    malformed({ kind }, _peer, reply) {
      refused++;
      reply.end(kind);
    },
  });
  const heard = await say(port, "[1]\n".repeat(10_000));
  expect(heard).toMatch(/^(no\n)+$/);
  expect(refused).toBeLessThanOrEqual(17);
  refused = 0;
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.resume();
  socket.write(Buffer.from(Array.from({ length: 20_000 }, (_, i) => (i % 2 === 0 ? 0xff : 0x0a))));
  await once(socket, "close");
  expect(refused).toBeLessThanOrEqual(17);
});

test("a connection with more unanswered messages than its budget allows is read again after a pause", async () => {
  const replies: Reply[] = [];
  let refused = 0;
  const port = await serve({
    admit: () => ({ budget: new ByteBudget(10 * 17 * 1024) }),
    message: ({ reply }) => void replies.push(reply),
    malformed(_problem, _peer, reply) {
      refused++;
      reply.end("busy");
    },
  });
  const socket = connect(port, "127.0.0.1");
  cleanUp.push(() => socket.destroy());
  socket.write("[1]\n".repeat(40));
  await once(socket, "data");
  // Only one more is refused before the pause.
  expect(refused).toBe(1);
  for (const reply of replies.splice(0)) reply.end("done");
  while (replies.length === 0) await sleep(5);
});
