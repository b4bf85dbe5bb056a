// The five transports, each with its server and its client half, held to the same contract.

import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe } from "vitest";
import { WebSocket } from "ws";
import {
  httpClient,
  type Listener,
  listenHttp,
  listenMemory,
  listenStdio,
  listenTcp,
  listenWebSocket,
  type StdioListener,
  stdioClient,
  type TransportHandler,
  tcpClient,
  webSocketClient,
} from "./index.js";
import { type Rig, type Stage, THE_END, transportContract } from "./transport.contract.js";

/** Reads a socket up to the last text of a test. */
function readToTheEnd(socket: Socket): Promise<number> {
  return new Promise((resolve) => {
    let bytes = 0;
    let tail = "";
    socket.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      tail = (tail + chunk.toString("latin1")).slice(-200);
      if (tail.includes(THE_END)) resolve(bytes);
    });
    socket.resume();
  });
}

async function connected(target: number | string): Promise<Socket> {
  const socket = typeof target === "number" ? connect(target, "127.0.0.1") : connect(target);
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

async function inSingleBytes(socket: Socket, text: string): Promise<void> {
  socket.setNoDelay(true);
  for (const byte of Buffer.from(text)) {
    socket.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function firstLines(socket: Socket, count: number): Promise<string[]> {
  return new Promise((resolve) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (piece: string) => {
      text += piece;
      const lines = text.split("\n");
      if (lines.length > count) resolve(lines.slice(0, count));
    });
  });
}

/** What raw line connections can do, on TCP and on the stream under stdio alike. */
function lineStage(open: () => Promise<Socket>): Pick<Stage, "dribble" | "mute" | "raw" | "die"> {
  return {
    async dribble(text) {
      const socket = await open();
      const lines = firstLines(socket, 1);
      await inSingleBytes(socket, `${text}\r\n`);
      const [line] = await lines;
      socket.destroy();
      return line as string;
    },
    async mute(text) {
      const socket = await open();
      socket.pause();
      socket.write(`${text}\n`);
      return { read: () => readToTheEnd(socket), leave: () => socket.destroy() };
    },
    async raw(bytes, count) {
      const socket = await open();
      const lines = firstLines(socket, count);
      for (const byte of bytes) {
        socket.write(Buffer.of(byte));
        if (byte === 0x0a) await new Promise((resolve) => setImmediate(resolve));
      }
      const got = await lines;
      socket.destroy();
      return got;
    },
    async die(text, ready) {
      const socket = await open();
      socket.write(`${text}\n`);
      await ready;
      if (socket.remoteAddress === undefined) socket.destroy();
      else socket.resetAndDestroy();
    },
  };
}

const portOf = (listener: Listener) => Number(new URL(listener.url).port);

const tcp: Rig = {
  kind: "tcp",
  lasting: true,
  many: true,
  lines: true,
  survivesOverSize: true,
  async stage(handler, limits = {}) {
    const listener = await listenTcp(handler, { limits, lingerMs: 100 });
    const port = portOf(listener);
    return {
      listener,
      client: (clientLimits = {}) => tcpClient({ port, limits: clientLimits }),
      ...lineStage(() => connected(port)),
    };
  },
};

/** Carries its own stdin and stdout to a socket: a real child for the client, a real stream for the server. */
const BRIDGE = `
  const socket = require("node:net").connect(process.argv[1]);
  process.stdin.pipe(socket);
  socket.pipe(process.stdout);
  socket.on("close", () => process.exit());
  socket.on("error", () => process.exit());
`;

const stdio: Rig = {
  kind: "stdio",
  lasting: true,
  many: false,
  lines: true,
  survivesOverSize: true,
  async stage(handler: TransportHandler, limits = {}) {
    const folder = await mkdtemp(join(tmpdir(), "portcullis-stdio-"));
    const path = join(folder, "s");
    const served = new Set<StdioListener>();
    const server = createServer({ allowHalfOpen: true }, async (socket) => {
      const listener = await listenStdio(handler, { input: socket, output: socket, limits, lingerMs: 100 });
      served.add(listener);
      await listener.closed;
      served.delete(listener);
    }).listen(path);
    await once(server, "listening");
    return {
      listener: {
        url: "stdio:",
        get connections() {
          return served.size;
        },
        async close(graceMs) {
          const stopped = once(server, "close");
          server.close();
          await Promise.all([...served].map((listener) => listener.close(graceMs)));
          await stopped;
          await rm(folder, { recursive: true, force: true });
        },
      },
      client: (clientLimits = {}) =>
        stdioClient({ command: process.execPath, args: ["-e", BRIDGE, path], limits: clientLimits }),
      ...lineStage(() => connected(path)),
    };
  },
};

const websocket: Rig = {
  kind: "websocket",
  lasting: true,
  many: true,
  lines: false,
  survivesOverSize: false,
  async stage(handler, limits = {}) {
    const listener = await listenWebSocket(handler, { limits });
    const open = async () => {
      const ws = new WebSocket(listener.url, ["mcp"]);
      ws.on("error", () => {});
      await once(ws, "open");
      return ws;
    };
    return {
      listener,
      client: (clientLimits = {}) => webSocketClient({ url: listener.url, limits: clientLimits }),
      async dribble(text) {
        const ws = await open();
        const bytes = Buffer.from(text);
        for (let i = 0; i < bytes.length; i++) {
          ws.send(bytes.subarray(i, i + 1), { binary: false, fin: i === bytes.length - 1 });
        }
        const [data] = (await once(ws, "message")) as [Buffer];
        ws.terminate();
        return data.toString();
      },
      async mute(text) {
        const ws = await open();
        ws.pause();
        ws.send(text);
        const read = () =>
          new Promise<number>((resolve) => {
            let bytes = 0;
            ws.on("message", (data: Buffer) => {
              bytes += data.length;
              if (data.toString() === THE_END) resolve(bytes);
            });
            ws.resume();
          });
        return { read, leave: () => ws.terminate() };
      },
      async die(text, ready) {
        const ws = await open();
        ws.send(text);
        await ready;
        ws.terminate();
      },
    };
  },
};

function post(port: number, text: string): string {
  const length = Buffer.byteLength(text);
  return `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${text}`;
}

const http: Rig = {
  kind: "http",
  lasting: false,
  many: true,
  lines: false,
  survivesOverSize: true,
  async stage(handler, limits = {}) {
    const listener = await listenHttp(handler, { limits });
    const port = portOf(listener);
    return {
      listener,
      client: (clientLimits = {}) => httpClient({ url: listener.url, limits: clientLimits }),
      async dribble(text) {
        const socket = await connected(port);
        let answer = Buffer.alloc(0);
        socket.on("data", (chunk: Buffer) => {
          answer = Buffer.concat([answer, chunk]);
        });
        await inSingleBytes(socket, post(port, text).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        await once(socket, "close");
        return answer.subarray(answer.indexOf("\r\n\r\n") + 4).toString();
      },
      async mute(text) {
        const socket = await connected(port);
        socket.pause();
        socket.write(post(port, text));
        return { read: () => readToTheEnd(socket), leave: () => socket.destroy() };
      },
      async die(text, ready) {
        const socket = await connected(port);
        socket.write(post(port, text));
        await ready;
        socket.resetAndDestroy();
      },
    };
  },
};

const memory: Rig = {
  kind: "memory",
  lasting: true,
  many: true,
  lines: false,
  survivesOverSize: true,
  async stage(handler, limits = {}) {
    const listener = await listenMemory(handler, { limits });
    return {
      listener,
      client: (clientLimits) => listener.client(clientLimits),
      async mute(text) {
        let bytes = 0;
        let finished = () => {};
        const end = new Promise<void>((resolve) => {
          finished = resolve;
        });
        const client = listener.client();
        await client.start({
          message(message) {
            bytes += message.length;
            if (message === THE_END) finished();
          },
          closed() {},
        });
        await client.send(text);
        return { read: () => end.then(() => bytes), leave: () => void client.close() };
      },
      async die(text, ready) {
        const client = listener.client();
        await client.start({ message() {}, closed() {} });
        await client.send(text);
        await ready;
        await client.close();
      },
    };
  },
};

for (const rig of [stdio, tcp, websocket, http, memory]) describe(rig.kind, () => transportContract(rig));
