// 1,000,000 opens, 50,000 writes and 5,000 spawns against a process that swaps directories and links in a loop. Counts from
// the environment; the naive control must escape in the same run.

import { expect, test } from "vitest";
import { type RaceResult, raceOpens, raceSpawns, raceWrites } from "./support/race.js";

const OPENS = Number(process.env.RACE_OPENS ?? 1_000_000);
const WRITES = Number(process.env.RACE_WRITES ?? 50_000);
const SPAWNS = Number(process.env.RACE_SPAWNS ?? 5000);

function judge(name: string, result: RaceResult): void {
  process.stderr.write(`${name}: ${JSON.stringify(result)}\n`);
  expect(result.naiveEscaped, "void: the naive control never escaped").toBeGreaterThan(0);
  expect(result.escaped).toBe(0);
  expect(result.inside).toBeGreaterThanOrEqual(result.wanted);
  expect(result.refused).toBeGreaterThan(0);
}

test(`${OPENS} opens`, async () => judge("opens", await raceOpens(OPENS)));
test(`${WRITES} writes`, async () => judge("writes", await raceWrites(WRITES)));
test(`${SPAWNS} spawns, by the working directory alone`, async () => judge("spawns", await raceSpawns(SPAWNS, "off")));
test(`${Math.ceil(SPAWNS / 10)} spawns in the sandbox`, async () =>
  judge("sandboxed spawns", await raceSpawns(Math.ceil(SPAWNS / 10), "required")));
test(`${Math.ceil(SPAWNS / 10)} spawns in the sandbox, in a write zone`, async () =>
  judge("sandboxed spawns in a zone", await raceSpawns(Math.ceil(SPAWNS / 10), "required", "root/out/sub")));
test(`${Math.ceil(OPENS / 10)} opens without openat2`, async () =>
  judge("opens by O_PATH", await raceOpens(Math.ceil(OPENS / 10), "o_path")));
test(`${Math.ceil(WRITES / 10)} writes without openat2`, async () =>
  judge("writes by O_PATH", await raceWrites(Math.ceil(WRITES / 10), "o_path")));
