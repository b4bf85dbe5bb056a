// A server that was away is used again soon after it is back, also when requests of the meantime are never answered.

import { afterEach, describe, expect, it } from "vitest";
import { createDialer } from "./dialer.js";
import { closeAll, faultOf, textOf, tool, upstream } from "./fixtures/calling.js";
import { type Asked, DISCOVERED, type RawHttp, rawHttp } from "./fixtures/raw-http.js";
import type { Upstream, UpstreamTimeouts } from "./types.js";

const dialer = createDialer({ allow: ["127.0.0.1"] });
const open: RawHttp[] = [];
afterEach(async () => {
  await closeAll();
  for (const each of open.splice(0)) await each.close();
});

const TOOL = { name: "send", inputSchema: { type: "object" } };
const EXPECTED = { expects: { kind: "tool", name: "send", definition: TOOL } } as const;

/** `answer` returns false for what it leaves to an honest server. */
async function serve(answer: (asked: Asked) => boolean, timeouts: Partial<UpstreamTimeouts>): Promise<Upstream> {
  const raw = await rawHttp((asked) => {
    if (answer(asked)) return;
    if (asked.method === "server/discover") asked.result({ ...DISCOVERED, capabilities: { tools: {} } });
    else if (asked.method === "tools/list") asked.result({ tools: [TOOL], resultType: "complete" });
    else asked.result({ content: [{ type: "text", text: "done" }], resultType: "complete" });
  });
  open.push(raw);
  const target = { transport: "http", url: raw.url } as const;
  return upstream({ name: "raw", target, dialer, timeouts: { startMs: 60_000, discoverMs: 60_000, ...timeouts } });
}

describe("a server that is back", () => {
  it("a server that is back is connected to by a later attempt when the first one is never answered, and the first one is given up", async () => {
    let silent = 3;
    let givenUp = 0;
    const server = await serve(
      ({ method, request }) => {
        if (method !== "server/discover" || silent-- <= 0) return false;
        request.socket.once("close", () => givenUp++);
        return true;
      },
      { againMs: 50 },
    );
    expect(textOf(await server.request(tool("send", {}, { ...EXPECTED, timeoutMs: 30_000 })))).toBe("done");
    await expect.poll(() => givenUp).toBe(3);
  });

  it("a server that is back is listed by a later request when the first one is never answered", async () => {
    let silent = 2;
    const server = await serve(({ method }) => method === "tools/list" && silent-- > 0, {
      againMs: 50,
      listMs: 60_000,
    });
    expect(textOf(await server.request(tool("send", {}, { ...EXPECTED, timeoutMs: 30_000 })))).toBe("done");
  });

  it("a server that is back is called again without a long pause, however often it could not be listed before", async () => {
    let isAway = true;
    const server = await serve(
      (asked) => {
        if (!isAway || asked.method !== "tools/list") return false;
        asked.error(503, undefined);
        return true;
      },
      { backoffMs: 60_000, maxBackoffMs: 600_000 },
    );
    for (let i = 0; i < 6; i++) {
      expect(await faultOf(server.request(tool("send", {}, EXPECTED)))).toMatchObject({ type: "Unavailable" });
    }
    isAway = false;
    expect(textOf(await server.request(tool("send", {}, EXPECTED)))).toBe("done");
  });

  it("fails with its first attempt when that one is refused", async () => {
    const server = await serve(
      (asked) => {
        asked.error(403, undefined);
        return true;
      },
      { againMs: 10 },
    );
    expect((await faultOf(server.request(tool("send", {}, EXPECTED)))).message).toContain("403");
  });
});
