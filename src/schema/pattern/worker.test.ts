import { afterEach, describe, expect, it } from "vitest";
import { PatternTimeout, PatternWorkers } from "./worker.js";

const workers = new PatternWorkers({ maxWorkers: 2, maxQueue: 3 });
afterEach(() => workers.close());

const easy = { source: "^a+$", flags: "u", text: "aaa" };
const endless = { source: "^(a+)+$", flags: "u", text: `${"a".repeat(50)}!` };

describe("the worker for patterns without a known bound", () => {
  it("answers in the order of the questions", async () => {
    expect(await workers.ask("x", [easy, { ...easy, text: "b" }, easy], 5_000)).toEqual([true, false, true]);
  });

  it("the worker for patterns without a known bound is ended when a match takes too long, and the next question gets a fresh one", async () => {
    await expect(workers.ask("x", [endless], 200)).rejects.toThrow(PatternTimeout);
    expect(workers.size).toBe(0);
    expect(await workers.ask("x", [easy], 5_000)).toEqual([true]);
  });

  it("the worker for patterns without a known bound never blocks the main thread", async () => {
    let ticks = 0;
    const timer = setInterval(() => ticks++, 10);
    await expect(workers.ask("x", [endless], 300)).rejects.toThrow("took too long");
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(5);
  });

  it("the worker for patterns without a known bound keeps only one owner waiting for what that owner asked", async () => {
    const stuck = Promise.allSettled([1, 2].map(() => workers.ask("hostile", [endless], 400)));
    expect(await workers.ask("honest", [easy], 5_000)).toEqual([true]);
    for (const outcome of await stuck) expect(outcome.status).toBe("rejected");
  });

  it("refuses more waiting questions than its queue holds", async () => {
    const waiting = Array.from({ length: 5 }, () => workers.ask("x", [endless], 300));
    const outcomes = await Promise.allSettled(waiting);
    expect(outcomes.map((outcome) => outcome.status)).toEqual(Array.from({ length: 5 }, () => "rejected"));
    expect(String((outcomes[4] as PromiseRejectedResult).reason)).toContain("more than 3 checks are waiting");
  });
});
