// Calls wait for the listing of the connection they are sent on, and are sent only for the definition they were
// decided for.

import type { Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import type { JsonObject } from "../mcp/index.js";
import { createDialer } from "./dialer.js";
import { closeAll, faultOf, textOf, tool, upstream } from "./fixtures/calling.js";
import { type Asked, DISCOVERED, INITIALIZED, type RawHttp, rawHttp } from "./fixtures/raw-http.js";
import type { Upstream, UpstreamCall, UpstreamOptions } from "./types.js";

const dialer = createDialer({ allow: ["127.0.0.1"] });
const open: RawHttp[] = [];
afterEach(async () => {
  await closeAll();
  for (const each of open.splice(0)) await each.close();
});

const DONE = { content: [{ type: "text", text: "done" }], resultType: "complete" };
const LISTING = { capabilities: { tools: {} } };

function definition(description: string): JsonObject {
  return { name: "send", description, inputSchema: { type: "object" } };
}

/** A call that was decided for the definition with this description. */
function sendFor(description: string): UpstreamCall {
  return tool("send", {}, { expects: { kind: "tool", name: "send", definition: definition(description) } });
}

interface Restarting {
  readonly server: Upstream;
  readonly reached: string[];
  /** From now on it is another process, with these definitions. */
  restart(description: string): void;
  /** From now on it does not know its sessions, and has these definitions; `during` runs while a new one begins. */
  forget(description: string, during: () => void): void;
}

async function serve(era: "modern" | "session" | "unchecked session" | "no session"): Promise<Restarting> {
  const reached: string[] = [];
  const sockets = new Set<Socket>();
  let description = "first";
  let session = 1;
  let during = (): void => {};
  const raw = await rawHttp(
    (asked: Asked) => {
      sockets.add(asked.request.socket);
      if (asked.method === "server/discover") {
        if (era !== "modern") return asked.error(400, { code: -32000, message: "no session" });
        return asked.result({ ...DISCOVERED, ...LISTING });
      }
      if (asked.method === "initialize") {
        const given = era === "session" || era === "unchecked session";
        return asked.result({ ...INITIALIZED, ...LISTING }, given ? { "mcp-session-id": `s${session}` } : {});
      }
      const theirs = asked.request.headers["mcp-session-id"];
      if (era === "session" && theirs !== `s${session}`) return asked.error(404, undefined);
      if (asked.method === "tools/list") {
        return asked.result({ tools: [definition(description)], resultType: "complete" });
      }
      if (asked.method === "tools/call") reached.push(description);
      return asked.result(DONE);
    },
    (request) => {
      if (request.headers["mcp-session-id"] === `s${session}`) during();
      return false;
    },
  );
  open.push(raw);
  return {
    server: upstream({ name: "raw", target: { transport: "http", url: raw.url }, dialer }),
    reached,
    restart: (next) => {
      description = next;
      session++;
      for (const socket of sockets) socket.destroy();
      sockets.clear();
    },
    forget: (next, then) => {
      description = next;
      session++;
      during = () => {
        during = () => {};
        then();
      };
    },
  };
}

describe("an HTTP server that is started again with another definition", () => {
  const ERAS = ["modern", "session", "unchecked session", "no session"] as const;
  it.each(ERAS)(
    "an HTTP server that is started again with another definition gets no call decided for the old one (%s)",
    async (era) => {
      const { server, reached, restart } = await serve(era);
      const changes: unknown[] = [];
      server.onChange((change) => changes.push(change));
      expect(textOf(await server.request(sendFor("first")))).toBe("done");
      restart("second");
      // The end of the old process's connections has to arrive first, as it does when a process ends.
      await expect
        .poll(async () => (await faultOf(server.request(sendFor("first")))).message)
        .toContain("pending review");
      expect(reached).toEqual(["first"]);
      expect(changes).toContain("tools");
      expect(textOf(await server.request(sendFor("second")))).toBe("done");
      expect(server.health()).toMatchObject({ circuit: "closed" });
    },
  );

  it("an HTTP server that is started again with another definition gets no call decided for the old one that is made while a lost session is renewed", async () => {
    const { server, reached, forget } = await serve("session");
    expect(textOf(await server.request(sendFor("first")))).toBe("done");
    const made: Promise<string>[] = [];
    const make = (): void => void made.push(faultOf(server.request(sendFor("first"))).then(({ message }) => message));
    forget("second", make);
    make();
    await expect.poll(() => made.length).toBe(2);
    for (const message of await Promise.all(made)) expect(message).toContain("pending review");
    expect(reached).toEqual(["first"]);
  });
});

/** `habit` runs in the server after each listing, with `send`. */
function stdio(habit: string, options: Partial<UpstreamOptions> = {}): Upstream {
  const script = `
    let lists = 0;
    const send = (m) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...m }) + "\\n");
    require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
      const { id, method } = JSON.parse(line);
      if (method === "initialize") send({ id, result: { protocolVersion: "2025-11-25", serverInfo: { name: "s", version: "1" }, capabilities: { tools: { listChanged: true } } } });
      else if (method === "tools/list") {
        lists++;
        const tools = [{ name: "send", description: "first", inputSchema: { type: "object" } }];
        ${habit}
      }
      else if (method === "tools/call") send({ id, result: { content: [{ type: "text", text: String(lists) }] } });
      else if (id !== undefined) send({ id, error: { code: -32601, message: "no" } });
    });`;
  const target = { transport: "stdio", command: process.execPath, args: ["-e", script] } as const;
  return upstream({ name: "stdio", target, ...options });
}

describe("a server that keeps changing", () => {
  it("a server that keeps changing is listed less and less often, and calls to it are refused meanwhile with the time to wait [H11]", async () => {
    const server = stdio(
      `tools[0].title = "change " + lists; send({ id, result: { tools } });
       setTimeout(() => send({ method: "notifications/tools/list_changed" }), 5);`,
      { timeouts: { backoffMs: 6_000, maxBackoffMs: 3_600_000 } },
    );
    server.onChange(() => void server.catalogue().catch(() => {}));
    await server.catalogue();
    await expect
      .poll(async () => (await faultOf(server.request(sendFor("first")))).message, { timeout: 30_000, interval: 20 })
      .toContain("change all the time");
    const { message, detail } = await faultOf(server.request(sendFor("first")));
    expect(message).toContain("read again later");
    expect(detail.extra).toMatchObject({ delivered: false, retry_after_ms: expect.any(Number) });
    // What names no definition can still be asked.
    const lists = Number(textOf(await server.request(tool("send"))));
    expect(lists).toBeGreaterThan(3);
    expect(lists).toBeLessThan(10);
  });
});

describe("a listing that failed", () => {
  it("a listing that failed keeps calls from the server, and is read again for the next one", async () => {
    const server = stdio(
      `if (lists === 1) send({ id, error: { code: -32603, message: "not yet" } });
       else send({ id, result: { tools } });`,
    );
    const fault = await faultOf(server.request(sendFor("first")));
    expect(fault).toMatchObject({ type: "Unavailable" });
    expect(fault.message).toContain("not yet");
    expect(fault.detail.extra).toMatchObject({ delivered: false });
    expect(textOf(await server.request(sendFor("first")))).toBe("2");
  });
});
