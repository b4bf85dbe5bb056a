// Who calls a gateway of applications: whoever has a key. On stdio it is the operating system's user, and so it is on
// loopback for as long as there are no keys at all: a laptop needs none.

import { keyIdentity, KeyRing, localIdentity } from "../../identity/index.js";
import type { IdentityHere, IdentityParts } from "./runtime.js";

export interface IdentityOptions {
  /** The application that local callers belong to. */
  readonly localApp: string;
  /** Only this machine can connect. */
  readonly isLoopback: boolean;
}

export function keysOrLocal({ localApp, isLoopback }: IdentityOptions) {
  return async ({ storage, telemetry }: IdentityParts): Promise<IdentityHere> => {
    const ring = await KeyRing.open({
      storage,
      onProblem: (problem, error) => telemetry.log.warning(problem, { problem: String((error as Error)?.message) }),
    });
    const byKey = keyIdentity(ring);
    const local = localIdentity({ app: localApp });
    return {
      identify: (peer, auth, meta) => {
        const bringsNone = peer.headers?.authorization === undefined && auth === undefined;
        const isLocal = peer.transport === "stdio" || (isLoopback && ring.size === 0);
        return bringsNone && isLocal ? local(peer, auth, meta) : byKey(peer, auth, meta);
      },
      approverFor: async (token) => {
        const credential = token === "" ? undefined : await ring.find(token);
        if (!credential || credential.rights.approve.length === 0) return undefined;
        return { name: `key:${credential.key.name}`, groups: credential.rights.approve };
      },
      close: () => ring.close(),
    };
  };
}
