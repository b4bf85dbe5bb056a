// One server does everything wrong, under load, beside two that do not: every call has exactly one end, the good
// servers' callers never notice, and nothing of the bad one is left.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { Fault, type JsonObject } from "../mcp/index.js";
import { fixture, textOf, tool } from "./fixtures/calling.js";
import type { Upstream } from "./types.js";

const mark = `leaked-${randomUUID()}-faults`;

const HABITS: readonly (readonly [name: string, args?: JsonObject])[] = [
  ["echo", { text: "fine" }],
  ["wrong"],
  ["twice"],
  ["big", { bytes: 2_000_000 }],
  ["leak", { mark }],
  ["die"],
  ["garbage"],
  ["babble", { lines: 2_000 }],
  ["other"],
  ["flood"],
  ["hang"],
  ["endless"],
  ["spin"],
];

function leftBehind(): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(mark);
    } catch {
      return false;
    }
  });
}

async function callWell(server: Upstream, until: number): Promise<number> {
  let calls = 0;
  for (; performance.now() < until; calls++) {
    const text = `${server.name} ${Math.random()}`;
    expect(textOf(await server.request(tool("echo", { text }, { timeoutMs: 30_000 })))).toBe(text);
  }
  return calls;
}

async function callBadly(server: Upstream, until: number, outcomes: Map<string, number>): Promise<void> {
  for (let n = Math.floor(Math.random() * HABITS.length); performance.now() < until; n++) {
    const [name, args = {}] = HABITS[n % HABITS.length] as (typeof HABITS)[number];
    const call = tool(name, args, { timeoutMs: 300, hooks: { progress() {} } });
    const outcome = await server.request(call).then(
      (answer) => answer.kind,
      (error: unknown) => (error instanceof Fault ? error.type : `no fault: ${String(error)}`),
    );
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    // Refusals cost nothing, so a loop of them would leave no time for anything else.
    if (outcome === "Unavailable") await sleep(5);
  }
}

export function faultsUnderLoad(seconds: number): void {
  it.runIf(process.platform === "linux")(
    `${seconds} s of every fault at one server, with the others unaffected and nothing left [G8]`,
    async () => {
      const limits = { maxMessageBytes: 1_000_000, maxMessagesPerCall: 1_000, maxNonsense: 100, failuresToOpen: 3 };
      const timeouts = { backoffMs: 20, maxBackoffMs: 200, leaveMs: 50, graceMs: 50, discoverMs: 30_000 };
      const good = [fixture("", { name: "legacy" }), fixture("modern", { name: "modern", timeouts })];
      const bad = fixture("", { name: "bad", limits, timeouts });
      await Promise.all([...good, bad].map((server) => server.start()));
      const until = performance.now() + seconds * 1_000;
      const outcomes = new Map<string, number>();
      const [, , ...wells] = await Promise.all([
        callBadly(bad, until, outcomes),
        callBadly(bad, until, outcomes),
        ...good.flatMap((server) => [1, 2, 3, 4].map(() => callWell(server, until))),
      ]);
      expect(wells.every((calls) => calls > 0)).toBe(true);
      for (const server of good) {
        const { counts, restarts, circuit } = server.health();
        expect({ restarts, circuit, failures: counts.failures, timeouts: counts.timeouts }).toEqual({
          restarts: 0,
          circuit: "closed",
          failures: 0,
          timeouts: 0,
        });
        expect(counts.results).toBe(counts.calls);
      }
      const known = new Set(["result", "IoError", "ToolTimeout", "ToolExecution", "TooLarge", "Unavailable"]);
      expect([...outcomes.keys()].filter((outcome) => !known.has(outcome))).toEqual([]);
      const { counts, inFlight, queued } = bad.health();
      expect({ inFlight, queued }).toEqual({ inFlight: 0, queued: 0 });
      const ended = counts.results + counts.errors + counts.failures + counts.timeouts + counts.refused;
      expect(ended).toBe(counts.calls);
      await bad.close();
      expect(leftBehind()).toEqual([]);
      console.info(`good calls ${wells.reduce((a, b) => a + b, 0)}; bad ones`, Object.fromEntries(outcomes));
    },
  );
}
