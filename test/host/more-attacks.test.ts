// More cases of the same kinds; those that start commands are in attacks.long.test.ts, but for a few of each.

import { testCases } from "./support/attack-run.js";
import { type Attack, readEvenMoreAttacks, readMoreAttacks } from "./support/attack-setup.js";

const EVERY = 20;
const quick = (attack: Attack, index: number): boolean => attack.request.tool !== "cmd.run" || index % EVERY === 0;

testCases(
  "more-attacks.json",
  readMoreAttacks().filter((attack) => attack.request.tool !== "cmd.run"),
);
testCases("even-more-attacks.json", readEvenMoreAttacks().filter(quick));
testCases(
  "what no sandbox can see",
  readEvenMoreAttacks().filter((attack) => attack.title.includes("hard link") && attack.request.tool === "cmd.run"),
);
