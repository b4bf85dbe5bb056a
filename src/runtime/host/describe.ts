// What a caller is told about the three tools: an agent that knows what is open need not find out by being denied.

import type { HostToolDefinition, Policy } from "../../host/index.js";

const MAX_CHARS = 4000;

export function describe({ name, description }: HostToolDefinition, policy: Policy): string {
  switch (name) {
    case "fs.read":
      return `${description} ${listed(
        "Folders",
        policy.roots.map((root) => root.written),
      )}`;
    case "fs.write":
      return `${description} ${listed(
        "Folders",
        policy.zones.map((zone) => zone.written),
      )}`;
    case "cmd.run":
      return `${description} ${listed("Commands", [...policy.commands.values()].map(commandWords))}`;
  }
}

function commandWords({ id, description }: { id: string; description: string | undefined }): string {
  return description === undefined ? id : `${id} (${description.trim().replace(/\.$/, "")})`;
}

/** Within a bound: a list of tools is read again and again. */
function listed(what: string, items: readonly string[]): string {
  if (items.length === 0) return `${what}: none.`;
  const shown: string[] = [];
  let chars = 0;
  for (const item of items) {
    chars += item.length + 2;
    if (chars > MAX_CHARS) break;
    shown.push(item);
  }
  const rest = items.length - shown.length;
  return `${what}: ${shown.join(", ")}${rest === 0 ? "" : `, and ${rest} more`}.`;
}
