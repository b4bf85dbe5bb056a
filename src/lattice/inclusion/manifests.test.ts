import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkEdits, MANIFESTS } from "../fixtures/manifests.js";

describe("real tool schemas against their one-edit neighbours (skipped without shared/fixtures/manifests beside the repository)", () => {
  it.skipIf(!existsSync(MANIFESTS))(
    "real tool schemas against their one-edit neighbours (skipped without shared/fixtures/manifests beside the repository) leave less than 2 % unknown, on a sample",
    () => {
      const result = checkEdits(997, 2_000);
      expect(result.asked).toBeGreaterThan(40);
      expect(result.unexpected).toEqual([]);
      expect(result.unknown / result.asked).toBeLessThan(0.02);
    },
  );
});
