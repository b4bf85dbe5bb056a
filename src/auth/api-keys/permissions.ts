// What a key may do (G6). Patterns are names or URIs in which `*` stands for anything.

import type { Approver } from "../../policy/index.js";
import { Granted, type GrantedReach, readGrant } from "../granted.js";
import type { Credential } from "./cache.js";

export interface KeyRights {
  /** Call these tools. */
  readonly invoke: GrantedReach;
  /** See these tools in lists, with their schemas. What may be called may be seen. */
  readonly read: GrantedReach;
  /** Read, follow and list these resources, and complete their templates. */
  readonly resources: GrantedReach;
  /** Get, complete and list these prompts. */
  readonly prompts: GrantedReach;
  readonly adminRead: boolean;
  readonly adminWrite: boolean;
  /** Approver groups; a key of an approver calls nothing. */
  readonly approve: readonly string[];
  /** What it may see in the console; such a key calls nothing either. */
  readonly console: readonly ConsoleRole[];
}

type ConsoleRole = "viewer" | "auditor";

export class PermissionInvalid extends Error {
  readonly code = "PERMISSION_INVALID";
  constructor(message: string) {
    super(message);
    this.name = "PermissionInvalid";
  }
}

export const PERMISSION_FORMS =
  "invoke(TOOL), read(TOOL), list, read(resource:URI), read(prompt:NAME), admin.read, admin.write; or, without those, approve(GROUP), console(viewer), console(auditor)";
const MAX_PERMISSIONS = 1_000;

/** INVARIANT: what can approve, or see what others do, calls nothing itself. */
export function readPermissions(permissions: readonly string[]): KeyRights {
  if (permissions.length > MAX_PERMISSIONS) {
    throw new PermissionInvalid(`a key has at most ${MAX_PERMISSIONS} permissions; use patterns`);
  }
  const granted: string[] = [];
  const seen: string[] = [];
  const approve: string[] = [];
  const roles = new Set<ConsoleRole>();
  let [adminRead, adminWrite] = [false, false];
  for (const permission of permissions) {
    const [, verb = "", what = ""] = /^(invoke|read|approve)\(([^()]*)\)$/.exec(permission) ?? [];
    if (verb === "invoke" || verb === "read") {
      const kind = readGrant(what)?.kind;
      const isTool = kind === "tool";
      if (kind === undefined || (verb === "invoke" && !isTool)) throw unreadable(verb, permission);
      (verb === "read" && isTool ? seen : granted).push(what);
    } else if (verb === "approve") approve.push(group(what, permission));
    else if (permission === "list") seen.push("tool:*");
    else if (permission === "console(viewer)") roles.add("viewer");
    else if (permission === "console(auditor)") roles.add("auditor");
    else if (permission === "admin.read") adminRead = true;
    else if (permission === "admin.write") adminWrite = adminRead = true;
    else throw new PermissionInvalid(`unknown permission \`${permission}\`: expected ${PERMISSION_FORMS}`);
  }
  const ofPeople = permissions.filter((permission) => /^(approve|console)\(/.test(permission));
  if (ofPeople.length > 0 && ofPeople.length < permissions.length) {
    throw new PermissionInvalid("a key that approves or opens the console can do nothing else; make two keys");
  }
  const { tools: invoke, resources, prompts } = new Granted(granted);
  return {
    invoke,
    resources,
    prompts,
    read: new Granted([...granted, ...seen]).tools,
    adminRead,
    adminWrite,
    approve,
    console: [...roles],
  };
}

function unreadable(verb: "invoke" | "read", permission: string): PermissionInvalid {
  const forms = verb === "invoke" ? "invoke(TOOL)" : "read(TOOL), read(resource:URI) or read(prompt:NAME)";
  return new PermissionInvalid(`\`${permission}\` is not a valid permission: expected ${forms}; * stands for anything`);
}

function group(text: string, permission: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/.test(text)) return text;
  throw new PermissionInvalid(`\`${permission}\` names no group of approvers`);
}

/** Who uses the admin port with this key: for its own application, in its groups, and never for its own agent's calls. */
export function approverOf({ key, rights }: Credential): Approver | undefined {
  if (rights.approve.length + rights.console.length === 0) return undefined;
  return { name: `${key.name} (${key.id})`, groups: rights.approve, app: key.app, caller: `${key.app}/${key.agent}` };
}

/** What the holder of this key is in the console, if anything: for its own application alone. */
export function consoleRolesOf({ rights }: Credential): readonly ("approver" | ConsoleRole)[] {
  return [...(rights.approve.length > 0 ? (["approver"] as const) : []), ...rights.console];
}
