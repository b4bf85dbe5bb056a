// What one application notices of another that attacks, measured: its p99 during an attack and without one, in turn, so
// that both have the same machine around them.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ATTACKS, type Neighbours, openNeighbours } from "./noisy-neighbour.js";

// A round counts only when the machine itself was not loaded: a gateway that waits for a core says nothing about what its
// applications do to each other. Failed calls, the operator's access and memory are judged in every round.

const ROUNDS = Number(process.env.NOISY_ROUNDS ?? 3);
/** A busy machine stalls for a round: the median of a few more decides. */
const MORE_ROUNDS = 4;
/** A pattern: only attacks whose name matches it are run. */
const ONLY = new RegExp(process.env.NOISY_ONLY ?? "");
const SECONDS = Number(process.env.NOISY_SECONDS ?? 5);
/** Slower than that alone, a machine says more about itself than about the gateway. */
const FLOOR_MS = 20;
const MOST_TIMES = 3;
/** Without an attack the gateway waits for a core hardly ever, unless something else uses them. */
const MOST_WAITED_ALONE = 0.1;
/** The attacker is on the same machine as what it attacks, at a lower priority. */
const MOST_WAITED_BESIDE = 0.3;

const median = (values: number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

describe.runIf(process.platform !== "win32")("an application beside another that attacks", () => {
  let neighbours: Neighbours;
  beforeAll(async () => {
    neighbours = await openNeighbours();
    await neighbours.measure(SECONDS);
  });
  afterAll(() => neighbours?.close());

  for (const attack of ATTACKS.filter((name) => ONLY.test(name))) {
    it(`an application keeps its p99 within three times of its own without attacks during: ${attack}`, async () => {
      const alone: number[] = [];
      const beside: number[] = [];
      const isWithin = (): boolean =>
        beside.length >= ROUNDS && median(beside) <= MOST_TIMES * Math.max(median(alone), FLOOR_MS);
      for (let round = 0; round < ROUNDS || (round < ROUNDS + MORE_ROUNDS && !isWithin()); round++) {
        const before = await neighbours.measure(SECONDS);
        const attacked = neighbours.attack(attack, SECONDS + 1, 1);
        const during = await neighbours.measure(SECONDS);
        expect(await neighbours.adminStatus()).toBe(200);
        await attacked;
        expect([...before.failures, ...during.failures]).toEqual([]);
        if (before.waitedShare > MOST_WAITED_ALONE || during.waitedShare > MOST_WAITED_BESIDE) continue;
        alone.push(before.p99Ms);
        beside.push(during.p99Ms);
      }
      const peak = neighbours.peakMiB() ?? 0;
      expect(peak).toBeLessThan(512);
      expect(neighbours.serving.child.exitCode).toBeNull();
      if (beside.length === 0) {
        console.info(
          `${attack}: p99 not judged, because the machine was loaded in every round; peak ${peak.toFixed(0)} MiB`,
        );
        return;
      }
      const [from, to] = [median(alone), median(beside)];
      console.info(
        `${attack}: p99 ${from.toFixed(1)} ms alone, ${to.toFixed(1)} ms beside; peak ${peak.toFixed(0)} MiB`,
      );
      expect(to).toBeLessThanOrEqual(MOST_TIMES * Math.max(from, FLOOR_MS));
    });
  }
});
