// A share of codec.long.test.ts, small enough for every run.

import { codecContract } from "./codec.contract.js";

codecContract({
  cases: 3_000,
  lineBytes: 32 * 1024 * 1024,
  idleConnections: 200,
  halfOpen: 20,
  seed: 20_260_728,
});
