// Which web pages may call this server. A page that rebinds its own name to our address still sends that name as `Host`.
// A page of another origin, which includes another port of this machine, sends itself as `Origin`, and its browser adds
// `Sec-Fetch-Site`. Clients that are not browsers send neither.

import type { IncomingHttpHeaders } from "node:http";

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];
/** Header values found good before; bounded, because a port is the sender's to choose. */
const MAX_REMEMBERED = 256;

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?$/;
/** What a browser sends for a request of the server's own page, or of no page at all. */
const OWN_SITES: ReadonlySet<string> = new Set(["same-origin", "none"]);
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

export interface HostGuardOptions {
  /** Where the server listens; allowed by itself, with the loopback names. */
  listenHost: string;
  /** Further names: `gate.example.com` (any port) or `gate.example.com:8443`. */
  allowedHosts?: readonly string[] | undefined;
  /** `https://app.example.com`, exactly as a browser writes it, besides the listener's own. Only these get CORS headers. */
  allowedOrigins?: readonly string[] | undefined;
}

export class HostGuard {
  readonly #hosts: ReadonlySet<string>;
  /** Origins that the operator listed. */
  readonly #origins: ReadonlySet<string>;
  /** Origins of the listener itself: known when it listens. */
  #ownOrigins: ReadonlySet<string> = new Set();
  readonly #goodHosts = new Set<string>();

  constructor(options: HostGuardOptions) {
    const listenHost = options.listenHost.includes(":") ? `[${options.listenHost}]` : options.listenHost;
    this.#hosts = new Set([...LOOPBACK, listenHost, ...(options.allowedHosts ?? [])].map((host) => host.toLowerCase()));
    this.#origins = new Set(options.allowedOrigins?.map((origin) => origin.toLowerCase()));
  }

  /** Called when the port is known. A host that was listed with a port keeps that port. */
  listensOn(scheme: "http" | "https", port: number): void {
    const origins = [...this.#hosts].flatMap((host) => {
      if (/[^\]:]:\d+$|\]:\d+$/.test(host)) return [`${scheme}://${host}`];
      const own = `${scheme}://${host}:${port}`;
      return port === DEFAULT_PORTS[scheme] ? [own, `${scheme}://${host}`] : [own];
    });
    this.#ownOrigins = new Set(origins);
  }

  /** Why the request is refused, or undefined when it may pass. */
  refusal({ host, origin, "sec-fetch-site": site }: IncomingHttpHeaders): string | undefined {
    if (host === undefined || !this.#isGoodHost(host)) {
      return `Host ${quote(host)} is not one this server answers to; use its own address or add the name to allowedHosts`;
    }
    if (origin !== undefined && !this.#isGoodOrigin(origin)) {
      return `Origin ${quote(origin)} is not allowed to call this server; add it to allowedOrigins`;
    }
    // A page of a listed origin is of another site, and that is what it was listed for.
    if (site !== undefined && !OWN_SITES.has(String(site)) && !this.sharesWith(origin)) {
      return `Sec-Fetch-Site ${quote(String(site))}: pages of other origins may not call this server; add theirs to allowedOrigins`;
    }
    return undefined;
  }

  /** Only an origin that the operator named may read our answers from a page. */
  sharesWith(origin: string | undefined): origin is string {
    return origin !== undefined && this.#origins.has(origin.toLowerCase());
  }

  #isGoodHost(header: string): boolean {
    if (this.#goodHosts.has(header)) return true;
    if (!this.#isListed(header.toLowerCase())) return false;
    if (this.#goodHosts.size < MAX_REMEMBERED) this.#goodHosts.add(header);
    return true;
  }

  #isGoodOrigin(header: string): boolean {
    const origin = header.toLowerCase();
    return this.#origins.has(origin) || this.#ownOrigins.has(origin);
  }

  #isListed(host: string): boolean {
    const name = HOST.exec(host)?.[1];
    return name !== undefined && (this.#hosts.has(name) || this.#hosts.has(host));
  }
}

function quote(value: string | undefined): string {
  return value === undefined ? "(none)" : JSON.stringify(value.slice(0, 200));
}
