// Can a command start where it will run? Asked inside its own confinement, with `true` in its place.

import { isWithin } from "../paths/index.js";
import { type Command, findExecutable, type Policy, searchDirectories } from "../policy/index.js";
import { missingProtections } from "./confinement.js";
import { needsOf } from "./needs.js";
import { confinementOf, environmentOf, launchLimitsOf, programDirectories } from "./plan.js";
import type { Sandbox } from "./sandbox.js";

const TIMEOUT_MS = 10_000;
const MAX_OUTPUT_BYTES = 1000;

/** What keeps it from starting, in that folder if one is given, or nothing. */
export async function reachInSandbox(
  policy: Policy,
  command: Command,
  sandbox: Sandbox,
  folder?: string,
): Promise<string | undefined> {
  const nothing = findExecutable("true", searchDirectories("", process.platform));
  if ("error" in nothing) return undefined;
  const confinement = confinementOf(policy, command);
  const outcome = await sandbox.run({
    confinement,
    executable: command.executable.path,
    startInstead: nothing.path,
    args: [],
    needs: needsOf(command.executable, programDirectories(command)),
    env: (scratch) => environmentOf(policy, command, new Map(), confinement.user !== undefined, scratch),
    cwd: folder === undefined ? undefined : belowRoot(policy, command, folder),
    stdin: Buffer.alloc(0),
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    limits: launchLimitsOf(policy, command, TIMEOUT_MS),
    queue: { concurrency: 1, waiting: 1, waitMs: TIMEOUT_MS },
    accept: (protections) => {
      const missing = command.sandbox === "required" ? missingProtections(protections, command.network) : [];
      return missing.length === 0 ? undefined : missing.join(", ");
    },
  });
  if (outcome.kind === "refused") {
    return `this machine does not give what sandbox: required asks for: ${outcome.reason}; \`portcullis doctor host\` says more`;
  }
  if (outcome.kind === "unavailable") return `the sandbox could not be started: ${outcome.reason}`;
  return outcome.kind === "ended" && outcome.ending.kind === "failed" ? outcome.ending.reason : undefined;
}

/** As a call would ask for it: from the innermost root around the folder. */
function belowRoot(policy: Policy, command: Command, folder: string): { root: string; rest: string } {
  const places = [...policy.roots, ...(command.cwd === undefined ? [] : [command.cwd])].map((place) => place.path);
  const around = places.filter((place) => isWithin(folder, place)).sort((a, b) => b.length - a.length)[0] ?? folder;
  return { root: around, rest: folder === around ? "." : folder.slice(around.length).replace(/^\/+/, "") };
}
