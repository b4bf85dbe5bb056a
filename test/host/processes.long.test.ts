// The commands that do not want to go, under every way of holding them that this machine has.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ownCgroupDirectory } from "../../src/host/sandbox/cgroup.js";
import { has } from "../setup/programs.js";
import { isRoot, unreachableForOthers } from "./support/machine.js";
import { judgeScenarios, runScenariosAsUser } from "./support/scenario-checks.js";
import { runScenarios } from "./support/scenarios.js";

const ROUNDS = Number(process.env.PROCESS_ROUNDS ?? 5);
/** An ordinary user cannot load a repository in a directory that is closed to it. */
const closed = unreachableForOthers() !== undefined;
const cgroup = ownCgroupDirectory(
  readFileSync("/proc/self/mountinfo", "utf8"),
  readFileSync("/proc/self/cgroup", "utf8"),
);

test.skipIf(!isRoot)("root, PID namespace", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenarios({}), "pid-namespace");
});

test.skipIf(!isRoot || cgroup === undefined)("root, cgroup.kill; no cgroup is left", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenarios({ pidNamespace: true }), "cgroup");
  const left = existsSync(cgroup ?? "") ? readdirSync(cgroup ?? "") : [];
  expect(left.filter((name) => name.startsWith(`portcullis-${process.pid}`))).toEqual([]);
});

test.skipIf(!isRoot)("root, adoption of orphans", async () => {
  for (let i = 0; i < ROUNDS; i++)
    judgeScenarios(await runScenarios({ pidNamespace: true, cgroup: true }), "subreaper");
});

test.skipIf(!isRoot || !has("bwrap"))("root, bubblewrap", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenarios({ native: true }), "pid-namespace");
});

test.skipIf(!isRoot || closed)("ordinary user, PID namespace in a user namespace", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenariosAsUser({}), "pid-namespace");
});

test.skipIf(!isRoot || closed)("ordinary user, adoption of orphans under Landlock", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenariosAsUser({ userNamespace: true }), "subreaper");
});

test.skipIf(!isRoot || closed || !has("bwrap"))("ordinary user, bubblewrap", async () => {
  for (let i = 0; i < ROUNDS; i++) judgeScenarios(await runScenariosAsUser({ native: true }), "pid-namespace");
});
