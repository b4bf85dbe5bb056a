// Who uses the admin API: the operator, the holder of a key, or a browser that one of them signed in.

import type { Approver } from "../policy/index.js";
import type { OperationRoute, Role } from "./routes.js";

export interface AdminCaller extends Approver {
  readonly roles: readonly Role[];
  /** The id of the key that it came with. */
  readonly key?: string;
  readonly session?: { readonly id: string; readonly until: number };
}

/** An approver sees arguments where it is asked to approve them: those operations show its own groups' requests alone. */
export function seesArguments({ roles }: Pick<AdminCaller, "roles">): boolean {
  return roles.some((role) => role !== "viewer");
}

export function isOperator({ roles }: Pick<AdminCaller, "roles">): boolean {
  return roles.includes("operator");
}

export function mayUse({ roles, app }: Pick<AdminCaller, "roles" | "app">, route: OperationRoute): boolean {
  if (route.roles === "anyone") return true;
  if (route.wholeGateway && app !== undefined) return false;
  return roles.some((role) => (route.roles as readonly Role[]).includes(role));
}
