import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkEdits, MANIFESTS } from "../fixtures/manifests.js";

/** One in this many edits is tried; 1 takes all of them, which is hours of compiling validators. */
const EVERY = Number(process.env.LATTICE_EDITS_EVERY ?? 25);

describe("real tool schemas against their one-edit neighbours", () => {
  it.skipIf(!existsSync(MANIFESTS))(
    "real tool schemas against their one-edit neighbours leave less than 2 % unknown",
    () => {
      const result = checkEdits(EVERY);
      console.log(JSON.stringify({ ...result, unexpected: result.unexpected.length }));
      expect(result.unexpected).toEqual([]);
      expect(result.unknown / result.asked).toBeLessThan(0.02);
    },
  );
});
