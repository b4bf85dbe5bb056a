// The application's allow list as a voice in the gate's decision: what it refuses never reaches a tool.

import { deny, PERMIT, type Check } from "../policy/index.js";
import type { CoreApplication, CoreServices } from "./application.js";
import { ERROR_TYPES } from "./host/fault.js";
import { decideFilesystem } from "./host/filesystem.js";
import { decideCommand, EXECUTE_COMMAND } from "./host/linux.js";
import { hostPolicyOf } from "./host/policy.js";

/** For calls of this application; executing checks again. */
export function coreCheck(app: CoreApplication, services: Pick<CoreServices, "protectedPaths">): Check {
  const policy = hostPolicyOf(app, services);
  return ({ principal, target, arguments: args }) => {
    if (policy === undefined || principal.app !== app.id || target.type !== "Tool") return PERMIT;
    const decision =
      target.name === EXECUTE_COMMAND ? decideCommand(policy, args) : decideFilesystem(policy, target.name, args);
    if (decision === undefined) return PERMIT;
    if (decision.effect === "permit") return { ...PERMIT, rules: [{ id: decision.rule }] };
    const { code, rule, reason, field, suggestions } = decision.denial;
    return deny(ERROR_TYPES[code], rule, reason, {
      ...(field === undefined ? {} : { field }),
      ...(suggestions === undefined ? {} : { suggestions }),
    });
  };
}
