import { rmSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { compileLedger } from "./fixtures/compile.js";
import { randomFrom } from "./fixtures/entries.js";
import { inspectAfterKill, writeAndKill } from "./fixtures/kill-trial.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";

const KILLS = Number(process.env.KILLS ?? 200);
/** A ledger is used for this many kills, then a new one begins: reading it whole after each takes its time. */
const KILLS_PER_LEDGER = 10;
const scratch = scratchDirectory();

describe("kill -9 under load, many times", () => {
  it(`loses no acknowledged record and never prevents a start (${KILLS} kills)`, async () => {
    const modules = compileLedger(scratch.path);
    const seed = Number(process.env.SEED ?? Date.now());
    const random = randomFrom(seed);
    let acknowledged = new Map<number, string>();
    let dir = "";
    let total = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      if (kill % KILLS_PER_LEDGER === 0) {
        dir = scratch.fresh();
        acknowledged = new Map();
      }
      const more = await writeAndKill(modules, dir, kill, random);
      total += more.size;
      for (const [seq, call] of more) acknowledged.set(seq, call);
      expect(await inspectAfterKill(dir, acknowledged), `kill ${kill}, seed ${seed}`).toBeUndefined();
      if (kill % KILLS_PER_LEDGER === KILLS_PER_LEDGER - 1) rmSync(dir, { recursive: true });
    }
    console.log(`${KILLS} kills, ${total} acknowledged records, none lost`);
    expect(total).toBeGreaterThan(KILLS * 10);
  });
});
