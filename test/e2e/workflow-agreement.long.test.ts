// What the analysis proves is what the gate does, on many workflows.

import fc from "fast-check";
import { expect, it } from "vitest";
import { workflowFile } from "../../src/lattice/fixtures/workflows.js";
import { checkAgreement, replayWitnesses } from "./workflow-agreement.js";

const COUNT = Number(process.env.LATTICE_GATES ?? 1_000);
const SEED = Number(process.env.LATTICE_SEED ?? Math.floor(Math.random() * 2 ** 31));

it(`analysis, emitted policy and gate agree on ${COUNT} generated workflows, and every witness replays`, async () => {
  const done = { decisions: 0, permits: 0, replayed: 0 };
  for (const file of fc.sample(workflowFile, { numRuns: COUNT, seed: SEED })) {
    const { decisions, permits } = await checkAgreement(file);
    done.decisions += decisions;
    done.permits += permits;
    done.replayed += await replayWitnesses(file);
  }
  console.log(`seed ${SEED}: ${JSON.stringify(done)}`);
  expect(done.replayed).toBeGreaterThan(COUNT);
});
