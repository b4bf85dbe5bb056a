// How the state of a server is printed.

import type { OperationResult } from "../admin/index.js";
import type { ServerProtections } from "../host/index.js";
import { paint } from "../lib/print.js";
import { visible } from "../telemetry/index.js";
import { destinationLines, profileLines, sandboxText } from "./server-sandbox.js";

export type ServerFacts = OperationResult<"listServers">["servers"][number];

export function stateWord({ state, circuit }: ServerFacts): string {
  return circuit === "closed" ? state : `${state}, circuit ${circuit}`;
}

export function problemOf({ last_error: last }: ServerFacts): string {
  return [last?.message, last?.cause].filter((text) => text !== undefined).join("; ");
}

export function serverFactsText(facts: ServerFacts): string {
  const counts = (facts.counts ?? {}) as Readonly<Record<string, number>>;
  const sandbox = facts.sandbox as ServerProtections | undefined;
  const failed = `${counts.failures} failed, ${counts.timeouts} timed out, ${counts.cancelled} cancelled`;
  const rows: [string, string | undefined][] = [
    ["state", stateWord(facts)],
    ["by", `${facts.transport}${facts.pid === undefined ? "" : `, process ${facts.pid}`}`],
    ["revision", facts.revision],
    ["tools", String(facts.tools)],
    ["instances", String(facts.instances)],
    ["calls", `${counts.calls}: ${counts.results} answered, ${counts.errors} refused by it, ${failed}`],
    [
      "malformed",
      `${counts.malformed} malformed, ${counts.strayAnswers} stray, ${counts.refusedMessages} not asked for`,
    ],
    ["now", `${facts.in_flight} in flight, ${facts.queued} waiting`],
    ["restarts", String(facts.restarts)],
    ["problem", facts.last_error && `${problemOf(facts)} (${facts.last_error.at})`],
    ["ended", facts.exit],
    ...(facts.remedies ?? []).map((remedy): [string, string] => ["remedy", remedy]),
    ["contained", facts.containment],
    ["sandbox", sandbox && sandboxText(sandbox)],
    ...profileLines(sandbox?.profile).map((line): [string, string] => ["", line]),
    ...destinationLines(sandbox?.destinations).map((line): [string, string] => ["", line]),
    ...(sandbox?.gaps ?? []).map((gap): [string, string] => ["", `open: ${gap}`]),
    ...(sandbox?.notes ?? []).map((note): [string, string] => ["", `refused by this machine: ${note}`]),
  ];
  const lines = rows.flatMap(([what, text]) => (text === undefined ? [] : [`  ${what.padEnd(10)} ${visible(text)}`]));
  const stderr = (facts.stderr ?? "").trimEnd().split("\n").map(visible);
  return [
    `${paint.bold(`${facts.app}/${facts.server}`)}  at replica ${facts.replica}`,
    ...lines,
    ...((facts.stderr ?? "") === "" ? [] : ["  stderr", ...stderr.map((line) => `    ${line}`)]),
  ].join("\n");
}
