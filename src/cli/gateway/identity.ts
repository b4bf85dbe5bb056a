// Who calls a gateway of applications: whoever has a key, or a token of an issuer that the operator trusts. On stdio it
// is the operating system's user, and so it is on loopback for as long as there are neither: a laptop needs none.

import {
  approverOf,
  type Identify,
  keyIdentity,
  KeyRing,
  localIdentity,
  type OAuthSettings,
  openOAuthIdentity,
} from "../../identity/index.js";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { clientDocumentDoor } from "../oauth/identity.js";
import type { IdentityHere, IdentityParts } from "./runtime.js";

export interface IdentityOptions {
  /** The application that local callers belong to. */
  readonly localApp: string;
  /** Only this machine can connect. */
  readonly isLoopback: boolean;
  readonly oauth?: OAuthSettings;
  /** Private hosts and ranges that issuers may be at, besides their own addresses. */
  readonly allow?: readonly string[];
  /** Where the document is read that describes us as a client. */
  readonly publicUrl?: string;
}

export function keysOrLocal({ localApp, isLoopback, oauth, allow = [], publicUrl }: IdentityOptions) {
  return async ({ storage, telemetry }: IdentityParts): Promise<IdentityHere> => {
    const ring = await KeyRing.open({
      storage,
      onProblem: (problem, error) => telemetry.log.warning(problem, { problem: String((error as Error)?.message) }),
    });
    const byKey = keyIdentity(ring);
    const local = localIdentity({ app: localApp });
    const others: Identify = (peer, auth, meta) => {
      const bringsNone = peer.headers?.authorization === undefined && auth === undefined;
      const isLocal = peer.transport === "stdio" || (isLoopback && !oauth && ring.size === 0);
      return bringsNone && isLocal ? local(peer, auth, meta) : byKey(peer, auth, meta);
    };
    // What the operator wrote down as an issuer may be at a private address.
    const outbound = oauth && createOutbound(createDialer({ allow: [...allow, ...issuerHosts(oauth)] }));
    const once = (id: string, ttlMs: number): Promise<boolean> => storage.once.first(`dpop:${id}`, ttlMs);
    const tokens =
      oauth && outbound && (await openOAuthIdentity({ settings: oauth, fetch: outbound.fetch, others, once }));
    const document = publicUrl === undefined ? undefined : clientDocumentDoor(publicUrl);
    return {
      identify: tokens?.identify ?? others,
      open: (request) => (tokens?.open(request) || document?.(request)) ?? false,
      approverFor: async (token) => {
        const credential = token === "" ? undefined : await ring.find(token);
        return credential && approverOf(credential);
      },
      close: async () => {
        await outbound?.close();
        await ring.close();
      },
    };
  };
}

function issuerHosts({ issuers }: OAuthSettings): string[] {
  const addresses = issuers.flatMap(({ issuer, jwksUri }) => [issuer, jwksUri ?? issuer]);
  return addresses.filter((text) => URL.canParse(text)).map((text) => new URL(text).host.replace(/^\[(.*)\].*$/, "$1"));
}
