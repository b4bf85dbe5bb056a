// More cases of the same kinds; those that start commands are in attacks.long.test.ts.

import { testCases } from "./support/attack-run.js";
import { readMoreAttacks } from "./support/attack-setup.js";

testCases(
  "more-attacks.json",
  readMoreAttacks().filter((attack) => attack.request.tool !== "cmd.run"),
);
