// What must be true of every scenario, and how to run them all as an ordinary user.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect } from "vitest";
import type { Protections } from "../../../src/host/index.js";
import type { Without } from "../../../src/host/sandbox/confinement.js";
import { UNPRIVILEGED } from "./as-user.js";
import { compiled } from "./compiled.js";
import type { ScenarioReport } from "./scenarios.js";

const run = promisify(execFile);

export function judgeScenarios(reports: readonly ScenarioReport[], tree: Protections["processTree"]): void {
  for (const report of reports) {
    expect(report.left, report.name).toEqual([]);
    expect(report.protections?.processTree, `${report.name}: ${report.detail}`).toBe(tree);
    if (/ignores|closes|stops/.test(report.name)) expect(report.outcome, report.name).toBe("timeoutMs");
    // A bomb's first process may itself be refused its next child, and end.
    if (/bomb/.test(report.name)) expect(["ended", "timeoutMs"], report.name).toContain(report.outcome);
    if (/fills/.test(report.name)) expect(report.truncated, report.name).toBe(true);
    if (/daemon|left behind|ordinary/.test(report.name)) expect(report.outcome, report.name).toBe("ended");
  }
  expect(reports.length).toBe(10);
}

export async function runScenariosAsUser(without: Without): Promise<ScenarioReport[]> {
  const file = compiled("test/host/support/scenarios.js");
  const { stdout } = await run(process.execPath, [file, JSON.stringify(without)], {
    uid: UNPRIVILEGED,
    gid: UNPRIVILEGED,
    env: { PATH: "/usr/bin:/bin" },
  });
  return JSON.parse(stdout) as ScenarioReport[];
}
