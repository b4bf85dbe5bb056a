// The local user: callers without a credential that run on this machine. What a client says about itself counts for
// nothing; where a request came from does.

import { userInfo } from "node:os";
import { Fault, isLoopbackAddress } from "../mcp/index.js";
import type { Peer } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";
import { HOW_TO_GET_A_KEY } from "./api-keys/identify.js";
import type { Identify } from "./index.js";

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
  "connect-time",
  "disguised-host",
  "front-end-https",
  "total-route-time",
  "was-default-hostname",
  "x-bluecoat-via",
  "x-cloud-trace-context",
  "x-coming-from",
  "x-host",
  "x-https",
  "x-proto",
  "x-request-start",
  "x-rewrite-url",
  "x-scheme",
  "x-served-by",
  "x-url-scheme",
]);
const PROXY_PREFIXES = [
  "akamai-",
  "cf-",
  "cloudfront-",
  "fastly-",
  "fly-",
  "ngrok-",
  "proxy-",
  "remote-",
  "ssl-client-",
  "surrogate-",
  "tailscale-",
  "teleport-",
  "x-akamai-",
  "x-amz-cf-",
  "x-amzn-",
  "x-apigee-",
  "x-appengine-",
  "x-arr-",
  "x-auth-request-",
  "x-authentik-",
  "x-azure-",
  "x-backend-",
  "x-caddy",
  "x-cdn-",
  "x-client-cert",
  "x-client-dn",
  "x-client-verify",
  "x-consumer-",
  "x-edge-",
  "x-envoy-",
  "x-expose",
  "x-goog-",
  "x-haproxy-",
  "x-hass-",
  "x-ingress-",
  "x-inlets-",
  "x-kong-",
  "x-ms-client-",
  "x-nf-",
  "x-ngrok-",
  "x-original-",
  "x-pomerium-",
  "x-proxy",
  "x-railway-",
  "x-rapidapi-",
  "x-real-",
  "x-remote-",
  "x-replaced-",
  "x-ssl-",
  "x-sucuri-",
  "x-tailscale-",
  "x-tls-",
  "x-traefik-",
  "x-varnish",
  "x-vercel-",
  "x-waws-",
  "x-webauth-",
  "x-zrok-",
] as const;
/** In any spelling: `x-http-forwarded-for`, `x-devtunnel`, `true-client-ip`, `x-nginx-proxy`. */
const PROXY_WORDS = /forward|tunnel|-(?:ips?|proxy)$/;

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
    if (isProxyHeader(name)) return `the request was forwarded by a proxy (header ${name})`;
  }
  // Reverse proxies speak it unless they are told otherwise, also those that add no header.
  if (peer.httpVersion === "1.0") return "the request was sent with HTTP/1.0, as reverse proxies do";
  return undefined;
}

function isProxyHeader(name: string): boolean {
  return PROXY_HEADERS.has(name) || PROXY_WORDS.test(name) || PROXY_PREFIXES.some((prefix) => name.startsWith(prefix));
}

function localUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A process in a container may run under an id that has no name.
    return `uid-${process.getuid?.() ?? "unknown"}`;
  }
}
