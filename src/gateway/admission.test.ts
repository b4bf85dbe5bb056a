// What a caller without a credential costs before it is refused, with real sockets in front of real applications.

import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { FairQueue } from "./fair-queue.js";
import { openWorld, type World } from "./fixtures/world.js";
import { ANONYMOUS_APP } from "./flow-control.js";

let world: World;
const sockets: Socket[] = [];

beforeEach(async () => {
  world = await openWorld();
  await world.put("shop", { servers: {} });
});

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await world.close();
});

function dial(): Promise<Socket> {
  const { port } = new URL(world.url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), "127.0.0.1", () => resolve(socket));
    socket.once("error", reject);
    sockets.push(socket);
  });
}

const MIB = 1024 * 1024;

function head(more: string, bytes: number, method = "POST", path = "/mcp"): string {
  return (
    `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${more}` +
    `Content-Length: ${bytes}\r\n\r\n`
  );
}

/** The whole first answer. */
function answer(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let heard = "";
    socket.on("data", (chunk: Buffer) => {
      heard += chunk.toString("utf8");
      const [, length] = /content-length: (\d+)/i.exec(heard) ?? [];
      const body = heard.indexOf("\r\n\r\n") + 4;
      if (length !== undefined && body > 3 && heard.length >= body + Number(length)) resolve(heard);
    });
    socket.on("close", () => reject(new Error(`closed after ${JSON.stringify(heard)}`)));
  });
}

describe("a caller that is not authenticated", () => {
  it("a caller that is not authenticated is answered 401 by the head of its request, without its body being read [U12]", async () => {
    const answers: string[] = [];
    for (const credential of ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic eA==\r\n"]) {
      const socket = await dial();
      const heard = answer(socket);
      // Only the head and a few bytes of 4 MiB are sent: an answer that waits for the body would never come.
      socket.write(`${head(credential, 4 * MIB)}{"jsonrpc":"2.0",`);
      answers.push(await heard);
    }
    for (const text of answers) expect(text).toMatch(/^HTTP\/1\.1 401 /);
    const same = answers.map((text) => text.replace(/"trace_id":"\w+"/, "").replace(/Date: .*/, ""));
    expect(new Set(same).size).toBe(1);
  });

  it("a caller that is not authenticated is answered 401 after 64 KiB of a body whose length it does not announce", async () => {
    const socket = await dial();
    const heard = answer(socket);
    socket.write(
      "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    socket.write(`${(65 * 1024).toString(16)}\r\n${"[".repeat(65 * 1024)}\r\n`);
    expect(await heard).toMatch(/^HTTP\/1\.1 401 /);
  });

  it("gets the answer to a small message with the id of that message", async () => {
    const response = await fetch(world.url, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({ jsonrpc: "2.0", id: "mine", method: "tools/list" }),
    });
    expect(response.status).toBe(401);
    expect(await response.json()).toMatchObject({ id: "mine", error: { data: { code: "UNAUTHENTICATED" } } });
  });

  it("a caller that is not authenticated that keeps on sending is read slowly and then disconnected", async () => {
    const socket = await dial();
    const heard = answer(socket);
    socket.write(head("", 1024 * MIB));
    const piece = Buffer.alloc(MIB, 0x20);
    const pour = (): void => {
      while (!socket.destroyed && socket.write(piece)) {}
    };
    socket.on("drain", pour);
    pour();
    expect(await heard).toMatch(/^HTTP\/1\.1 401 /);
    if (!socket.destroyed) await new Promise<void>((resolve) => socket.once("close", () => resolve()));
    expect(socket.bytesWritten).toBeLessThan(64 * MIB);
  });
});

it("a known caller may send as much as the transport allows", async () => {
  const response = await fetch(world.url, {
    method: "POST",
    headers: {
      authorization: "Bearer shop/clerk",
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: { padding: "x".repeat(3 * MIB) } }),
  });
  expect(response.status).toBe(200);
});

it.each([
  ["GET", "/openapi.json"],
  ["GET", "/catalog.json"],
  ["POST", "/tools/nothing"],
  ["POST", "/mcp"],
])("%s %s waits for the turn of its application like every message", async (method, path) => {
  const taken = vi.spyOn(FairQueue.prototype, "enqueue");
  onTestFinished(() => taken.mockRestore());
  const ask = (headers: Record<string, string>): Promise<Response> =>
    fetch(new URL(path, world.url), {
      method,
      headers: { "content-type": "application/json", ...headers },
      ...(method === "POST" ? { body: "{}" } : {}),
    });
  await (await ask({ authorization: "Bearer shop/clerk" })).text();
  expect(taken.mock.calls.map(([caller]) => caller)).toEqual([{ app: "shop", agent: "clerk" }]);
  await (await ask({})).text();
  expect(taken.mock.calls.map(([{ app }]) => app)).toEqual(["shop", ANONYMOUS_APP]);
});
