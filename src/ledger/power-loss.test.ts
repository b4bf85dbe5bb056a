import { describe, expect, it } from "vitest";
import { powerTrial } from "./fixtures/power-trial.js";

// Killing a process keeps what it wrote in the page cache. Here the disk forgets every byte and every name that was
// not synced, at random moments; the long run does many more.
const SEEDS = Array.from({ length: 20 }, (_, i) => 1000 + i);

describe("a power cut", () => {
  it("loses no acknowledged record, and the ledger starts again and verifies", async () => {
    for (const seed of SEEDS) expect(await powerTrial(seed), `seed ${seed}`).toBeUndefined();
  });

  // Each of these syncs is there for a reason: when it is taken out, the check above fails.
  const needed: [string, RegExp, RegExp][] = [
    ["records are", /\/seq-\d+\.ndjson$/, /acknowledged and is lost/],
    ["names of files are", /^\/ledger$/, /acknowledged and is lost/],
    ["the signing key is", /\/signing\.key\.next$/, /does not start: signing key/],
    ["checkpoints are", /\/checkpoint\.next$/, /does not start: checkpoint .* cannot be trusted/],
  ];
  for (const [what, paths, complaint] of needed) {
    it(`a power cut is seen to do harm when ${what} not synced [U9]`, async () => {
      const wrong: string[] = [];
      for (const seed of SEEDS.slice(0, 10)) {
        const found = await powerTrial(seed, (path) => paths.test(path));
        if (found !== undefined) wrong.push(found);
      }
      expect(wrong.filter((found) => complaint.test(found)).length, wrong.join("\n")).toBeGreaterThan(5);
    });
  }
});
