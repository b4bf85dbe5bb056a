// What the analysis proves is what the gate does.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { workflowFile } from "../../src/lattice/fixtures/workflows.js";
import { checkAgreement, replayWitnesses } from "./workflow-agreement.js";

describe("analysis and gate on generated workflows", () => {
  it("analysis, gate and emitted policy agree on every call of every agent of generated workflows [L5]", async () => {
    let [decisions, permits] = [0, 0];
    for (const file of fc.sample(workflowFile, { numRuns: 6, seed: 20_261_116 })) {
      const done = await checkAgreement(file);
      decisions += done.decisions;
      permits += done.permits;
    }
    expect(decisions).toBeGreaterThan(200);
    expect(permits).toBeGreaterThan(10);
  });

  it("every witness of generated workflows replays over HTTP: it runs without allow lists, and with them has no effect [L5]", async () => {
    let replayed = 0;
    for (const file of fc.sample(workflowFile, { numRuns: 6, seed: 20_261_116 }))
      replayed += await replayWitnesses(file);
    expect(replayed).toBeGreaterThan(10);
  });
});
