import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/setup/order.js";

// Long runs (soak, a million cases, chaos) are `*.long.test.ts`; they run only when LONG is set (npm run test:long).
const long = process.env.LONG === "1";
const name = long ? "*.long.test.ts" : "*.test.ts";
const MAX_WORKERS = 8;

export default defineConfig({
  test: {
    // Measurements print figures and judge nothing; they are run by name.
    exclude: [
      "**/node_modules/**",
      ...(long ? [] : ["**/*.long.test.ts"]),
      ...(process.env.CI ? ["**/measure.long.test.ts"] : []),
    ],
    // Generous, because a busy machine is slow and a deadline is not a measurement.
    testTimeout: long ? 3_600_000 : 300_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 60_000 } },
    // Long runs fill limits that are counted for the whole machine, such as the processes of the sandbox's user: in CI
    // they run one after the other. The others wait for processes, disks and timers most of the time.
    maxWorkers: long && process.env.CI ? 1 : Math.min(2 * availableParallelism() + 1, MAX_WORKERS),
    sequence: { sequencer: LongestFirst },
    // A test that fails now and then is a defect, of the test or of what it tests: it is named in the output and fixed.
    // CI repeats it once, so that it does not stop a change that has nothing to do with it.
    retry: process.env.CI ? 1 : 0,
    reporters: ["default"],
    // What is built runs as it is.
    server: { deps: { external: [/\/dist\//] } },
    projects: [
      {
        extends: true,
        // The modules are loaded once a worker, not once a file: tests in src/ leave no global state behind.
        test: { name: "unit", include: [`src/**/${name}`], isolate: long, globalSetup: ["test/setup/postgres.ts"] },
      },
      {
        extends: true,
        test: {
          name: "system",
          include: [`test/**/${name}`],
          globalSetup: ["test/setup/programs.ts", "test/setup/postgres.ts"],
        },
      },
    ],
  },
});
