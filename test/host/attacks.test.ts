// Every case of fixtures/attacks.json through the three tool functions, on this machine, with nothing replaced.

import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { testCases } from "./support/attack-run.js";
import { readAttacks, readMoreAttacks } from "./support/attack-setup.js";
import { ensurePrograms } from "./support/machine.js";

ensurePrograms({ git: "git", rg: "ripgrep" });

testCases("attacks.json", readAttacks().cases);
// In the fixture these are refused for their folder before they start; here they run into their limits.
testCases(
  "more-attacks.json, limits of commands",
  readMoreAttacks().filter((attack) => ["X-LIM-05", "X-LIM-07"].includes(attack.id)),
);

test("the machine has what the catalog of the fixture names", () => {
  for (const program of ["ls", "cat", "git", "rg", "sleep", "seq", "yes"]) {
    expect(() => execFileSync("which", [program]), `${program} is missing: apt-get install git ripgrep`).not.toThrow();
  }
});
