// What the operator sees when a call waits for approval.

import { visible } from "../telemetry/index.js";
import type { Challenge } from "../policy/index.js";
import { paintErr } from "../lib/print.js";
import type { GatewayRuntime } from "./start.js";

/** At once when a call waits: as a line for the operator at a terminal, and as a log record everywhere else. */
export function noteWaiting({ telemetry, approvalUrl }: GatewayRuntime, challenge: Challenge): void {
  const { id, tool, app, agent } = challenge;
  const url = approvalUrl(id);
  const command = `portcullis approve ${id}`;
  if (process.stderr.isTTY !== true) {
    return telemetry.log.notice("a call waits for approval", { challenge: id, tool, app, agent, url, command });
  }
  const call = `${visible(tool)} of ${visible(`${app}/${agent}`)} waits for approval`;
  const answer = `${url === undefined ? "" : `${url} or `}\`portcullis approvals open ${id}\` or \`${command}\``;
  process.stderr.write(`${paintErr.yellow(call)}: ${answer}\n`);
}
