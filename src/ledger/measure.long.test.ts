import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { compileLedger } from "./fixtures/compile.js";
import { scratchDirectory } from "./fixtures/scratch-directory.js";

const SECONDS = process.env.MEASURE_SECONDS ?? "5";
const scratch = scratchDirectory();

describe("what recording costs", () => {
  it("what recording costs is printed, and everything written verifies", () => {
    const modules = compileLedger(scratch.path);
    for (const inFlight of ["1", "8", "64", "512"]) {
      const args = [join(modules, "fixtures/measure.js"), scratch.fresh(), inFlight, SECONDS];
      const line = execFileSync(process.execPath, args, { encoding: "utf8" });
      console.log(line.trim());
      expect(JSON.parse(line)).toMatchObject({ verified: true });
    }
  });
});
