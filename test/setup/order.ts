// The order of test files: the longest start first, so that no core waits for one long file at the end of a run.

import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Files that take longest, longest first. A file that is missing here runs later, and nothing else changes. */
const LONGEST = [
  "conformance/client",
  "docs",
  "e2e/chaos",
  "conformance/server",
  "conformance/gateway",
  "e2e/restored-store",
  "e2e/stories-workers",
  "e2e/stories-replicas",
  "e2e/noisy-neighbour",
  "e2e/server-sandbox",
  "e2e/stories-module",
  "e2e/stories-applications",
  "e2e/stories-imported",
  "e2e/cli",
  "e2e/backup",
  "e2e/local-access",
  "e2e/rotation",
  "e2e/install",
  "e2e/archive",
  "e2e/readiness",
  "e2e/overload",
  "e2e/lattice",
  "e2e/leaked-keys",
  "e2e/local-keys",
  "e2e/worker-metrics",
  "e2e/registrations",
  "types/misuse",
  "surface",
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
