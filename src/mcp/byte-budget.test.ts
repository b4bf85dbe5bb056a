import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RetainedBytes } from "./byte-budget.js";

const MIB = 1024 * 1024;
const LIMITS = { maxRetainedBytes: 160 * MIB, maxAppRetainedBytes: 64 * MIB, maxAgentRetainedBytes: 32 * MIB };

/** Takes until nothing more fits. */
function fill(retained: RetainedBytes, app: string, piece = MIB): number {
  let taken = 0;
  for (let agent = 0; agent < 4; agent++) {
    const budget = retained.of({ app, agent: String(agent) });
    while (budget.take(piece)) taken += piece;
  }
  return taken;
}

describe("the bytes that applications make the process keep", () => {
  it("the bytes that applications make the process keep leave room for quiet applications when greedy ones take all they can [U12]", () => {
    const retained = new RetainedBytes(LIMITS);
    for (let i = 0; i < 8; i++) fill(retained, `greedy-${i}`);
    expect(retained.used).toBeLessThanOrEqual(LIMITS.maxRetainedBytes);
    for (let i = 0; i < 10; i++) {
      expect(retained.of({ app: `quiet-${i}`, agent: "one" }).take(MIB), `application ${i}`).toBe(true);
    }
    expect(retained.anonymous.take(64 * 1024)).toBe(true);
    expect(retained.used).toBeLessThanOrEqual(LIMITS.maxRetainedBytes);
  });

  it("the bytes that applications make the process keep are all given back, and then one application may take its whole cap again", () => {
    const retained = new RetainedBytes(LIMITS);
    const taken = fill(retained, "greedy");
    expect(taken).toBe(LIMITS.maxAppRetainedBytes);
    retained.of({ app: "greedy", agent: "0" }).give(32 * MIB);
    retained.of({ app: "greedy", agent: "1" }).give(32 * MIB);
    expect(retained.used).toBe(0);
    expect(fill(retained, "other")).toBe(LIMITS.maxAppRetainedBytes);
  });

  it("the bytes that applications make the process keep never exceed the limit of the process, whatever is taken and given back", () => {
    const step = fc.record({
      app: fc.integer({ min: 0, max: 30 }),
      mib: fc.integer({ min: 1, max: 8 }),
      gives: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const retained = new RetainedBytes(LIMITS);
        const held = new Map<number, number>();
        for (const { app, mib, gives } of steps) {
          const budget = retained.of({ app: String(app), agent: "one" });
          const has = held.get(app) ?? 0;
          if (gives) {
            budget.give(Math.min(has, mib) * MIB);
            held.set(app, has - Math.min(has, mib));
          } else if (budget.take(mib * MIB)) held.set(app, has + mib);
        }
        const sum = [...held.values()].reduce((all, one) => all + one, 0);
        expect(retained.used).toBe(sum * MIB);
        expect(retained.used).toBeLessThanOrEqual(LIMITS.maxRetainedBytes);
      }),
    );
  });
});
