import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { compileLedger } from "./fixtures/compile.js";
import { inspectAfterKill, writeAndKill } from "./fixtures/kill-trial.js";
import { randomFrom } from "./fixtures/random.js";

const ROUNDS = 10;
const scratch = mkdtempSync(join(tmpdir(), "ledger-kill-"));
afterAll(() => rmSync(scratch, { recursive: true }));

describe("kill -9 under load", () => {
  it(`loses no acknowledged record and never prevents a start (${ROUNDS} kills)`, async () => {
    const modules = compileLedger(scratch);
    const random = randomFrom(Date.now());
    const acknowledged = new Map<number, string>();
    for (let round = 0; round < ROUNDS; round++) {
      const more = await writeAndKill(modules, join(scratch, "ledger"), round, random);
      for (const [seq, call] of more) acknowledged.set(seq, call);
      expect(await inspectAfterKill(join(scratch, "ledger"), acknowledged), `kill ${round}`).toBeUndefined();
    }
    expect(acknowledged.size).toBeGreaterThan(100);
  });
});
