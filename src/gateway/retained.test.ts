// What callers make the gateway keep: one accounting per agent, per application and per process.

import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { type Fault, RetainedBytes } from "../mcp/index.js";
import { DEFAULT_GATEWAY_LIMITS } from "../pipeline/types.js";
import { createServer, permitAll, type Server } from "../server.js";
import { createTelemetry } from "../telemetry/index.js";
import { keptCapabilities } from "./capabilities.js";
import { openWorld, type World } from "./fixtures/world.js";
import { Sessions } from "./sessions.js";

const MIB = 1024 * 1024;
const LIMITS = {
  ...DEFAULT_GATEWAY_LIMITS,
  maxRetainedBytes: 24 * MIB,
  maxAppRetainedBytes: 12 * MIB,
  maxAgentRetainedBytes: 8 * MIB,
};
const caller = (agent: string, app = "shop") => ({ app, agent, scope: [], via: "test" });

describe("declared capabilities", () => {
  it("declared capabilities are kept as the protocol defines them, with the names of extensions and nothing else", () => {
    const declared = {
      roots: { listChanged: true, note: "x".repeat(MIB) },
      elicitation: { form: {}, url: {} },
      sampling: {},
      experimental: { "example/a": { huge: "x".repeat(MIB) } },
      extensions: { ["x".repeat(MIB)]: {}, "example/b": {} },
      unknown: { data: "x".repeat(MIB) },
    };
    expect(keptCapabilities(declared)).toEqual({
      roots: { listChanged: true },
      elicitation: { form: {}, url: {} },
      sampling: {},
      experimental: { "example/a": {} },
      extensions: { "example/b": {} },
    });
  });

  it("declared capabilities of any size and shape cost a few kilobytes", () => {
    const many = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`extension/${i}`, { on: true }]));
    const deep = Array.from({ length: 100 }).reduce<object>((inner) => ({ inner, other: inner }), {});
    const kept = keptCapabilities({ experimental: many, extensions: many, tasks: deep, sampling: many } as never);
    expect(JSON.stringify(kept).length).toBeLessThan(16 * 1024);
  });
});

describe("ended event streams", () => {
  it("ended event streams of one agent stay within its share, whatever the number of sessions, and the newest can be resumed [U12]", () => {
    const retained = new RetainedBytes(LIMITS);
    const sessions = new Sessions(LIMITS, retained);
    const event = "x".repeat(900_000);
    let last = sessions.open(caller("one"));
    for (let i = 0; i < 50; i++) {
      last = sessions.open(caller("one"));
      last.streams.create(undefined).end(event);
      expect(retained.used).toBeLessThan(4 * MIB);
    }
    const seen: string[] = [];
    const { stream } = last.streams.find("s0.0");
    const reply = { send: (text: string) => seen.push(text) > 0, open: () => {}, end: () => {}, onAbort: () => {} };
    stream.resume(reply as never, 0);
    expect(seen).toEqual([event]);
    sessions.closeAll();
    expect(retained.used).toBe(0);
  });
});

describe("the budget of an application", () => {
  it("the budget of an application is not usable by one agent alone, nor by another application", () => {
    const retained = new RetainedBytes(LIMITS);
    expect(retained.of(caller("one")).take(9 * MIB)).toBe(false);
    expect(retained.of(caller("one")).take(8 * MIB)).toBe(true);
    expect(retained.of(caller("two")).take(5 * MIB)).toBe(false);
    expect(retained.of(caller("two")).take(4 * MIB)).toBe(true);
    expect(retained.of(caller("one", "other")).take(4 * MIB)).toBe(true);
    retained.of(caller("one")).give(8 * MIB);
    expect(retained.used).toBe(8 * MIB);
  });
});

describe("calls in flight", () => {
  let server: Server | undefined;
  afterEach(() => server?.close());

  it("calls in flight are charged by their values, and refused over what the agent may keep", async () => {
    const open: (() => void)[] = [];
    server = createServer("own", {
      policy: permitAll,
      limits: { maxAgentRetainedBytes: 4 * MIB },
      telemetry: createTelemetry({ log: { level: "emergency" }, env: {} }),
    }).tool(
      "wait",
      "Waits",
      z.object({ values: z.array(z.array(z.number())) }),
      async () => {
        await new Promise<void>((resolve) => open.push(resolve));
        return "done";
      },
      { noGuardrailRequired: true },
    );
    // 60 kB of text each, and about a megabyte of memory.
    const args = { values: Array.from({ length: 20_000 }, () => []) };
    const calls = Array.from({ length: 8 }, () =>
      (server as Server).invoke("wait", args).then(
        () => "done",
        (fault: Fault) => fault.type,
      ),
    );
    expect(await Promise.race(calls)).toBe("TooMany");
    await expect.poll(() => open.length).toBe(4);
    for (const each of open.splice(0)) each();
    expect((await Promise.all(calls)).sort()).toEqual([...Array(4).fill("TooMany"), ...Array(4).fill("done")]);
    const next = server.invoke("wait", args);
    await expect.poll(() => open.length).toBe(1);
    open[0]?.();
    await next;
  });
});

describe("messages that are not calls", () => {
  let world: World | undefined;
  afterEach(async () => {
    await world?.close();
    world = undefined;
  });

  it("messages that are not calls count against the rate limit: `initialize` over it is answered 429 with Retry-After", async () => {
    world = await openWorld();
    await world.put("shop", { limits: { agent: { perMinute: 3 } } });
    const { url } = world;
    const initialize = (agent: string): Promise<Response> =>
      fetch(url, {
        method: "POST",
        headers: { authorization: `Bearer shop/${agent}`, "content-type": "application/json" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: { capabilities: {} } }),
      });
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await initialize("one")).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect((await initialize("one")).headers.get("retry-after")).toMatch(/^\d+$/);
    expect((await initialize("two")).status).toBe(200);
  });
});
