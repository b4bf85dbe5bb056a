// Who may talk to us from a browser. A page that rebinds its own name to our address still sends that name as `Host`,
// and a page elsewhere sends itself as `Origin`; neither is on the list.

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];
/** Header values found good before; bounded, because a port is the sender's to choose. */
const MAX_REMEMBERED = 256;

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?$/;
const ORIGIN = /^https?:\/\/([^/]+)$/;

export interface HostGuardOptions {
  /** Where the server listens; allowed by itself, with the loopback names, unless `allowedHosts` says otherwise. */
  listenHost: string;
  /** `gate.example.com` (any port) or `gate.example.com:8443`. */
  allowedHosts?: readonly string[] | undefined;
  /** `https://app.example.com`, exactly as a browser writes it. Only these get CORS headers. */
  allowedOrigins?: readonly string[] | undefined;
}

export class HostGuard {
  readonly #hosts: ReadonlySet<string>;
  readonly #origins: ReadonlySet<string> | undefined;
  readonly #goodHosts = new Set<string>();

  constructor(options: HostGuardOptions) {
    const listenHost = options.listenHost.includes(":") ? `[${options.listenHost}]` : options.listenHost;
    this.#hosts = new Set((options.allowedHosts ?? [...LOOPBACK, listenHost]).map((host) => host.toLowerCase()));
    this.#origins = options.allowedOrigins && new Set(options.allowedOrigins.map((origin) => origin.toLowerCase()));
  }

  /** Why the request is refused, or nothing when it may pass. */
  refusal(host: string | undefined, origin: string | undefined): string | undefined {
    if (host === undefined || !this.#isGoodHost(host)) {
      return `Host ${quote(host)} is not one this server answers to; use its own address or add the name to allowedHosts`;
    }
    if (origin !== undefined && !this.#isGoodOrigin(origin)) {
      return `Origin ${quote(origin)} is not allowed to call this server; add it to allowedOrigins`;
    }
    return undefined;
  }

  /** Only an origin that the operator named may read our answers from a page. */
  sharesWith(origin: string | undefined): origin is string {
    return origin !== undefined && this.#origins !== undefined && this.#origins.has(origin.toLowerCase());
  }

  #isGoodHost(header: string): boolean {
    if (this.#goodHosts.has(header)) return true;
    if (!this.#isListed(header.toLowerCase())) return false;
    if (this.#goodHosts.size < MAX_REMEMBERED) this.#goodHosts.add(header);
    return true;
  }

  #isGoodOrigin(header: string): boolean {
    const origin = header.toLowerCase();
    if (this.#origins !== undefined) return this.#origins.has(origin);
    const host = ORIGIN.exec(origin)?.[1];
    return host !== undefined && this.#isListed(host);
  }

  #isListed(host: string): boolean {
    const name = HOST.exec(host)?.[1];
    return name !== undefined && (this.#hosts.has(name) || this.#hosts.has(host));
  }
}

function quote(value: string | undefined): string {
  return value === undefined ? "(none)" : JSON.stringify(value.slice(0, 200));
}
