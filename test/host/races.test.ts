// A small share of the races; races.long.test.ts runs them in full.

import { expect, test } from "vitest";
import { type RaceResult, raceOpens, raceSpawns, raceWrites } from "./support/race.js";

function judge(result: RaceResult): void {
  expect(result.naiveEscaped, `void: the naive control never escaped in ${result.naiveTries} tries`).toBeGreaterThan(0);
  expect(result.escaped).toBe(0);
  expect(result.inside).toBeGreaterThanOrEqual(result.wanted);
  expect(result.refused, "the swap was never met: the race proves nothing").toBeGreaterThan(0);
}

test("files opened while folders and links are exchanged: none escapes", async () => judge(await raceOpens(2000)));
test("files written while folders and links are exchanged: none lands outside", async () =>
  judge(await raceWrites(100)));
test("commands started while their folder is exchanged: none runs outside", async () =>
  judge(await raceSpawns(20, "off")));
test("commands started in a write zone while their folder is exchanged: none runs outside", async () =>
  judge(await raceSpawns(20, "required", "root/out/sub")));
