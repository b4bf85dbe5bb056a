import { defineConfig } from "vitest/config";

// Long runs (soak, a million cases, chaos) are `*.long.test.ts`; they run only when LONG is set (npm run test:long).
const long = process.env.LONG === "1";

export default defineConfig({
  test: {
    include: long ? ["src/**/*.long.test.ts", "test/**/*.long.test.ts"] : ["src/**/*.test.ts", "test/**/*.test.ts"],
    // Measurements print figures and judge nothing; they are run by name.
    exclude: [
      "**/node_modules/**",
      ...(long ? [] : ["**/*.long.test.ts"]),
      ...(process.env.CI ? ["**/measure.long.test.ts"] : []),
    ],
    globalSetup: ["test/setup/programs.ts"],
    // Generous, because a busy machine is slow and a deadline is not a measurement.
    testTimeout: long ? 3_600_000 : 180_000,
    hookTimeout: 240_000,
    // Long runs fill limits that are counted for the whole machine, such as the processes of the sandbox's user: in CI
    // they run one after the other.
    maxWorkers: long && process.env.CI ? 1 : 2,
    // A shared machine stalls now and then; what fails twice in a row has failed.
    retry: process.env.CI ? 1 : 0,
    reporters: ["default"],
  },
});
