import { describe, expect, it } from "vitest";
import { type Limit, Limits } from "./limits.js";
import type { CallTarget, Principal } from "./types.js";

const alice: Principal = { app: "blog", agent: "alice", scope: [], via: "test" };
const target = { name: "t" } as CallTarget;

function atTime(limits: Limit[]): { limits: Limits; clock: { now: number } } {
  const clock = { now: 1_000_000 };
  return { limits: new Limits(limits, () => clock.now), clock };
}

describe("limits", () => {
  it("lets a full minute's worth through at once, then one at a time as time passes", () => {
    const { limits, clock } = atTime([{ per: "agent", perMinute: 60 }]);
    const through = (): boolean => "release" in limits.take(alice, target);
    expect(Array.from({ length: 60 }, through).every(Boolean)).toBe(true);
    expect(through()).toBe(false);
    clock.now += 1_000;
    expect(through()).toBe(true);
    expect(through()).toBe(false);
  });

  it("never lets through more than the limit plus one burst in any window", () => {
    const { limits, clock } = atTime([{ per: "agent", perMinute: 30 }]);
    let count = 0;
    for (let second = 0; second < 600; second++) {
      for (let i = 0; i < 5; i++) if ("release" in limits.take(alice, target)) count++;
      clock.now += 1_000;
    }
    expect(count).toBeGreaterThanOrEqual(300);
    expect(count).toBeLessThanOrEqual(330);
  });

  it("says when to try again", () => {
    const { limits } = atTime([{ per: "agent", perHour: 1 }]);
    void limits.take(alice, target);
    const answer = limits.take(alice, target);
    expect(answer).toMatchObject({ denied: { type: "RateLimited", extra: { retry_after_ms: 3_600_000 } } });
  });

  it("takes from no limit when one of several refuses", () => {
    const { limits } = atTime([
      { per: "agent", perMinute: 2 },
      { per: "tool", concurrent: 1 },
    ]);
    const first = limits.take(alice, target);
    expect(limits.take(alice, target)).toHaveProperty("denied");
    expect(limits.take(alice, target)).toHaveProperty("denied");
    (first as { release: () => void }).release();
    expect(limits.take(alice, target)).toHaveProperty("release");
  });

  it("gives concurrency back once, however often it is released", () => {
    const { limits } = atTime([{ per: "app", concurrent: 1 }]);
    const first = limits.take(alice, target) as { release: () => void };
    first.release();
    first.release();
    void limits.take(alice, target);
    expect(limits.take(alice, target)).toHaveProperty("denied");
  });

  it("counts agents apart", () => {
    const { limits } = atTime([{ per: "agent", perMinute: 1 }]);
    void limits.take(alice, target);
    expect(limits.take({ ...alice, agent: "bob" }, target)).toHaveProperty("release");
  });
});
