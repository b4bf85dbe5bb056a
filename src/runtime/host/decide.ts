// What policy.yaml decides about a call of one of the host's tools. Nothing happens.

import { type HostDecision, decideCmdRun, decideFsRead, decideFsWrite, type Policy } from "../../host/index.js";

const DECIDE: Readonly<Record<string, (policy: Policy, args: unknown) => HostDecision>> = {
  "fs.read": decideFsRead,
  "fs.write": decideFsWrite,
  "cmd.run": decideCmdRun,
};

/** Undefined where the host has no such tool. */
export function decideHostCall(policy: Policy, tool: string, args: unknown): HostDecision | undefined {
  return Object.hasOwn(DECIDE, tool) ? DECIDE[tool]?.(policy, args) : undefined;
}
