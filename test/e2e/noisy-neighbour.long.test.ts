// What one application notices of another that attacks, measured: its p99 during an attack and without one, in turn, so
// that both have the same machine around them.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ATTACKS, type Neighbours, openNeighbours } from "./noisy-neighbour.js";

const ROUNDS = Number(process.env.NOISY_ROUNDS ?? 3);
/** A busy machine stalls for a round: the median of a few more decides. */
const MORE_ROUNDS = 4;
const SECONDS = Number(process.env.NOISY_SECONDS ?? 5);
/** Slower than that alone, a machine says more about itself than about the gateway. */
const FLOOR_MS = 20;
const MOST_TIMES = 3;

const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

describe.runIf(process.platform !== "win32")("an application beside another that attacks", () => {
  let neighbours: Neighbours;
  beforeAll(async () => {
    neighbours = await openNeighbours();
    await neighbours.measure(SECONDS);
  });
  afterAll(() => neighbours?.close());

  for (const attack of ATTACKS) {
    it(`keeps its p99 within three times of what it is alone during: ${attack}`, async () => {
      const alone: number[] = [];
      const beside: number[] = [];
      const isWithin = (): boolean => median(beside) <= MOST_TIMES * Math.max(median(alone), FLOOR_MS);
      for (let round = 0; round < ROUNDS || (round < ROUNDS + MORE_ROUNDS && !isWithin()); round++) {
        const before = await neighbours.measure(SECONDS);
        const attacked = neighbours.attack(attack, SECONDS + 1, 1);
        const during = await neighbours.measure(SECONDS);
        expect(await neighbours.adminStatus()).toBe(200);
        await attacked;
        expect([...before.failures, ...during.failures]).toEqual([]);
        alone.push(before.p99Ms);
        beside.push(during.p99Ms);
      }
      const peak = neighbours.peakMiB() ?? 0;
      const [from, to] = [median(alone), median(beside)];
      console.info(
        `${attack}: p99 ${from.toFixed(1)} ms alone, ${to.toFixed(1)} ms beside; peak ${peak.toFixed(0)} MiB`,
      );
      expect(to).toBeLessThanOrEqual(MOST_TIMES * Math.max(from, FLOOR_MS));
      expect(peak).toBeLessThan(512);
      expect(neighbours.serving.child.exitCode).toBeNull();
    });
  }
});
