import { describe, expect, it, vi } from "vitest";
import { Deadlines } from "./cancel.js";

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("deadlines", () => {
  it("deadlines fire after their time, never before, in whatever order they were set", async () => {
    const deadlines = new Deadlines();
    const began = performance.now();
    const fired = new Map<number, number>();
    const times = [200, 30, 90, 1, 60, 150, 30];
    await new Promise<void>((resolve) => {
      times.forEach((ms, i) => {
        deadlines.add(ms, () => {
          fired.set(i, performance.now() - began);
          if (fired.size === times.length) resolve();
        });
      });
    });
    times.forEach((ms, i) => {
      expect(fired.get(i)).toBeGreaterThanOrEqual(ms);
    });
  });

  it("deadlines do not fire once cancelled", async () => {
    const deadlines = new Deadlines();
    let fired = 0;
    const cancelled = deadlines.add(30, () => fired++);
    deadlines.add(31, () => (fired += 10));
    cancelled.cancel();
    await sleep(120);
    expect(fired).toBe(10);
  });

  it("deadlines wait whole turns of the wheel where they are far away", async () => {
    const deadlines = new Deadlines();
    let fired = 0;
    // One turn is 512 slots of 20 ms; a deadline two turns away shares its slot with a near one.
    deadlines.add(512 * 20 * 2 + 40, () => fired++);
    deadlines.add(40, () => (fired += 10));
    await sleep(150);
    expect(fired).toBe(10);
  });

  it("work again after having been idle", async () => {
    const deadlines = new Deadlines();
    for (let round = 0; round < 3; round++) {
      await new Promise<void>((resolve) => void deadlines.add(10, resolve));
      await sleep(60);
    }
  });

  it("fires on time after the clock stepped back for a while", async () => {
    const deadlines = new Deadlines();
    let fired = 0;
    deadlines.add(100, () => fired++);
    const clock = vi.spyOn(performance, "now").mockReturnValue(-1_000_000);
    try {
      await sleep(60);
    } finally {
      clock.mockRestore();
    }
    await expect.poll(() => fired).toBe(1);
  });
});
