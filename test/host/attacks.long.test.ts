// The attacks by commands under every way of confining that a machine may have: the best one first, then the weaker.

import { has } from "../setup/programs.js";
import { testCases } from "./support/attack-run.js";
import { readAttacks, readEvenMoreAttacks, readMoreAttacks } from "./support/attack-setup.js";
import { isRoot } from "./support/machine.js";

/** Of each way only every so manyth case, another one each time: CI has little time, and every case its turn. */
const SHARE = Number(process.env.ATTACK_SHARE ?? 1);
const share = (way: number) => commands.filter((_, index) => index % SHARE === way % SHARE);
const commands = [...readAttacks().cases, ...readMoreAttacks()].filter((attack) => attack.request.tool === "cmd.run");

testCases("the best this machine has", share(0));
testCases(
  "variants of every kind",
  readEvenMoreAttacks().filter((attack, index) => attack.request.tool === "cmd.run" && index % SHARE === 0),
);
testCases("Landlock and seccomp alone", share(1), { view: true });
testCases("Landlock, and orphans adopted", share(2), { view: true, pidNamespace: true, cgroup: true });
testCases("a view without Landlock", share(3), { landlock: true });
testCases("a view without owner mapping", share(4), { ownerMapping: true });
if (isRoot && has("bwrap")) testCases("bubblewrap", share(5), { native: true });
