// Commands that do not want to go, each followed by a look at the process table. Run in this process, or, compiled, as
// another user: `node scenarios.js '{"userNamespace":true}'` prints the reports as JSON.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { CmdRunResult, HostOutcome, Protections } from "../../../src/host/index.js";
import type { Without } from "../../../src/host/sandbox/confinement.js";
import { commandLinesWith } from "./machine.js";
import { makeWorld } from "./world.js";

export interface ScenarioReport {
  readonly name: string;
  readonly outcome: string;
  readonly detail: string;
  readonly timedOut: boolean;
  readonly truncated: boolean;
  /** Command lines that still carry the scenario's mark. */
  readonly left: readonly string[];
  readonly protections: Protections | undefined;
}

/** Every process of a scenario carries the mark in its command line, because it is an argument of each. */
const SCENARIOS: readonly { name: string; script: string; ends?: boolean }[] = [
  { name: "a fork bomb", script: 'bomb() { bomb "$0" | bomb "$0" & }; bomb "$0"; sleep 271' },
  {
    name: "a child that becomes a daemon",
    script: 'setsid sh -c "trap \\"\\" HUP TERM; sleep 271; :" "$0" & exit 0',
    ends: true,
  },
  {
    name: "a daemon of a daemon",
    script: 'setsid sh -c "setsid sh -c \\"sleep 271; :\\" \\"$0\\" & exit 0" "$0" & sleep 0.2; exit 0',
    ends: true,
  },
  { name: "a child that ignores SIGTERM", script: 'trap "" TERM INT HUP QUIT; while :; do sleep 1; done' },
  { name: "a child that fills its output", script: 'yes "$0"' },
  { name: "a child that closes its output and lives on", script: "exec >&- 2>&- <&-; sleep 271; :" },
  {
    name: "one left behind without output",
    script: 'sh -c "exec >&- 2>&- <&-; sleep 271; :" "$0" & exit 0',
    ends: true,
  },
  { name: "one left behind that holds the output open", script: 'sh -c "sleep 271; :" "$0" & exit 0', ends: true },
  { name: "a child that stops itself", script: "kill -STOP $$; sleep 271" },
];

const TIMEOUT_MS = 700;
/** Of commands that end by themselves, however busy the machine is. */
const PATIENT_MS = 60_000;
const AT_ONCE = 4;

const shell = (id: string, timeoutMs: number): string =>
  `{ id: ${id}, exec: /bin/sh, args: { allow: [-c], patterns: [{ value: ".*" }] }, timeoutMs: ${timeoutMs}, maxOutputBytes: 10_000, limits: { maxProcesses: 40, maxMemoryBytes: 200_000_000 } }`;
const CATALOG = `
  - ${shell("sh", TIMEOUT_MS)}
  - ${shell("patient", PATIENT_MS)}
  - { id: "true", exec: "true" }
`;

export async function runScenarios(without: Without): Promise<ScenarioReport[]> {
  const world = makeWorld(CATALOG, `limits: { maxCmdConcurrency: ${AT_ONCE}, maxCmdQueue: 64 }`, without);
  const reports: ScenarioReport[] = [];
  const play = async ({ name, script, ends }: (typeof SCENARIOS)[number]): Promise<ScenarioReport> => {
    const mark = `mark-${randomBytes(8).toString("hex")}`;
    const outcome = await world.run(ends ? "patient" : "sh", ["-c", script, mark]);
    return report(name, outcome, commandLinesWith(mark));
  };
  try {
    // The bomb alone: it takes all the processes that its user may have.
    const [bomb, ...others] = SCENARIOS as [(typeof SCENARIOS)[number], ...typeof SCENARIOS];
    reports.push(await play(bomb));
    // Most of them only wait for their time to run out, which they can do together.
    reports.push(...(await Promise.all(others.map(play))));
    // The sandbox still works after all that.
    reports.push(report("an ordinary command afterwards", await world.run("true"), []));
    await sleep(50);
  } finally {
    await world.close();
  }
  return reports;
}

function report(name: string, outcome: HostOutcome<CmdRunResult>, left: readonly string[]): ScenarioReport {
  const result = outcome.ok ? outcome.result : outcome.partial;
  return {
    name,
    outcome: outcome.ok ? "ended" : outcome.denial.rule,
    detail: outcome.ok ? outcome.result.stderr.slice(-200) : JSON.stringify(outcome.denial),
    timedOut: result?.timedOut ?? false,
    truncated: result?.truncated ?? false,
    left,
    protections: result?.protections,
  };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const without = JSON.parse(process.argv[2] ?? "{}") as Without;
  process.stdout.write(JSON.stringify(await runScenarios(without)));
}
