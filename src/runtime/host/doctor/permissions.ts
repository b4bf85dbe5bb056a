// Whose the policy and the record are, and who else could change them.

import { accessSync, constants, existsSync, statSync } from "node:fs";
import type { Policy } from "../../../host/index.js";
import type { Finding } from "../../../lib/finding.js";
import { credentialsBelow } from "../config/credential.js";
import type { HostFiles } from "../config/files.js";
import { opennessOf } from "../config/ownership.js";

export function permissions(policy: Policy, files: HostFiles): Finding[] {
  return [policyFile(files.config), stateFolder(files.state), credential(policy), ...placesOf(policy)];
}

function policyFile(config: string): Finding {
  const check = "who can change the policy";
  if (process.platform === "win32") return { check, ok: true, detail: "left to the folder's access list" };
  const open = opennessOf(config);
  if (open !== undefined) return { check, ok: false, detail: open.detail, remedy: open.remedy };
  return { check, ok: true, detail: statSync(config).uid === process.getuid?.() ? "you alone" : "root alone" };
}

function credential(policy: Policy): Finding {
  const check = "operator's credential";
  const [token] = credentialsBelow(policy);
  if (token === undefined) return { check, ok: true, detail: "none was seen in the policy's folders" };
  return {
    check,
    ok: false,
    detail: `the agent can read ${token}, with which a gateway's calls are approved`,
    remedy: "move that gateway's working folder elsewhere (--dir)",
  };
}

function stateFolder(state: string): Finding {
  const check = "ledger's folder";
  if (!existsSync(state)) return { check, ok: true, detail: `${state} will be made by the host` };
  if (!may(state, constants.R_OK | constants.W_OK | constants.X_OK)) {
    return { check, ok: false, detail: `${state} cannot be written`, remedy: `chown it to user ${process.getuid?.()}` };
  }
  const open = process.platform !== "win32" && (statSync(state).mode & 0o077) !== 0;
  return open
    ? { check, ok: false, detail: `${state} is open to other users`, remedy: `chmod 700 ${state}` }
    : { check, ok: true, detail: state };
}

function placesOf({ roots, zones }: Policy): Finding[] {
  const closed = roots.filter((root) => !may(root.path, constants.R_OK | constants.X_OK));
  const readable: Finding =
    closed[0] === undefined
      ? { check: "folders to read", ok: true, detail: roots.map((root) => root.path).join(", ") || "none" }
      : {
          check: "folders to read",
          ok: false,
          detail: `${closed.map((root) => root.path).join(", ")} cannot be read by you`,
          remedy: "run the host as a user who may read it, or take it out of allowedRoots",
        };
  const stuck = zones.filter((zone) => existsSync(zone.path) && !may(zone.path, constants.W_OK | constants.X_OK));
  const writable: Finding =
    stuck[0] === undefined
      ? { check: "folders to write", ok: true, detail: zones.map((zone) => zone.path).join(", ") || "none" }
      : {
          check: "folders to write",
          ok: false,
          detail: `${stuck.map((zone) => zone.path).join(", ")} cannot be written by you, or lies on a read-only disk`,
          remedy: "run the host as a user who may write there, or take it out of writeRules",
        };
  return [readable, writable];
}

function may(path: string, how: number): boolean {
  try {
    accessSync(path, how);
    return true;
  } catch {
    return false;
  }
}
