import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { directoryArchive } from "./archive.js";
import { compileLedger } from "./fixtures/compile.js";
import { randomFrom } from "./fixtures/entries.js";
import { archivedCalls, inspectAfterKill, writeAndKill } from "./fixtures/kill-trial.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";

const ROUNDS = 6;
/** A slow machine may need more until it was killed after a prune. */
const MAX_ROUNDS = 30;
const scratch = scratchDirectory();
let modules = "";

beforeAll(() => {
  modules = compileLedger(scratch.path);
});

it(`loses no record and never prevents a start when it is killed while it archives and prunes (${ROUNDS} kills or more)`, async () => {
  const dir = scratch.fresh();
  const archive = directoryArchive(`${dir}-archive`);
  const random = randomFrom(Date.now());
  const prunes = (): number => (existsSync(join(dir, "pruned")) ? readdirSync(join(dir, "pruned")).length : 0);
  const acknowledged = new Map<number, string>();
  for (let round = 0; round < MAX_ROUNDS && (round < ROUNDS || prunes() < 2); round++) {
    // A busy machine needs longer until the first prune.
    const lifeMs = 1_000 * 2 ** Math.floor(round / ROUNDS);
    const more = await writeAndKill(modules, dir, round, random, ["retention-writer", archive.location], lifeMs);
    for (const [seq, call] of more) acknowledged.set(seq, call);
    const wrong = await inspectAfterKill(dir, acknowledged, archive);
    expect(wrong, `kill ${round}`).toBeUndefined();
  }
  expect(acknowledged.size).toBeGreaterThan(50);
  expect(prunes()).toBeGreaterThan(1);
  expect((await archivedCalls(dir, archive)).size).toBeGreaterThan(0);
});
