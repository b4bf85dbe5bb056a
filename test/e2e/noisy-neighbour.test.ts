// A short share of the attacks of `noisy-neighbour.long.test.ts`: whatever one application does, the calls of another
// are all answered, the operator gets in, and memory stays bounded. How fast they are is judged by the long run.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ATTACKS, type Neighbours, openNeighbours } from "./noisy-neighbour.js";

/** One attack in so many; the long run has all of them. */
const SHARE = 3;

describe.runIf(process.platform !== "win32")("an application beside another that attacks", () => {
  let neighbours: Neighbours;
  beforeAll(async () => {
    neighbours = await openNeighbours();
    expect((await neighbours.measure(0.5)).failures).toEqual([]);
  });
  afterAll(() => neighbours?.close());

  for (const attack of ATTACKS.filter((_, index) => index % SHARE === 0)) {
    it(`an application is served while another one attacks by: ${attack} [U12]`, async () => {
      const attacked = neighbours.attack(attack, 1, 0.1);
      const quiet = await neighbours.measure(0.6);
      expect(await neighbours.adminStatus()).toBe(200);
      await attacked;
      expect(quiet.failures).toEqual([]);
      expect(quiet.calls).toBeGreaterThan(0);
      expect(neighbours.serving.child.exitCode).toBeNull();
      expect(neighbours.peakMiB() ?? 0).toBeLessThan(512);
    });
  }
});
