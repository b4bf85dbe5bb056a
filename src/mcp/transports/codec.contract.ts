// Any bytes at a codec: no crash, no hang, no unbounded memory (U12). The unit run takes a small share of each of
// these, `codec.long.test.ts` takes them whole.

import { isUtf8 } from "node:buffer";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { PassThrough } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, test } from "vitest";
import { classify, isJsonObject, parseStrict, StrictJsonError } from "../index.js";
import {
  type ClientTransport,
  httpClient,
  type Listener,
  listenHttp,
  listenMemory,
  listenStdio,
  listenTcp,
  listenWebSocket,
  type TransportHandler,
  type TransportLimits,
  tcpClient,
  webSocketClient,
} from "./index.js";
import { LineReader } from "./lines.js";
import { Noise } from "./noise.contract.js";
import { SseReader } from "./sse.js";
import { TransportError } from "./types.js";

export interface CodecSizes {
  /** Random and mutated lines, on every transport. */
  cases: number;
  /** Length of the one endless line. */
  lineBytes: number;
  idleConnections: number;
  halfOpen: number;
  seed: number;
}

const CAP = 4096;
const MIB = 1024 * 1024;
const LINES_A_BATCH = 32;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

function memory(): { live: number; rss: number } {
  collect();
  collect();
  const { heapUsed, external, rss } = process.memoryUsage();
  return { live: heapUsed + external, rss };
}

/** What became of the texts that got through. INVARIANT: whatever they are, the protocol room answers with its own error. */
class Reader implements TransportHandler {
  texts = 0;
  problems = 0;
  refused = 0;
  defects: unknown[] = [];

  message({ text, reply }: Parameters<TransportHandler["message"]>[0]): void {
    this.texts++;
    let answer: string | undefined;
    try {
      const value = parseStrict(text);
      for (const one of Array.isArray(value) ? value : [value]) classify(one);
      if (isJsonObject(value) && typeof value.marker === "number") answer = text;
    } catch (error) {
      this.refused++;
      if (!(error instanceof StrictJsonError)) this.defects.push(error);
    }
    reply.end(answer);
  }

  malformed(...[_problem, _peer, reply]: Parameters<NonNullable<TransportHandler["malformed"]>>): void {
    this.problems++;
    reply.end();
  }

  http({ reply }: Parameters<NonNullable<TransportHandler["http"]>>[0]): boolean {
    reply.end("{}");
    return true;
  }
}

/** A hostile peer on one transport: throws its lines at the server, and is satisfied when a good one is still answered. */
interface Lane {
  throwAt(lines: readonly Buffer[], marker: string): Promise<void>;
  leave(): void | Promise<void>;
}

/** A raw socket that is opened again whenever the server has had enough of it. */
class Line {
  readonly #open: () => Promise<Socket>;
  #socket: Socket | undefined;
  #heard = "";
  #wake: () => void = () => {};

  constructor(open: () => Promise<Socket>) {
    this.#open = open;
  }

  /** Writes the pieces, then `last` until something with `wanted` in it comes back. */
  async until(pieces: Iterable<Buffer>, last: Buffer, wanted: string): Promise<void> {
    this.#heard = "";
    const deadline = Date.now() + 60_000;
    let socket = await this.#connected();
    for (const piece of pieces) socket.write(piece);
    socket.write(last);
    while (!this.#heard.includes(wanted)) {
      if (Date.now() > deadline) throw new Error(`a good message was not answered within a minute: ${wanted}`);
      const quiet = await this.#isQuietFor(200);
      const before = socket;
      socket = await this.#connected();
      // Said again when the server hung up, and when it is quiet: a damaged head may announce more than there is, and
      // then the server rightly waits for the rest.
      if (quiet || socket !== before) socket.write(last);
    }
  }

  async #isQuietFor(timeoutMs: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const quiet = await new Promise<boolean>((resolve) => {
      this.#wake = () => resolve(false);
      timer = setTimeout(() => resolve(true), timeoutMs);
    });
    clearTimeout(timer);
    return quiet;
  }

  leave(): void {
    this.#socket?.destroy();
  }

  async #connected(): Promise<Socket> {
    if (this.#socket !== undefined && !this.#socket.destroyed && this.#socket.writable) return this.#socket;
    const socket = await this.#open();
    socket.on("data", (chunk: Buffer) => {
      this.#heard = (this.#heard + chunk.toString("latin1")).slice(-2000);
      this.#wake();
    });
    socket.on("close", () => this.#wake());
    this.#socket = socket;
    return socket;
  }
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

const UPGRADE =
  "GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
  "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n";

async function dialWebSocket(port: number): Promise<Socket> {
  const socket = await dial(port);
  socket.write(UPGRADE);
  await once(socket, "data");
  return socket;
}

/** A masked frame (with an all-zero mask, which is allowed and leaves the payload readable). */
function frame(payload: Buffer, first = 0x81): Buffer {
  const { length } = payload;
  const head =
    length < 126
      ? Buffer.from([first, 0x80 | length, 0, 0, 0, 0])
      : Buffer.from([first, 0x80 | 126, length >> 8, length & 0xff, 0, 0, 0, 0]);
  return Buffer.concat([head, payload]);
}

function post(body: Buffer): Buffer {
  const head = `POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

/** Now and then the framing itself is damaged; the server may then hang up, but nothing worse. */
function damaged(noise: Noise, bytes: Buffer, within: number): Buffer {
  if (noise.chance(500)) bytes[noise.below(Math.min(within, bytes.length))] = noise.below(256);
  return bytes;
}

interface Bench {
  listener: Listener;
  lane: Lane;
  /** A well-behaved client of this transport. */
  client?: () => ClientTransport;
  port: number;
}

type Kind = "tcp" | "stdio" | "websocket" | "http" | "memory";

async function bench(
  kind: Kind,
  handler: TransportHandler,
  noise: Noise,
  limits: Partial<TransportLimits>,
): Promise<Bench> {
  const newline = Buffer.from("\n");
  switch (kind) {
    case "tcp": {
      const listener = await listenTcp(handler, { limits });
      const port = Number(new URL(listener.url).port);
      const line = new Line(() => dial(port));
      const lane: Lane = {
        throwAt: (lines, marker) =>
          line.until(
            noise.chunks(Buffer.concat(lines.flatMap((one) => [one, newline]))),
            Buffer.from(`${marker}\n`),
            marker,
          ),
        leave: () => line.leave(),
      };
      return { listener, lane, port, client: () => tcpClient({ port }) };
    }
    case "stdio": {
      const input = new PassThrough({ highWaterMark: MIB });
      const output = new PassThrough();
      const listener = await listenStdio(handler, { input, output, limits });
      let heard = "";
      let wake = () => {};
      output.on("data", (chunk: Buffer) => {
        heard = (heard + chunk.toString("latin1")).slice(-2000);
        wake();
      });
      const lane: Lane = {
        async throwAt(lines, marker) {
          for (const chunk of noise.chunks(Buffer.concat(lines.flatMap((one) => [one, newline])))) input.write(chunk);
          input.write(`${marker}\n`);
          while (!heard.includes(marker)) {
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
          }
        },
        leave: () => void input.end(),
      };
      return { listener, lane, port: 0 };
    }
    case "websocket": {
      const listener = await listenWebSocket(handler, { limits });
      const port = Number(new URL(listener.url).port);
      const line = new Line(() => dialWebSocket(port));
      const lane: Lane = {
        throwAt(lines, marker) {
          const frames = lines.map((line) => {
            // A frame that is not UTF-8 ends the connection, so it comes seldom.
            const one = noise.chance(300) ? line : Buffer.from(line.toString("latin1"));
            // Text, in one frame or two; a binary or an invalid opcode only as damage, because it ends the connection.
            if (one.length < 2 || !noise.chance(4)) return damaged(noise, frame(one.subarray(0, 60_000)), 10);
            const cut = noise.below(one.length);
            return Buffer.concat([
              frame(one.subarray(0, cut), 0x01),
              damaged(noise, frame(one.subarray(cut), 0x80), 10),
            ]);
          });
          return line.until(noise.chunks(Buffer.concat(frames)), frame(Buffer.from(marker)), marker);
        },
        leave: () => line.leave(),
      };
      return { listener, lane, port, client: () => webSocketClient({ url: listener.url }) };
    }
    case "http": {
      const listener = await listenHttp(handler, { limits });
      const port = Number(new URL(listener.url).port);
      const line = new Line(() => dial(port));
      const lane: Lane = {
        async throwAt(lines, marker) {
          // Fewer at a time than a client may send ahead.
          for (let start = 0; start < lines.length || start === 0; start += 12) {
            const requests = lines.slice(start, start + 12).map((one) => damaged(noise, post(one), 150));
            const last = marker.replace("}", `,"part":${start}}`);
            await line.until(noise.chunks(Buffer.concat(requests)), post(Buffer.from(last)), last);
          }
        },
        leave: () => line.leave(),
      };
      return { listener, lane, port, client: () => httpClient({ url: listener.url }) };
    }
    case "memory": {
      const listener = await listenMemory(handler, { limits });
      const client = listener.client({ maxMessageBytes: MIB });
      let heard = "";
      let wake = () => {};
      await client.start({
        message(text) {
          heard = text;
          wake();
        },
        closed() {},
      });
      const lane: Lane = {
        async throwAt(lines, marker) {
          for (const one of lines) await client.send(one.toString("latin1"));
          await client.send(marker);
          while (heard !== marker) {
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
          }
        },
        leave: () => client.close(),
      };
      return { listener, lane, port: 0, client: () => listener.client() };
    }
  }
}

/** One good call on a connection of its own. */
async function isServed(client: () => ClientTransport): Promise<boolean> {
  const one = client();
  const text = '{"marker":1}';
  let heard: (text: string) => void = () => {};
  const answered = new Promise<string>((resolve) => {
    heard = resolve;
  });
  await one.start({ message: heard, closed: () => heard("closed") });
  await one.send(text);
  const answer = await answered;
  await one.close();
  return answer === text;
}

const KINDS: readonly Kind[] = ["tcp", "stdio", "websocket", "http", "memory"];
const SOCKETS: readonly Kind[] = ["tcp", "websocket", "http"];

export function codecContract(sizes: CodecSizes): void {
  const cleanUp: (() => unknown)[] = [];
  afterEach(async () => {
    for (const undo of cleanUp.splice(0).reverse()) await undo();
  });

  async function set(
    kind: Kind,
    handler: TransportHandler,
    limits: Partial<TransportLimits> = {},
    noise = new Noise(sizes.seed),
  ) {
    const made = await bench(kind, handler, noise, { maxMessageBytes: CAP, ...limits });
    cleanUp.push(
      () => made.listener.close(0),
      () => made.lane.leave(),
    );
    return made;
  }

  describe("framing alone", () => {
    test(`${sizes.cases} lines, cut anywhere, come out as a plain split would give them`, () => {
      const noise = new Noise(sizes.seed);
      let seen: string[] = [];
      const reader = new LineReader(CAP, {
        line: (text) => seen.push(text),
        malformed: (problem) => seen.push(`!${problem.kind}`),
      });
      reader.push(Buffer.from("\n"));
      let before = memory();
      for (let done = 0; done < sizes.cases; done += 1000) {
        if (done === Math.floor(sizes.cases / 5000) * 1000) before = memory();
        const lines = Array.from({ length: 1000 }, () => noise.line(CAP));
        const whole = Buffer.concat(lines.flatMap((line) => [line, Buffer.from("\n")]));
        for (const chunk of noise.chunks(whole)) reader.push(chunk);
        const wanted = plainSplit(whole);
        // Compared whole first: a diff of a thousand lines for every batch would take longer than the test.
        if (seen.length !== wanted.length || seen.some((text, i) => text !== wanted[i])) expect(seen).toEqual(wanted);
        seen = [];
      }
      expect(memory().live - before.live).toBeLessThan(16 * MIB);
    });

    test(`${sizes.cases} lines of an event stream leave the reader sound and small`, () => {
      const noise = new Noise(sizes.seed + 1);
      const prefixes = ["data: ", "data:", "id: ", "event: ", "retry: ", ":", ""];
      const ends = ["\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n"];
      let events = 0;
      let ended = 0;
      const fresh = () => new SseReader(CAP, { event: () => events++ });
      let reader = fresh();
      const before = memory();
      for (let done = 0; done < sizes.cases; done += 100) {
        const pieces: Buffer[] = [];
        for (let i = 0; i < 100; i++) {
          const prefix = prefixes[noise.below(prefixes.length)] as string;
          pieces.push(Buffer.from(prefix), noise.line(CAP), Buffer.from(ends[noise.below(ends.length)] as string));
        }
        for (const chunk of noise.chunks(Buffer.concat(pieces))) {
          try {
            reader.push(chunk);
          } catch (error) {
            if (!(error instanceof TransportError)) throw error;
            ended++;
            reader = fresh();
          }
        }
        reader.push(Buffer.from("\n\ndata: still here\n\n"));
      }
      expect(events).toBeGreaterThan(sizes.cases / 100);
      expect(ended).toBeGreaterThan(0);
      expect(memory().live - before.live).toBeLessThan(16 * MIB);
    });
  });

  for (const kind of KINDS) {
    describe(kind, () => {
      test(`${sizes.cases} random and mutated messages: no crash, no hang, memory flat [U12]`, async () => {
        const reader = new Reader();
        const noise = new Noise(sizes.seed + 2);
        const { lane } = await set(kind, reader, {}, noise);
        const batches = Math.ceil(sizes.cases / LINES_A_BATCH);
        let before = memory();
        for (let batch = 0; batch < batches; batch++) {
          if (batch === Math.floor(batches / 5)) before = memory();
          const lines = Array.from({ length: LINES_A_BATCH }, () => noise.line(CAP));
          await lane.throwAt(lines, `{"marker":${batch}}`);
        }
        const after = memory();
        expect(reader.defects).toEqual([]);
        expect(reader.texts).toBeGreaterThan(sizes.cases / 2);
        expect(reader.refused).toBeGreaterThan(sizes.cases / 5);
        expect(reader.problems).toBeGreaterThan(0);
        expect(after.live - before.live).toBeLessThan(16 * MIB);
        expect(after.rss - before.rss).toBeLessThan(128 * MIB);
      });

      test("100,000 levels of nesting are an error and nothing else [U12]", async () => {
        const reader = new Reader();
        const { lane } = await set(kind, reader, { maxMessageBytes: MIB });
        await lane.throwAt([], '{"marker":0}');
        const deep = Buffer.from("[".repeat(100_000) + "]".repeat(100_000));
        const text = kind === "websocket" ? undefined : deep;
        if (text === undefined) await sendDeepOnWebSocket(deep);
        else {
          // With some seeds the noise damages the request around the message, which is then sent again.
          for (let i = 1; i <= 20 && reader.refused === 0; i++) await lane.throwAt([text], `{"marker":${i}}`);
        }
        expect(reader.defects).toEqual([]);
        expect(reader.refused).toBe(1);

        async function sendDeepOnWebSocket(payload: Buffer): Promise<void> {
          const pieces = Array.from({ length: 4 }, (_, i) => payload.subarray(i * 50_000, (i + 1) * 50_000));
          const { client, port } = await set("websocket", reader, { maxMessageBytes: MIB });
          const socket = await dialWebSocket(port);
          pieces.forEach((piece, i) => socket.write(frame(piece, (i === 3 ? 0x80 : 0) | (i === 0 ? 1 : 0))));
          while (reader.refused === 0) await sleep(5);
          socket.destroy();
          expect(await isServed(client as () => ClientTransport)).toBe(true);
        }
      });
    });
  }

  describe(`a message of ${sizes.lineBytes / MIB} MiB`, () => {
    const chunk = Buffer.alloc(64 * 1024, "x");
    const pieces = Math.ceil(sizes.lineBytes / chunk.length);

    /** Writes the chunk over and over, waiting when told to, and gives back the most memory seen on the way. */
    async function pour(
      write: (chunk: Buffer) => boolean,
      drained: () => Promise<unknown>,
      gone: () => boolean,
    ): Promise<number> {
      const start = memory().rss;
      let most = 0;
      for (let i = 0; i < pieces && !gone(); i++) {
        if (!write(chunk)) await drained();
        if (i % 256 === 0) most = Math.max(most, process.memoryUsage.rss() - start);
      }
      return most;
    }

    /** When the stream takes more, or is gone. */
    const drain = (stream: Socket | PassThrough) => () =>
      new Promise<void>((resolve) => {
        const settle = () => {
          stream.off("drain", settle).off("close", settle);
          resolve();
        };
        stream.on("drain", settle).on("close", settle);
      });

    test("on TCP is dropped as it comes, and the next line is read [U12]", async () => {
      const reader = new Reader();
      const { port } = await set("tcp", reader);
      const socket = await dial(port);
      const most = await pour(
        (bytes) => socket.write(bytes),
        drain(socket),
        () => socket.destroyed,
      );
      socket.write('\n{"marker":5}\n');
      const [answer] = (await once(socket, "data")) as [Buffer];
      socket.destroy();
      expect(answer.toString()).toBe('{"marker":5}\n');
      expect([reader.problems, reader.texts]).toEqual([1, 1]);
      expect(most).toBeLessThan(100 * MIB);
    });

    test("on stdio is dropped as it comes, and the next line is read", async () => {
      const reader = new Reader();
      const input = new PassThrough();
      const output = new PassThrough();
      const listener = await listenStdio(reader, { input, output, limits: { maxMessageBytes: CAP } });
      cleanUp.push(() => listener.close(0));
      const most = await pour(
        (bytes) => input.write(bytes),
        drain(input),
        () => false,
      );
      input.write('\n{"marker":5}\n');
      const [answer] = (await once(output, "data")) as [Buffer];
      expect(answer.toString()).toBe('{"marker":5}\n');
      expect([reader.problems, reader.texts]).toEqual([1, 1]);
      expect(most).toBeLessThan(100 * MIB);
    });

    test("on HTTP is answered 413 while it still comes, and the connection ends when it does not stop", async () => {
      const reader = new Reader();
      const { port, client } = await set("http", reader, { maxMessageBytes: CAP });
      const socket = await dial(port);
      let heard = "";
      socket.on("data", (bytes: Buffer) => (heard += bytes));
      socket.write(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
      );
      const framed = Buffer.concat([Buffer.from("10000\r\n"), chunk, Buffer.from("\r\n")]);
      const most = await pour(
        () => socket.write(framed),
        drain(socket),
        () => socket.destroyed,
      );
      expect(heard).toMatch(/^HTTP\/1\.1 413 /);
      if (!socket.destroyed) await once(socket, "close");
      expect(reader.problems).toBe(1);
      expect(await isServed(client as () => ClientTransport)).toBe(true);
      expect(most).toBeLessThan(100 * MIB);
    });

    test("on WebSocket ends the connection, announced or in fragments, and others are served", async () => {
      const reader = new Reader();
      const { port, client } = await set("websocket", reader);
      const announced = await dialWebSocket(port);
      const head = Buffer.from([0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
      head.writeBigUInt64BE(BigInt(sizes.lineBytes), 2);
      announced.write(head);
      await once(announced, "data");
      announced.destroy();
      const fragments = await dialWebSocket(port);
      fragments.resume();
      const piece = frame(chunk.subarray(0, 60_000), 0x00);
      fragments.write(frame(Buffer.from("x"), 0x01));
      const most = await pour(
        () => fragments.write(piece),
        drain(fragments),
        () => fragments.destroyed,
      );
      fragments.destroy();
      expect(reader.problems).toBe(2);
      expect(reader.texts).toBe(0);
      expect(await isServed(client as () => ClientTransport)).toBe(true);
      expect(most).toBeLessThan(100 * MIB);
    });

    test("in memory is not even sent", async () => {
      const listener = await listenMemory(new Reader());
      cleanUp.push(() => listener.close(0));
      const client = listener.client();
      await client.start({ message: () => {}, closed: () => {} });
      // A string cannot be longer than half a gigabyte.
      const text = "x".repeat(Math.min(sizes.lineBytes, 256 * MIB));
      await expect(client.send(text)).rejects.toMatchObject({ kind: "too-large" });
    });

    test("from a server does not fill a client either: as a line, as a body, as an event", async () => {
      const answers: Record<string, string> = {
        line: "",
        body: "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
        event: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ",
      };
      for (const [kind, head] of Object.entries(answers)) {
        let most = 0;
        const server = createServer(async (socket) => {
          socket.on("error", () => {});
          await once(socket, "data");
          socket.write(head);
          most = await pour(
            (bytes) => socket.write(bytes),
            drain(socket),
            () => socket.destroyed,
          );
          socket.end("\n{}\n");
        }).listen(0, "127.0.0.1");
        await once(server, "listening");
        cleanUp.push(() => server.close());
        const { port } = server.address() as { port: number };
        const problems: string[] = [];
        const messages: string[] = [];
        let ended: () => void = () => {};
        const closed = new Promise<void>((resolve) => {
          ended = resolve;
        });
        const client = kind === "line" ? tcpClient({ port }) : httpClient({ url: `http://127.0.0.1:${port}/mcp` });
        await client.start({
          message: (text) => messages.push(text),
          malformed: (problem) => problems.push(problem.kind),
          closed: ended,
        });
        const sent = await client.send("[1]");
        if (kind === "line") await closed;
        else await sent.done.catch((error: TransportError) => problems.push(error.kind));
        await client.close();
        expect([kind, problems, messages]).toEqual([kind, ["too-large"], kind === "line" ? ["{}"] : []]);
        expect(most).toBeLessThan(100 * MIB);
      }
    });
  });

  describe("connections that are of no use", () => {
    const HALVES: Record<string, readonly (string | Buffer)[]> = {
      tcp: ["", '{"jsonrpc":"2.0",', "\n"],
      websocket: ["", "GET /mcp HT", UPGRADE, Buffer.concat([Buffer.from(UPGRADE), Buffer.from([0x81, 0xfe, 1])])],
      http: [
        "",
        "POST /mcp HTTP/1.1\r\nHost: loc",
        post(Buffer.from("[1,2,3]")).subarray(0, -3),
        post(Buffer.from("[1]")),
      ],
    };

    for (const kind of SOCKETS) {
      test(`${kind}: ${sizes.halfOpen} peers that stop in the middle are let go, and others are served meanwhile`, async () => {
        const reader = new Reader();
        const waits = { headersMs: 300, bodyMs: 300, idleMs: 300 };
        const { listener, port, client } = await set(kind, reader, waits);
        const halves = HALVES[kind] as readonly (string | Buffer)[];
        const sockets = await Promise.all(
          Array.from({ length: sizes.halfOpen }, async (_, i) => {
            const socket = await dial(port);
            socket.write(halves[i % halves.length] as string);
            return socket;
          }),
        );
        expect(await isServed(client as () => ClientTransport)).toBe(true);
        const until = Date.now() + 30_000;
        while (listener.connections > 0 && Date.now() < until) await sleep(50);
        for (const socket of sockets) socket.destroy();
        expect(listener.connections).toBe(0);
        expect(reader.defects).toEqual([]);
      });

      test(`${kind}: peers that ask for much and read nothing are cut off, and others are served meanwhile`, async () => {
        const block = `"${"b".repeat(60_000)}"`;
        let aborts = 0;
        const greedy: TransportHandler = {
          message({ text, reply }) {
            if (text !== '"much"') return reply.end(text);
            reply.onAbort(() => aborts++);
            const timer = setInterval(() => {
              for (let i = 0; i < 20; i++) reply.send(block);
              if (reply.ended) clearInterval(timer);
            }, 1);
          },
        };
        const { port, client } = await set(kind, greedy, { maxMessageBytes: MIB, maxBufferedBytes: 128 * 1024 });
        const peers = Math.min(sizes.halfOpen, 50);
        const much = Buffer.from('"much"');
        const start = memory().rss;
        const sockets = await Promise.all(
          Array.from({ length: peers }, async () => {
            const socket = kind === "websocket" ? await dialWebSocket(port) : await dial(port);
            socket.pause();
            socket.write(kind === "tcp" ? '"much"\n' : kind === "http" ? post(much) : frame(much));
            return socket;
          }),
        );
        expect(await isServed(client as () => ClientTransport)).toBe(true);
        const until = Date.now() + 60_000;
        while (aborts < peers && Date.now() < until) await sleep(20);
        const grown = process.memoryUsage.rss() - start;
        for (const socket of sockets) socket.destroy();
        expect(aborts).toBe(peers);
        expect(grown).toBeLessThan(150 * MIB);
      });

      test(`${kind}: ${sizes.idleConnections} idle connections stay within the cap, others are served, all are let go [U12]`, async () => {
        const reader = new Reader();
        const cap = Math.floor(sizes.idleConnections * 0.98);
        const patienceMs = sizes.idleConnections > 1000 ? 20_000 : 1_000;
        const waits = { maxConnections: cap, maxConnectionsPerAddress: cap, headersMs: patienceMs, idleMs: patienceMs };
        const { listener, port, client } = await set(kind, reader, waits);
        const before = memory();
        const crowd = await idlers(kind, port, sizes.idleConnections);
        cleanUp.push(() => crowd.kill());
        const peak = listener.connections;
        const each = (memory().live - before.live) / peak;
        expect(peak).toBeLessThanOrEqual(cap);
        expect(peak).toBeGreaterThan(cap * 0.9);
        expect(await isServed(client as () => ClientTransport)).toBe(true);
        // With a few hundred the noise is larger than the number.
        if (peak > 1000)
          console.info(`${kind}: ${peak} idle connections, ${(each / 1024).toFixed(1)} KiB of heap each`);
        const until = Date.now() + 4 * patienceMs;
        while (listener.connections > 0 && Date.now() < until) await sleep(50);
        expect(listener.connections).toBe(0);
        expect(await isServed(client as () => ClientTransport)).toBe(true);
        expect(reader.defects).toEqual([]);
      });
    }
  });
}

/** A process that holds many connections: every second one says something, then all keep quiet. */
async function idlers(kind: Kind, port: number, count: number): Promise<ChildProcess> {
  const hello = kind === "tcp" ? '{"marker":1}\n' : kind === "http" ? post(Buffer.from("[1]")).toString() : UPGRADE;
  const script = `
    const [port, count, hello, always] = process.argv.slice(1);
    const net = require("node:net");
    let settled = 0;
    const done = () => { if (++settled === Number(count)) process.stdout.write("ready"); else next(); };
    let started = 0;
    function next() {
      if (started >= Number(count)) return;
      const talks = always === "1" || started % 2 === 0;
      started++;
      let once = () => { once = () => {}; done(); };
      const socket = net.connect(Number(port), "127.0.0.1", () => talks ? socket.write(hello) : once());
      socket.on("data", () => once());
      socket.on("error", () => once());
      socket.on("close", () => once());
    }
    for (let i = 0; i < 100; i++) next();
    process.stdin.on("end", () => process.exit()).resume();
  `;
  const args = ["-e", script, String(port), String(count), hello, kind === "websocket" ? "1" : "0"];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  await once(child.stdout, "data");
  return child;
}

function plainSplit(whole: Buffer): string[] {
  const found: string[] = [];
  let start = 0;
  for (let end = whole.indexOf(0x0a); end !== -1; end = whole.indexOf(0x0a, start)) {
    const line = whole.subarray(start, end > start && whole[end - 1] === 0x0d ? end - 1 : end);
    start = end + 1;
    if (line.length === 0) continue;
    if (line.length > CAP) found.push("!too-large");
    else if (!isUtf8(line)) found.push("!not-utf8");
    else found.push(line.toString("utf8"));
  }
  return found;
}
