// Every transport answers a message that it refuses with the id of that message, where the id can be read, and does not
// answer a request that its client cancelled.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { root, type Serving, serve } from "./serving.js";

const TOO_LARGE = 5 * 1024 * 1024;
const deep = `${"[".repeat(300)}${"]".repeat(300)}`;

const REFUSED: [what: string, text: string | Buffer, id: string | number | null][] = [
  ["a lone surrogate", String.raw`{"jsonrpc":"2.0","id":71,"method":"ping","params":{"x":"\ud800"}}`, 71],
  ["duplicate keys", '{"method":"ping","params":{"x":1,"x":2},"jsonrpc":"2.0","id":"dup"}', "dup"],
  ["nesting that is too deep", `{"params":{"x":${deep}},"id":72,"method":"ping","jsonrpc":"2.0"}`, 72],
  ["a wrong jsonrpc", '{"jsonrpc":"1.0","id":73,"method":"ping"}', 73],
  ["a missing jsonrpc", '{"id":"none","method":"ping"}', "none"],
  ["params that are a list", '{"jsonrpc":"2.0","id":74,"method":"ping","params":[]}', 74],
  ["an integer that loses digits", '{"jsonrpc":"2.0","id":75,"method":"ping","params":{"x":90071992547409931}}', 75],
  [
    "bytes that are not UTF-8",
    Buffer.concat([
      Buffer.from('{"jsonrpc":"2.0","id":76,"method":"ping","params":{"x":"'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('"}}'),
    ]),
    76,
  ],
  ["two ids", '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', null],
];
const LARGE = `{"jsonrpc":"2.0","id":77,"method":"ping","params":{"x":"${"a".repeat(TOO_LARGE)}"}}`;

const INITIALIZE =
  '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}';
const WAIT = '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}';
const CANCEL = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}';

let dir: string;
let module: string;
let serving: Serving;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "portcullis-answered-"));
  module = join(dir, "module.mjs");
  writeFileSync(
    module,
    `import { createServer } from ${JSON.stringify(join(root, "dist", "server.js"))};
const server = createServer("mine");
server.tool("wait", "waits until it is cancelled", { type: "object" },
  (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("cancelled")))),
  { noGuardrailRequired: true });
export default server;
`,
  );
  mkdirSync(join(dir, "policy"), { mode: 0o700 });
  writeFileSync(join(dir, "policy", "all.cedar"), "permit (principal, action, resource);");
  serving = await serve([module, "--log-level", "error", "--tcp-port", "0", "--ws-port", "0"], { dir });
});
afterAll(async () => {
  await serving?.stop();
  rmSync(dir, { recursive: true, force: true });
});

interface Answer {
  readonly id?: unknown;
  readonly error?: { readonly code: number };
  readonly result?: unknown;
}

/** One connection: answers in the order in which they came. */
interface Line {
  send(text: string | Buffer): void;
  next(): Promise<Answer>;
  close(): Promise<void>;
}

class Answers {
  readonly #waiting: ((answer: Answer) => void)[] = [];
  readonly #kept: Answer[] = [];

  add(text: string): void {
    const answer = JSON.parse(text) as Answer;
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#kept.push(answer);
    else waiting(answer);
  }

  next(): Promise<Answer> {
    const kept = this.#kept.shift();
    return kept === undefined ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve(kept);
  }
}

function readLines(stream: NodeJS.ReadableStream, answers: Answers): void {
  let rest = "";
  stream.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString("utf8")).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") answers.add(line);
  });
}

const endLine = (text: string | Buffer): Buffer => Buffer.concat([Buffer.from(text), Buffer.from("\n")]);

async function stdio(): Promise<Line> {
  const own = mkdtempSync(join(dir, "stdio-"));
  mkdirSync(join(own, "policy"), { mode: 0o700 });
  writeFileSync(join(own, "policy", "all.cedar"), "permit (principal, action, resource);");
  const args = [join(root, "dist/cli/main.js"), "--dir", own, "serve", module, "--stdio", "--log-level", "error"];
  const child: ChildProcess = spawn(process.execPath, [...args, "--admin-port", "0"], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const answers = new Answers();
  // A large message is answered before all of it is written; the rest fails when the process is ended.
  child.stdin?.on("error", () => {});
  readLines(child.stdout as NodeJS.ReadableStream, answers);
  return {
    send: (text) => void child.stdin?.write(endLine(text)),
    next: () => answers.next(),
    close: async () => {
      child.kill();
      await ended;
    },
  };
}

async function tcp(): Promise<Line> {
  const { hostname, port } = new URL(serving.urls[1] as string);
  const socket: Socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  const answers = new Answers();
  readLines(socket, answers);
  return {
    send: (text) => void socket.write(endLine(text)),
    next: () => answers.next(),
    close: async () => void socket.destroy(),
  };
}

async function websocket(): Promise<Line> {
  const socket = new WebSocket(serving.urls[2] as string, "mcp");
  const answers = new Answers();
  socket.on("message", (data) => answers.add(String(data)));
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  return {
    send: (text) => socket.send(text, { binary: false }),
    next: () => answers.next(),
    close: async () => socket.terminate(),
  };
}

const HTTP_HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

/** Messages of one POST, as one JSON document or as events. */
async function post(body: RequestInit["body"], headers: Record<string, string> = {}): Promise<Response> {
  return await fetch(new URL("/mcp", serving.url), {
    method: "POST",
    headers: { ...HTTP_HEADERS, ...headers },
    body,
    duplex: "half",
  } as RequestInit);
}

function messagesIn(text: string): Answer[] {
  const events = [...text.matchAll(/^data: ?(.*)$/gm)].map(([, data = ""]) => data);
  return (events.length > 0 ? events : [text]).filter((each) => each.trim() !== "").map((each) => JSON.parse(each));
}

async function http(): Promise<Line> {
  const answers = new Answers();
  return {
    // In pieces and without a length, so that the body is read at all.
    send: (text) =>
      void post(new Blob([text]).stream()).then(async (response) => {
        for (const answer of messagesIn(await response.text())) answers.add(JSON.stringify(answer));
      }),
    next: () => answers.next(),
    close: async () => undefined,
  };
}

describe.each([
  ["stdio", stdio],
  ["TCP", tcp],
  ["WebSocket", websocket],
  ["HTTP", http],
])("%s", (name, open) => {
  let line: Line;
  beforeEach(async () => {
    line = await open();
  });
  afterEach(async () => {
    await line.close();
  });

  it("an error answer carries the id that could be read from the refused message [M1]", async () => {
    for (const [what, text, id] of REFUSED) {
      // A frame that is not UTF-8 ends a WebSocket connection (RFC 6455).
      if (name === "WebSocket" && typeof text !== "string") continue;
      line.send(text);
      const answer = await line.next();
      expect({ what, id: answer.id, refused: answer.error !== undefined }).toEqual({ what, id, refused: true });
    }
  });

  // A WebSocket frame announces its length and is not read at all: the connection ends with code 1009.
  it.skipIf(name === "WebSocket")("a message that is too large is answered with the id at its beginning", async () => {
    line.send(LARGE);
    expect(await line.next()).toMatchObject({ id: 77, error: {} });
  });

  it.skipIf(name === "HTTP")("a cancelled request is not answered [M1]", async () => {
    line.send(INITIALIZE);
    expect(await line.next()).toMatchObject({ id: 1, result: {} });
    line.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
    line.send(WAIT);
    line.send(CANCEL);
    line.send('{"jsonrpc":"2.0","id":3,"method":"ping"}');
    expect(await line.next()).toEqual({ jsonrpc: "2.0", id: 3, result: {} });
    // The id is free again once the call has ended; until then its use is refused.
    await expect
      .poll(
        async () => {
          line.send('{"jsonrpc":"2.0","id":2,"method":"ping"}');
          return await line.next();
        },
        { timeout: 30_000 },
      )
      .toEqual({ jsonrpc: "2.0", id: 2, result: {} });
  });
});

it("ends a server on stdio at SIGTERM while its stdin is open [M1]", async () => {
  const line = await stdio();
  line.send('{"jsonrpc":"2.0","id":1,"method":"ping"}');
  await line.next();
  // Resolves when the process has ended.
  await line.close();
});

describe("HTTP", () => {
  it("a cancelled request is not answered", async () => {
    const opened = await post(INITIALIZE);
    await opened.text();
    const session = {
      "mcp-session-id": opened.headers.get("mcp-session-id") ?? "",
      "mcp-protocol-version": "2025-11-25",
    };
    await post('{"jsonrpc":"2.0","method":"notifications/initialized"}', session);
    const waiting = post(WAIT, session).then((response) => response.text());
    let ended: string | undefined;
    void waiting.then((text) => {
      ended = text;
    });
    // The call may not have begun when the first notification arrives.
    await expect
      .poll(
        async () => {
          await post(CANCEL, session);
          return ended;
        },
        { timeout: 60_000, interval: 200 },
      )
      .toBeDefined();
    expect(messagesIn(ended ?? "").filter((answer) => answer.id === 2)).toEqual([]);
  });
});
