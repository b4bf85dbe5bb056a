// Where a server listens, and the housekeeping every listener shares.

import { chmod, lstat, unlink } from "node:fs/promises";
import type { IncomingHttpHeaders } from "node:http";
import { type AddressInfo, connect, type Server } from "node:net";
import { UNIX_PEER } from "../index.js";
import type { ServerChannel } from "./channel.js";

export interface ListenAt {
  /** 127.0.0.1 unless said. */
  host?: string;
  /** 0, any free port, unless said. */
  port?: number;
  /** A Unix socket instead of host and port; only its owner may connect. */
  socketPath?: string;
}

export const DEFAULT_HOST = "127.0.0.1";

/** The remote address of a socket. A TCP socket that is already closed has none and must not pass for a Unix socket. */
export function peerAddress(socket: { readonly remoteAddress?: string | undefined }, at: ListenAt): string {
  return socket.remoteAddress ?? (at.socketPath === undefined ? "unknown" : UNIX_PEER);
}

export async function listenAt(server: Server, at: ListenAt): Promise<void> {
  if (at.socketPath === undefined) {
    await listening(server, { host: at.host ?? DEFAULT_HOST, port: at.port ?? 0, backlog: 1024 });
    return;
  }
  if (await isLeftBehind(at.socketPath)) await unlink(at.socketPath);
  await listening(server, { path: at.socketPath });
  await chmod(at.socketPath, 0o600);
}

function listening(server: Server, options: Parameters<Server["listen"]>[0]): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options as { path: string }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** A socket file without a listener is what a process that was killed leaves behind. */
async function isLeftBehind(path: string): Promise<boolean> {
  const isSocket = await lstat(path).then(
    (found) => found.isSocket(),
    () => false,
  );
  if (!isSocket) return false;
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(false);
    });
    probe.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}

/** `127.0.0.1:7420`, `[::1]:7420`, or the path of a Unix socket. */
export function authorityOf(server: Server): string {
  const address = server.address();
  if (address === null) return "";
  if (typeof address === "string") return address;
  return hostAndPort(address);
}

function hostAndPort({ address, port }: AddressInfo): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** One timer for all connections of a listener; often enough for the shortest of the waits it serves. */
export function everyMs(shortestMs: number, sweep: (now: number) => void): NodeJS.Timeout {
  const periodMs = Math.min(5_000, Math.max(10, Math.floor(shortestMs / 4)));
  return setInterval(() => sweep(performance.now()), periodMs).unref();
}

/** Lets every channel finish what is under way, at most `graceMs`, then closes the rest. */
export async function closeChannels(channels: Iterable<ServerChannel>, graceMs: number): Promise<void> {
  const open = [...channels].filter((channel) => !channel.closed);
  if (open.length === 0) return;
  const allClosed = Promise.all(open.map((channel) => new Promise<void>((resolve) => channel.onClose(resolve))));
  const timer = setTimeout(() => {
    for (const channel of open) channel.close("shutting down");
  }, graceMs);
  for (const channel of open) channel.closeWhenQuiet();
  await allClosed;
  clearTimeout(timer);
}

export const DEFAULT_GRACE_MS = 5_000;

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];
/** Header values found good before; bounded, because a port is the sender's to choose. */
const MAX_REMEMBERED = 256;

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?$/;
/** What a browser sends for a request of the server's own page, or of no page at all. */
const OWN_SITES: ReadonlySet<string> = new Set(["same-origin", "none"]);
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

interface HostGuardOptions {
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
