// The attacks by commands under every way of confining that a machine may have: the best one first, then the weaker.

import { testCases } from "./support/attack-run.js";
import { readAttacks, readMoreAttacks } from "./support/attack-setup.js";
import { has, isRoot } from "./support/machine.js";

const commands = [...readAttacks().cases, ...readMoreAttacks()].filter((attack) => attack.request.tool === "cmd.run");

testCases("the best this machine has", commands);
testCases("Landlock and seccomp alone", commands, { view: true });
testCases("Landlock, and orphans adopted", commands, { view: true, pidNamespace: true, cgroup: true });
testCases("a view without Landlock", commands, { landlock: true });
testCases("a view without owner mapping", commands, { ownerMapping: true });
if (isRoot && has("bwrap")) testCases("bubblewrap", commands, { native: true });
