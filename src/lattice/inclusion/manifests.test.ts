import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { checkEdits, MANIFESTS } from "../fixtures/manifests.js";

describe("real tool schemas against their one-edit neighbours", () => {
  it.skipIf(!existsSync(MANIFESTS))("leave less than 2 % unknown, on a sample", () => {
    const result = checkEdits(499, 2_000);
    expect(result.asked).toBeGreaterThan(80);
    expect(result.unexpected).toEqual([]);
    expect(result.unknown / result.asked).toBeLessThan(0.02);
  });

  it.skipIf(existsSync(MANIFESTS))("were not compared: shared/fixtures/manifests is not beside this repository", () => {
    expect(existsSync(MANIFESTS)).toBe(false);
  });
});
