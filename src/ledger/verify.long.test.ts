import { describe, expect, it } from "vitest";
import { randomFrom, sampleLedger } from "./fixtures/entries.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";
import { bitFlipper } from "./fixtures/tamper.js";

const FLIPS = Number(process.env.FLIPS ?? 50_000);
const scratch = scratchDirectory();

describe("flipped bits in great number", () => {
  it(`flipped bits in great number are all found and the record named (${FLIPS} flips)`, async () => {
    const seed = Number(process.env.SEED ?? Date.now());
    const random = randomFrom(seed);
    const dir = scratch.fresh();
    const { publicKey, checkpoint } = await sampleLedger(dir, 8);
    const flip = bitFlipper(dir, publicKey, checkpoint);
    const wrong: string[] = [];
    for (let i = 0; i < FLIPS; i++) {
      const found = await flip.check(Math.floor(random() * flip.length), Math.floor(random() * 8));
      if (found !== undefined) wrong.push(found);
    }
    expect(wrong, `seed ${seed}`).toEqual([]);
  });
});
