// What can go wrong with a server beyond its session.

import { Fault } from "../mcp/index.js";

/** The server lists another definition than the one the call was decided for; nothing was sent. */
export function definitionChanged(server: string, kind: string, name: string, isMissing: boolean): Fault {
  const what = `${kind} \`${name}\` of server \`${server}\``;
  const why = isMissing
    ? `${what} is not listed by the server any more`
    : `${what} is pending review: its definition is not the one that was accepted`;
  return new Fault("PolicyDeny", why, {
    extra: { server, delivered: false },
    suggestions: ["List again", `An operator compares and accepts changes with \`portcullis pin ls APP ${server}\``],
  });
}

/**
 * What a server wrote to stderr before it failed to start. For operators alone: it may hold anything, so it goes along
 * as the cause of a fault and never into its message, which callers read.
 */
export class LastWords extends Error {}
