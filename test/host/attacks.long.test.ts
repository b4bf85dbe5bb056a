// The attacks once more under each weaker way of confining commands that a machine may have instead of the best one.

import { testCases } from "./support/attack-run.js";
import { readAttacks, readMoreAttacks } from "./support/attack-setup.js";
import { has, isRoot } from "./support/machine.js";

const commands = [...readAttacks().cases, ...readMoreAttacks()].filter((attack) => attack.request.tool === "cmd.run");

testCases("Landlock and seccomp alone", commands, { view: true });
testCases("Landlock, and orphans adopted", commands, { view: true, pidNamespace: true, cgroup: true });
testCases("a view without Landlock", commands, { landlock: true });
testCases("a view without owner mapping", commands, { ownerMapping: true });
if (isRoot && has("bwrap")) testCases("bubblewrap", commands, { native: true });
