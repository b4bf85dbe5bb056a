import type { Approver } from "../../policy/index.js";
import type { Credential } from "./cache.js";

/** Who answers challenges with this key: for its own application, in its groups, and never for its own agent's calls. */
export function approverOf({ key, rights }: Credential): Approver | undefined {
  if (rights.approve.length === 0) return undefined;
  return { name: `${key.name} (${key.id})`, groups: rights.approve, app: key.app, caller: `${key.app}/${key.agent}` };
}
