// Every case of fixtures/attacks.json through the three tool functions, on this machine, with nothing replaced.

import { testCases } from "./support/attack-run.js";
import { readAttacks, readMoreAttacks } from "./support/attack-setup.js";

testCases("attacks.json", readAttacks().cases);
// In the fixture these are refused for their directory before they start; here they run into their limits.
testCases(
  "more-attacks.json, limits of commands",
  readMoreAttacks().filter((attack) => ["X-LIM-05", "X-LIM-07"].includes(attack.id)),
);
