// The order of test files: the longest start first, so that no core waits for one long file at the end of a run.

import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take longest, longest first. A file that is missing here runs later, and nothing else changes. */
const LONGEST = [
  "conformance/client",
  "docs",
  "e2e/chaos",
  "e2e/rolling-restart",
  "e2e/noisy-neighbour",
  "e2e/cli",
  "monitoring/prometheus",
  "e2e/readiness",
  "deploy/deploy",
  "e2e/backup",
  "supply-chain",
  "e2e/local-keys",
  "e2e/gen",
  "e2e/clients",
  "e2e/local-access",
  "e2e/worker-metrics",
  "e2e/served-module",
  "e2e/archive",
  "e2e/leaked-keys",
  "e2e/server-sandbox",
  "e2e/rotation",
].map((name) => `/test/${name}.test.ts`);

/** `LongestFirst` runs the files above, then the rest of `test/`, then the small ones in `src/`. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

function rank({ moduleId, project }: TestSpecification): number {
  const place = LONGEST.findIndex((name) => moduleId.endsWith(name));
  if (place >= 0) return place;
  return LONGEST.length + (project.name === "unit" ? 1 : 0);
}
