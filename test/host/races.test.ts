// A small share of the races; races.long.test.ts runs them in full.

import { expect, test } from "vitest";
import { type RaceResult, raceOpens, raceSpawns, raceWrites } from "./support/race.js";

function judge(result: RaceResult): void {
  expect(result.naiveEscaped, `void: the naive control never escaped in ${result.naiveTries} tries`).toBeGreaterThan(0);
  expect(result.escaped).toBe(0);
  expect(result.inside).toBeGreaterThanOrEqual(result.wanted);
  expect(result.refused, "the swap was never met: the race proves nothing").toBeGreaterThan(0);
}

test("no file that is opened while directories and links are exchanged lies outside [M10 M12]", async () =>
  judge(await raceOpens(2000)));
test("no file that is written while directories and links are exchanged lies outside", async () =>
  judge(await raceWrites(100)));
test("no command that is started while its directory is exchanged runs outside", async () =>
  judge(await raceSpawns(20, "off")));
test("no command that is started in a write zone while its directory is exchanged runs outside", async () =>
  judge(await raceSpawns(20, "required", "root/out/sub")));
