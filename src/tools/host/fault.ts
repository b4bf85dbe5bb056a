// The host's refusals in the words of the error table.

import type { Denial, DenialCode } from "../../host/index.js";
import { type ErrorType, Fault } from "../../mcp/index.js";

export const ERROR_TYPES: Readonly<Record<DenialCode, ErrorType>> = {
  POLICY_DENY: "PolicyDeny",
  INVALID_ARGS: "ValidationError",
  TIMEOUT: "ToolTimeout",
  IO_ERROR: "IoError",
  INTERNAL: "InternalError",
};

export function faultOf({ code, reason, rule, field, suggestions }: Denial, extra?: Record<string, unknown>): Fault {
  return new Fault(ERROR_TYPES[code], reason, {
    rule,
    ...(field === undefined ? {} : { field }),
    ...(suggestions === undefined ? {} : { suggestions }),
    ...(extra === undefined ? {} : { extra }),
  });
}
