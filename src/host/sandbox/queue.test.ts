import { describe, expect, test } from "vitest";
import { Queue, type QueueLimits, type QueueTurn } from "./queue.js";

const limits: QueueLimits = { concurrency: 2, waiting: 2, waitMs: 10_000 };

function release(turn: QueueTurn): void {
  if (turn.kind === "turn") turn.release();
}

describe("the queue", () => {
  test("lets so many run, so many wait, and turns the rest away at once", async () => {
    const queue = new Queue();
    const first = await queue.take(limits, undefined);
    const second = await queue.take(limits, undefined);
    const third = queue.take(limits, undefined);
    const fourth = queue.take(limits, undefined);
    expect((await queue.take(limits, undefined)).kind).toBe("full");
    expect(queue.running).toBe(2);
    release(first);
    expect((await third).kind).toBe("turn");
    release(second);
    expect((await fourth).kind).toBe("turn");
    expect(queue.running).toBe(2);
  });

  test("a turn given back twice counts once", async () => {
    const queue = new Queue();
    const turn = await queue.take(limits, undefined);
    release(turn);
    release(turn);
    expect(queue.running).toBe(0);
  });

  test("a caller that waits too long or gives up leaves the queue", async () => {
    const queue = new Queue();
    await queue.take({ ...limits, concurrency: 1 }, undefined);
    expect((await queue.take({ ...limits, concurrency: 1, waitMs: 5 }, undefined)).kind).toBe("late");
    const abort = new AbortController();
    const waiting = queue.take({ ...limits, concurrency: 1 }, abort.signal);
    abort.abort();
    expect((await waiting).kind).toBe("aborted");
    expect((await queue.take(limits, AbortSignal.abort())).kind).toBe("aborted");
  });

  test("a client with a lower limit does not hold up one with a higher", async () => {
    const queue = new Queue();
    const first = await queue.take(limits, undefined);
    const second = await queue.take(limits, undefined);
    const narrow = queue.take({ ...limits, concurrency: 1 }, undefined);
    const wide = queue.take(limits, undefined);
    release(first);
    expect((await wide).kind).toBe("turn");
    release(second);
    release(await wide);
    expect((await narrow).kind).toBe("turn");
  });
});
