// More cases of the same kinds.

import { testCases } from "./support/attack-run.js";
import { readMoreAttacks } from "./support/attack-setup.js";

testCases(
  "more-attacks.json",
  readMoreAttacks().filter((attack) => attack.category !== "limits"),
);
