// The local user: callers without a credential that run on this machine. What a client says about itself counts for
// nothing; where a request came from does.

import { userInfo } from "node:os";
import type { Principal } from "../gate/index.js";
import { Fault, isLoopbackAddress } from "../protocol/index.js";
import type { Peer } from "../transport/index.js";
import type { Identify } from "./index.js";
import { HOW_TO_GET_A_KEY } from "./keys/identify.js";

export interface LocalOptions {
  app?: string;
  agent?: string;
  /** Ends with what its holder has opened, as a key's id does. */
  credential?: string;
}

/** Stands for local access where a key's id stands for a key; no key has this id. */
export const LOCAL_CREDENTIAL = "local";

/** Headers that a proxy, a tunnel or a load balancer adds. A request that has one came from another machine. */
const PROXY_HEADERS: ReadonlySet<string> = new Set([
  "via",
  "cdn-loop",
  "client-ip",
  "incap-client-ip",
  "wl-proxy-client-ip",
  "true-client-ip",
  "fastly-client-ip",
  "fly-client-ip",
  "x-host",
  "x-scheme",
  "x-rewrite-url",
  "x-client-ip",
  "x-cluster-client-ip",
  "x-proxyuser-ip",
  "x-originating-ip",
  "x-remote-ip",
  "x-remote-addr",
  "x-appengine-user-ip",
  "x-amzn-trace-id",
  "x-nf-client-connection-ip",
  "x-vercel-id",
]);
const PROXY_PREFIXES = [
  "forwarded",
  "x-forward",
  "x-original-",
  "x-real-",
  "x-envoy-",
  "x-traefik-",
  "x-azure-",
  "x-amz-cf-",
  "cloudfront-",
  "cf-",
  "akamai-",
  "x-akamai-",
  "x-sucuri-",
  "tailscale-",
  "x-ngrok-",
  "x-proxy-",
  "proxy-",
] as const;

/** Identifies every caller on this machine as its user, and no other. */
export function localIdentity(options: LocalOptions = {}): Identify {
  const principal: Principal = {
    app: options.app ?? "local",
    agent: options.agent ?? localUser(),
    ...(options.credential === undefined ? {} : { credential: options.credential }),
    scope: [],
    via: "local",
  };
  return (peer) => {
    const reason = remoteReason(peer);
    if (reason === undefined) return principal;
    throw new Fault("AuthenticationError", `authentication required: ${reason}`, {
      suggestions: ["Connect from the machine that it runs on, without a proxy", ...HOW_TO_GET_A_KEY],
    });
  };
}

/** Why the peer is not known to be on this machine; undefined when it is. */
export function remoteReason(peer: Peer): string | undefined {
  if (peer.transport === "stdio" || peer.transport === "memory") return undefined;
  if (!isLoopbackAddress(peer.address)) return "the request did not come from a loopback address";
  for (const name in peer.headers) {
    if (PROXY_HEADERS.has(name) || PROXY_PREFIXES.some((prefix) => name.startsWith(prefix))) {
      return `the request was forwarded by a proxy (header ${name})`;
    }
  }
  return undefined;
}

function localUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A process in a container may run under an id that has no name.
    return `uid-${process.getuid?.() ?? "unknown"}`;
  }
}
