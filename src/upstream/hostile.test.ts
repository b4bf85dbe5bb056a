// Servers that hang, die, flood and lie: the call or the server fails with a clear word, and others never notice.

import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { Fault } from "../mcp/index.js";
import { cancellation, closeAll, faultOf, fixture, textOf, tool } from "./fixtures/calling.js";

afterEach(closeAll);

describe("a server that", () => {
  it("dies in the middle of an answer fails the calls it had, and is back for the next", async () => {
    const server = fixture("");
    const others = [1, 2].map(() => faultOf(server.request(tool("slow", { ms: 2_000 }))));
    const fault = await faultOf(server.request(tool("die")));
    expect(fault).toMatchObject({ type: "IoError", detail: { extra: { server: "fixture", delivered: true } } });
    expect(fault.message).toContain("exit code 7");
    for (const other of others) expect(await other).toMatchObject({ type: "IoError" });
    expect(textOf(await server.request(tool("count")))).toBe("1");
    expect(server.health()).toMatchObject({ restarts: 1, state: "ready" });
  });

  it.each(["garbage", "wrong", "neither"])(
    "a server that answers %s fails that call, with others unaffected",
    async (habit) => {
      const server = fixture("");
      await server.start();
      const other = server.request(tool("slow", { ms: 200 }));
      const fault = await faultOf(server.request(tool(habit, {}, { timeoutMs: 500 })));
      // A line that is not JSON could belong to any call, so the call can only run out of time.
      expect(fault.type).toBe(habit === "garbage" ? "ToolTimeout" : "ToolExecution");
      expect(textOf(await other)).toBe("slow");
      expect(server.health().counts.malformed).toBe(1);
    },
  );

  it("a server that answers twice is heard once", async () => {
    const server = fixture("");
    expect(textOf(await server.request(tool("twice")))).toBe("first");
    expect(textOf(await server.request(tool("echo", { text: "next" })))).toBe("next");
    expect(server.health().counts.strayAnswers).toBe(1);
  });

  it("drops answers to requests that were not sent", async () => {
    const server = fixture("");
    await server.start();
    expect(await faultOf(server.request(tool("other", {}, { timeoutMs: 150 })))).toMatchObject({ type: "ToolTimeout" });
    expect(server.health().counts.strayAnswers).toBe(1);
  });

  it.each([1, 3])("a server that answers too much fails that call, of %i in flight", async (inFlight) => {
    const server = fixture("", { limits: { maxMessageBytes: 100_000 } });
    await server.start();
    const others = Array.from({ length: inFlight - 1 }, () => server.request(tool("slow", { ms: 200 })));
    const fault = await faultOf(server.request(tool("big", { bytes: 200_000 })));
    expect(fault).toMatchObject({ type: "TooLarge", detail: { extra: { delivered: true } } });
    for (const other of others) expect(textOf(await other)).toBe("slow");
    expect(textOf(await server.request(tool("big", { bytes: 50_000 })))).toHaveLength(50_000);
    expect(server.health()).toMatchObject({ circuit: "closed", restarts: 0 });
  });

  it("a server that never ends its answer costs no more memory than the limit", async () => {
    const server = fixture("", { limits: { maxMessageBytes: 1_000_000, failuresToOpen: 1 } });
    await server.start();
    global.gc?.();
    const before = process.memoryUsage().rss;
    await faultOf(server.request(tool("endless", {}, { timeoutMs: 500 })));
    expect(process.memoryUsage().rss - before).toBeLessThan(200_000_000);
  });

  it("floods a call with messages fails that call", async () => {
    const server = fixture("", { limits: { maxMessagesPerCall: 500 } });
    await server.start();
    let seen = 0;
    const hooks = { progress: () => seen++ };
    const fault = await faultOf(server.request(tool("flood", {}, { hooks, timeoutMs: 20_000 })));
    expect(fault).toMatchObject({
      type: "ToolExecution",
      message: expect.stringContaining("more than 500 messages in ten seconds"),
    });
    expect(seen).toBe(500);
  });

  it("announces the same change over and over is heard a few times, and then no more", async () => {
    const server = fixture("", { limits: { maxMessagesPerCall: 500 } });
    const changes: unknown[] = [];
    server.onChange((change) => changes.push(change));
    await server.request(tool("announce", { times: 400 }));
    await sleep(500);
    expect(changes).toEqual(["tools", "tools"]);
    const fault = await faultOf(server.request(tool("announce", { times: 200 })));
    expect(fault).toMatchObject({ type: "IoError", message: expect.stringContaining("belong to no call") });
  });

  it("prints a little to its output is put up with, one that keeps on babbling is not", async () => {
    const server = fixture("", { limits: { maxNonsense: 50 } });
    expect(textOf(await server.request(tool("babble", { lines: 10 })))).toBe("after babble");
    const fault = await faultOf(server.request(tool("babble", { lines: 1_000 })));
    expect(fault).toMatchObject({ type: "IoError", message: expect.stringContaining("not answers") });
    expect(textOf(await server.request(tool("count")))).toBe("1");
  });

  it("hangs altogether is not called for a while, and its processor time back", async () => {
    const server = fixture("", {
      limits: { failuresToOpen: 2 },
      timeouts: { backoffMs: 300, leaveMs: 50, graceMs: 50 },
    });
    await server.start();
    const { pid } = server.health();
    await faultOf(server.request(tool("spin", {}, { timeoutMs: 100 })));
    await faultOf(server.request(tool("echo", {}, { timeoutMs: 100 })));
    expect(server.health()).toMatchObject({ circuit: "open", state: "failed" });
    const refused = await faultOf(server.request(tool("echo")));
    expect(refused).toMatchObject({ type: "Unavailable", detail: { extra: { delivered: false } } });
    expect(refused.detail.extra?.retry_after_ms).toBeLessThanOrEqual(330);
    await expect.poll(() => isAlive(pid as number)).toBe(false);
    await sleep(340);
    expect(server.health().circuit).toBe("half-open");
    expect(textOf(await server.request(tool("echo", { text: "back" })))).toBe("back");
    expect(server.health()).toMatchObject({ circuit: "closed", state: "ready" });
  });

  it("keeps the circuit closed for a server that is slow at one call and answers others", async () => {
    const server = fixture("", { limits: { failuresToOpen: 2 } });
    await server.start();
    for (let n = 0; n < 4; n++) {
      const hung = faultOf(server.request(tool("hang", {}, { timeoutMs: 60 })));
      await server.request(tool("echo"));
      expect(await hung).toMatchObject({ type: "ToolTimeout" });
    }
    expect(server.health()).toMatchObject({ circuit: "closed", restarts: 0 });
  });

  it("a server that does not read is not fed without end", async () => {
    const server = fixture("", {
      limits: { maxUnsentBytes: 300_000, failuresToOpen: 1_000 },
      timeouts: { leaveMs: 50, graceMs: 50 },
    });
    await server.start();
    const spin = faultOf(server.request(tool("spin", {}, { timeoutMs: 600 })));
    await sleep(100);
    const big = tool("echo", { text: "x".repeat(50_000) }, { timeoutMs: 300 });
    const faults = await Promise.all(Array.from({ length: 20 }, () => faultOf(server.request(big))));
    const refused = faults.filter((fault) => fault.message.includes("does not read"));
    expect(refused.length).toBeGreaterThan(5);
    expect(refused[0]?.detail.extra?.delivered).toBe(false);
    await spin;
  });

  it.each([
    ["never-ready", 400, /not ready within 400 ms/],
    ["deaf", 400, /not ready within 400 ms/],
    ["dies-at-once", 60_000, /it ended \(exit code 1\)/],
  ])("never comes up (%s) says why, and is not tried for ever", async (habit, startMs, reason) => {
    const timeouts = { startMs, discoverMs: 100, leaveMs: 50, graceMs: 50 };
    const server = fixture(habit, { limits: { failuresToOpen: 2 }, timeouts });
    for (let n = 0; n < 2; n++) {
      const fault = await faultOf(server.request(tool("echo")));
      expect(fault.message).toMatch(reason);
      expect(fault.detail.extra).toMatchObject({ delivered: false });
    }
    expect(server.health()).toMatchObject({ state: "failed", circuit: "open" });
    expect(server.health().lastError?.message).toMatch(reason);
    // Refused without another start, which would take until `startMs`.
    const { restarts } = server.health();
    await faultOf(server.request(tool("echo")));
    expect(server.health().restarts).toBe(restarts);
  });

  it("keeps the circuit closed for a server that starts slowly, however short its callers' timeouts", async () => {
    const server = fixture("slow-start", { limits: { failuresToOpen: 2 } });
    const impatient = Array.from({ length: 4 }, () => {
      const { cancel, stop } = cancellation();
      setTimeout(() => stop(new Fault("ToolTimeout", "too slow for me")), 50);
      return faultOf(server.request(tool("count", {}, { cancel, timeoutMs: 0 })));
    });
    for (const each of impatient) expect(await each).toMatchObject({ type: "ToolTimeout" });
    expect(textOf(await server.request(tool("count")))).toBe("1");
    expect(server.health()).toMatchObject({ circuit: "closed", restarts: 0, inFlight: 0, queued: 0 });
  });

  it("a server that says why on stderr is heard by operators, and not by callers", async () => {
    const server = fixture("dies-at-once");
    const fault = await faultOf(server.request(tool("echo")));
    expect(JSON.stringify([fault.message, fault.detail.extra, fault.detail.suggestions])).not.toContain(
      "configuration",
    );
    expect(fault.detail.operator).toBe(`${fault.message}; stderr ends: cannot find my configuration`);
    expect(server.health()).toMatchObject({
      stderr: "cannot find my configuration",
      exit: expect.stringMatching(/^exit code \d+$/),
      lastError: { message: fault.message, cause: "stderr ends: cannot find my configuration" },
    });
    const talker = fixture("noisy");
    expect((await faultOf(talker.request(tool("die")))).message).not.toContain("last words");
    expect(talker.health().stderr).toMatch(/last words$/);
  });

  it("a server that is closed while it starts is not left running", async () => {
    const server = fixture("slow-start");
    const call = faultOf(server.request(tool("echo")));
    await sleep(100);
    await server.close();
    expect(await call).toMatchObject({ type: "Unavailable" });
    expect(server.health().pid).toBeUndefined();
  });
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
