// Every case of fixtures/attacks.json through the three tool functions, on this machine, with nothing replaced.

import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { testCases } from "./support/attack-run.js";
import { readAttacks, readMoreAttacks } from "./support/attack-setup.js";

testCases("attacks.json", readAttacks().cases);
// These look at the process table, which cases in another file would disturb.
testCases(
  "more-attacks.json, limits",
  readMoreAttacks().filter((attack) => attack.category === "limits"),
);

test("the machine has what the catalog of the fixture names", () => {
  for (const program of ["ls", "cat", "git", "rg", "sleep", "seq", "yes"]) {
    expect(() => execFileSync("which", [program]), `${program} is missing: apt-get install git ripgrep`).not.toThrow();
  }
});
