// A short share of the attacks of `noisy-neighbour.long.test.ts`: whatever one application does, the calls of another
// are all answered, the operator gets in, and memory stays bounded. How fast they are is judged by the long run.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ATTACKS, type Neighbours, openNeighbours } from "./noisy-neighbour.js";

/** At least one attack of each item of the threat model's table; the long run has all of them. */
const SHARE: Readonly<Record<number, readonly string[]>> = {
  12: ["bodies without a credential", "calls with a million values"],
  13: ["capabilities of megabytes", "ended event streams"],
  14: ["thousands of changing tools"],
  15: ["floods of approvals"],
  16: ["denied calls with names of a megabyte"],
  17: ["unfinished bodies", "unfinished WebSocket frames", "idle sockets at the admin port", "answers byte by byte"],
  18: ["floods of tools and documents", "floods of metrics without a credential"],
};

describe.runIf(process.platform !== "win32")("an application beside another that attacks", () => {
  let neighbours: Neighbours;
  beforeAll(async () => {
    neighbours = await openNeighbours();
    expect((await neighbours.measure(0.5)).failures).toEqual([]);
  });
  afterAll(() => neighbours?.close());

  for (const attack of Object.values(SHARE).flat()) {
    it(`an application is served while another one attacks by: ${attack} [U12]`, async () => {
      expect(ATTACKS).toContain(attack);
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
