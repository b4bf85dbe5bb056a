import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import { type AnswerHeaders, HttpPool } from "./http1.js";
import { ResponseReader } from "./response-reader.js";

interface Read {
  status: number;
  headers: AnswerHeaders;
  body: string;
  isOver: boolean;
}

/** What is read of these pieces, which are one answer. */
function read(pieces: readonly Buffer[], isHead = false): Read {
  const reader = new ResponseReader();
  reader.begin(isHead);
  let body = "";
  for (const piece of pieces) {
    let at = reader.hasHead ? 0 : reader.readHead(piece);
    while (reader.hasHead) {
      at = reader.readBody(piece, at);
      if (reader.part === undefined) break;
      body += reader.part.toString("latin1");
    }
  }
  return { status: reader.status, headers: reader.headers, body, isOver: reader.isOver };
}

const of = (text: string): Buffer[] => [Buffer.from(text, "latin1")];

describe("an HTTP answer", () => {
  it.each([
    ["a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true],
    ["a length of nothing", "HTTP/1.1 202 Accepted\r\ncontent-length:0\r\n\r\n", "", true],
    [
      "chunks",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n",
      "hello",
      true,
    ],
    [
      "trailers",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
      "0123456789",
      true,
    ],
    ["no end but that of its connection", "HTTP/1.0 200 OK\r\n\r\nhello", "hello", false],
    ["nothing to say", "HTTP/1.1 204\r\n\r\n", "", true],
    [
      "interim answers before it",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!",
      "!",
      true,
    ],
  ])("an HTTP answer with %s is read the same however it is cut", (_with, text, body, isOver) => {
    expect(read(of(text))).toMatchObject({ body, isOver });
    const bytes = Buffer.from(text, "latin1");
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 8 }), (cuts) => {
        const at = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
        const pieces = at.slice(1).map((end, i) => bytes.subarray(at[i], end));
        expect(read(pieces.filter((piece) => piece.length > 0))).toMatchObject({ body, isOver });
      }),
      { numRuns: 50 },
    );
    expect(read(Array.from(bytes, (_, i) => bytes.subarray(i, i + 1)))).toMatchObject({ body, isOver });
  });

  it("an HTTP answer to HEAD has no body, whatever length it names", () => {
    expect(read(of("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"), true)).toMatchObject({ isOver: true, body: "" });
  });

  it.each([
    ["a header of white space that ends in a control character", `x:${" ".repeat(16_000)}\x01`],
    ["a header name without an end", "x".repeat(16_000)],
  ])("an HTTP answer with %s is refused at once", (_with, header) => {
    expect(() => read(of(`HTTP/1.1 200 OK\r\n${header}\r\n\r\n`))).toThrow("not well formed");
  });

  it("an HTTP answer with much white space in a header is read at once", () => {
    const { headers } = read(of(`HTTP/1.1 200 OK\r\nx:${" ".repeat(7_000)}a${" ".repeat(8_000)}\r\n\r\n`));
    expect(headers.x).toBe("a");
    const list = `connection:${" \t".repeat(7_000)}x`;
    expect(read(of(`HTTP/1.1 200 OK\r\n${list}\r\ncontent-length: 0\r\n\r\n`)).isOver).toBe(true);
  });

  it("an HTTP answer may repeat a header, and each value is there", () => {
    const { headers } = read(of("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nSet-Cookie: a\r\nset-cookie: b \r\n\r\n"));
    expect(headers["set-cookie"]).toEqual(["a", "b"]);
  });

  const chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
  it.each([
    ["two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"],
    ["a list of lengths", "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello"],
    ["a signed length", "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello"],
    ["a length beside chunks", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["another coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    ["two codings", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["a folded header", "HTTP/1.1 200 OK\r\nx: a\r\n content-length: 5\r\n\r\nhello"],
    ["a space before the colon", "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello"],
    ["a header without a name", "HTTP/1.1 200 OK\r\n: 5\r\n\r\n"],
    ["a bare line feed in its head", "HTTP/1.1 200 OK\ncontent-length: 5\r\n\r\nhello"],
    ["a bare carriage return in its head", "HTTP/1.1 200 OK\r\nx: a\rcontent-length: 5\r\n\r\nhello"],
    ["a zero byte in its head", "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n"],
    ["another protocol", "ICY 200 OK\r\n\r\n"],
    ["another version", "HTTP/2.0 200 OK\r\n\r\n"],
    ["a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"],
    ["an upgrade", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"],
    ["interim answers without end", "HTTP/1.1 100 Continue\r\n\r\n".repeat(40)],
    ["a head without end", `HTTP/1.1 200 OK\r\nx: ${"a".repeat(20_000)}`],
    ["a head that is too long", `HTTP/1.1 200 OK\r\nx: ${"a".repeat(20_000)}\r\n\r\n`],
    ["a chunk without a size", `${chunked}\r\n\r\n`],
    ["a chunk whose size is not hexadecimal", `${chunked}0x5\r\nhello\r\n0\r\n\r\n`],
    ["a chunk whose size is negative", `${chunked}-1\r\n`],
    ["a chunk whose size no number holds", `${chunked}fffffffffffffffff\r\n`],
    ["a chunk whose line ends with a line feed", `${chunked}5\nhello\r\n0\r\n\r\n`],
    ["a chunk that is longer than it says", `${chunked}4\r\nhello\r\n0\r\n\r\n`],
    ["a chunk's size line without end", `${chunked}5;${"a".repeat(5_000)}`],
    ["a trailer without end", `${chunked}0\r\n${"a".repeat(17_000)}`],
  ])("an HTTP answer with %s is an error, also byte by byte", (_with, text) => {
    expect(() => read(of(text))).toThrow();
    const bytes = Buffer.from(text, "latin1");
    expect(() => read(Array.from(bytes, (_, i) => bytes.subarray(i, i + 1)))).toThrow();
  });
});

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** A server that answers each request, of which there are so many bytes, as told; and a pool of connections to it. */
async function world(answer: (socket: Socket, request: string, nth: number) => void, max = 2) {
  const heard: string[] = [];
  const closes: boolean[] = [];
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.on("error", () => {});
    socket.on("data", (data) => {
      heard.push(data.toString());
      answer(socket, data.toString(), heard.length);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const dial = async (): Promise<Socket> => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    return socket;
  };
  const pool = new HttpPool(new URL(`http://server.example:${port}/mcp`), dial, max, (is) => closes.push(is));
  cleanups.push(
    () => pool.close(),
    () => server.close(),
  );
  const ask = (body: string | undefined, headers: string[] = [], method = "POST"): Promise<string> =>
    new Promise((resolve, reject) => {
      let text = "";
      pool.send(method, "/mcp", headers, body, {
        sent: () => {},
        head: (status) => (text += `${status} `),
        data: (bytes) => (text += bytes.toString()),
        ended: () => resolve(text),
        failed: reject,
      });
    });
  return { pool, ask, heard, closes, connections: () => connections };
}

const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

describe("connections to a server", () => {
  it("connections to a server send one well-formed head and the body in one write, again and again", async () => {
    const { ask, heard, connections } = await world((socket) => socket.write(OK));
    expect(await ask('{"é":1}', ["x", "1"])).toBe("200 ok");
    expect(await ask("{}", ["x", "2"])).toBe("200 ok");
    const [first = "", second = ""] = heard;
    expect(first).toMatch(
      /^POST \/mcp HTTP\/1.1\r\nhost: server.example:\d+\r\nconnection: keep-alive\r\nx: 1\r\ncontent-length: 8\r\n\r\n\{"é":1\}$/,
    );
    expect(second).toContain("\r\nx: 2\r\n");
    expect(connections()).toBe(1);
  });

  it.each([
    [["a b", "c"]],
    [["x", "a\r\nevil: 1"]],
    [["x", "a\0"]],
    [["Content-Length", "3"]],
    [["transfer-encoding", "chunked"]],
    [["x", "世"]],
  ])("connections to a server never send the header %j", async (headers) => {
    const { ask, heard } = await world((socket) => socket.write(OK));
    await expect(ask("{}", headers)).rejects.toThrow(TypeError);
    expect(heard).toEqual([]);
  });

  it("an answer that brings more than was asked for ends its connection, and no later call hears it", async () => {
    const { ask, closes, connections } = await world((socket, _, nth) => socket.write(nth === 1 ? OK + OK : OK));
    expect(await ask("{}")).toBe("200 ok");
    expect(closes).toEqual([false]);
    expect(await ask("{}")).toBe("200 ok");
    expect(connections()).toBe(2);
  });

  it("an answer to nothing ends its connection", async () => {
    let idle: Socket | undefined;
    const { ask, closes } = await world((socket) => {
      idle = socket;
      socket.write(OK);
    });
    await ask("{}");
    idle?.write(OK);
    await expect.poll(() => closes).toEqual([false]);
  });

  it("a connection that the server wants closed carries no second request", async () => {
    const { ask, connections, closes } = await world((socket) =>
      socket.write("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
    );
    await ask("{}");
    await ask("{}");
    expect(connections()).toBe(2);
    expect(closes).toEqual([true, true]);
  });

  it("a connection that ends within an answer fails that call alone", async () => {
    const { ask } = await world((socket, _, nth) =>
      nth === 1 ? socket.end("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok") : socket.write(OK),
    );
    await expect(ask("{}")).rejects.toThrow("other side closed");
    expect(await ask("{}")).toBe("200 ok");
  });

  it("requests beyond the connections wait in order, and one that is given up is never sent", async () => {
    const sockets: Socket[] = [];
    const { pool, ask, heard } = await world((socket) => sockets.push(socket), 1);
    const first = ask("first");
    await expect.poll(() => heard.length).toBe(1);
    const second = ask("second");
    const never = (): void => {};
    const giveUp = pool.send("POST", "/mcp", [], "unwanted", {
      sent: never,
      head: never,
      data: never,
      ended: never,
      failed: never,
    });
    const third = ask("third");
    giveUp();
    for (let n = 1; n <= 3; n++) {
      await expect.poll(() => sockets.length).toBe(n);
      sockets[n - 1]?.write(OK);
    }
    await Promise.all([first, second, third]);
    expect(heard.map((text) => text.split("\r\n\r\n")[1])).toEqual(["first", "second", "third"]);
  });
});
