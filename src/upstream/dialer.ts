// The one way out to the network, for downstream servers, OAuth metadata, JWKS, webhooks and LLM providers. A name is
// resolved once, every address is checked, and the connection goes to an address that was checked: a name that means
// something else a moment later changes nothing.

import { lookup } from "node:dns/promises";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import type { Agent, buildConnector } from "undici";
import { Fault } from "../mcp/index.js";
import { type AddressKind, addressKindOf, inRange, parseAddress, parseRange, type Range } from "./addresses.js";
import { Lookups } from "./lookups.js";

export interface Dialer {
  /** Resolves the name, checks every address, and connects to one that passed. Rejects with a Fault. */
  connect(to: DialTarget): Promise<Socket>;
  /** Rejects as `connect` would for the addresses that the name has now, and connects to none. */
  check(to: DialTarget): Promise<void>;
}

export interface DialTarget {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
}

export interface DialerOptions {
  /**
   * What an operator named: a host (`intranet.example`), an address or a range (`10.1.0.0/16`), each on every port, or
   * on one (`localhost:9000`, `10.1.2.3:443`, `[::1]:9000`). A named host may be at a private or loopback address; link-local and other special addresses,
   * where cloud metadata lives, are reached only when the address or its range is named.
   */
  readonly allow?: readonly string[];
  /** 10 s by default, over all addresses together. */
  readonly timeoutMs?: number;
  /** Certificates and the like. */
  readonly tls?: ConnectionOptions;
  /** It connects to one server, or where that server leads: names that are resolved slowly keep no other one waiting. */
  readonly ofServer?: boolean;
  /** The system's resolver unless given. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
}

interface Allowed {
  /** With a port, or for every port without. */
  readonly hosts: ReadonlySet<string>;
  readonly ranges: readonly AllowedRange[];
}

interface AllowedRange {
  readonly range: Range;
  readonly port: number | undefined;
}

const MAX_ADDRESSES = 16;

export function createDialer(options: DialerOptions = {}): Dialer {
  const allowed = readAllowed(options.allow ?? []);
  const { timeoutMs = 10_000, resolve = systemResolve } = options;
  const lookups = options.ofServer ? new Lookups(resolve) : { resolve };
  return {
    async connect(to) {
      const stop = AbortSignal.timeout(timeoutMs);
      const addresses = await checkedAddresses(to, allowed, lookups, stop);
      return dialFirst(to, addresses, stop, options.tls);
    },
    async check(to) {
      await checkedAddresses(to, allowed, lookups, AbortSignal.timeout(timeoutMs));
    },
  };
}

function readAllowed(entries: readonly string[]): Allowed {
  const hosts = new Set<string>();
  const named: AllowedRange[] = [];
  for (const entry of entries) {
    const [, address = entry, port] = parseRange(entry) ? [] : (/^(\[[^\]]+\]|[^:]+):(\d{1,5})$/.exec(entry) ?? []);
    const range = parseRange(address);
    if (range !== undefined) named.push({ range, port: port === undefined ? undefined : Number(port) });
    else if (/^[a-z0-9._-]+(:\d+)?$/i.test(entry)) hosts.add(canonicalHost(entry));
    else
      throw new TypeError(
        `\`${entry}\` is not a host, address or range: expected \`name\`, \`name:port\` or \`10.0.0.0/8\``,
      );
  }
  return { hosts, ranges: named };
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { "https:": "443", "wss:": "443", "http:": "80", "ws:": "80" };

/** The entry of `allow` for one address that an operator wrote down: its host, on its port and on no other. */
export function allowanceFor({ protocol, hostname, port }: URL): string {
  return `${hostname}:${port === "" ? (DEFAULT_PORTS[protocol] ?? "443") : port}`;
}

function canonicalHost(host: string): string {
  return host.toLowerCase().replace(/\.(?=$|:)/, "");
}

async function systemResolve(host: string): Promise<string[]> {
  return (await lookup(host, { all: true, verbatim: true })).map((entry) => entry.address);
}

async function checkedAddresses(
  to: DialTarget,
  allowed: Allowed,
  lookups: Pick<Lookups, "resolve">,
  stop: AbortSignal,
): Promise<string[]> {
  const host = to.host.replace(/^\[|\]$/g, "");
  const found = isIP(host) !== 0 ? [host] : await resolved(host, lookups, stop);
  const isNamed = allowed.hosts.has(canonicalHost(host)) || allowed.hosts.has(`${canonicalHost(host)}:${to.port}`);
  const passed = found.slice(0, MAX_ADDRESSES).filter((address) => mayReach(address, to.port, isNamed, allowed));
  if (passed.length > 0) return passed;
  const kinds = [...new Set(found.map((address) => describeKind(address)))].join(", ");
  throw new Fault("PolicyDeny", `\`${host}\` is at a ${kinds} address, which may not be reached from here`, {
    rule: "outbound",
    suggestions: [`Name \`${host}:${to.port}\`, or the range it is in, where this server's network access is allowed`],
    extra: { delivered: false },
  });
}

async function resolved(
  host: string,
  lookups: Pick<Lookups, "resolve">,
  stop: AbortSignal,
): Promise<readonly string[]> {
  try {
    const found = await Promise.race([lookups.resolve(host, stop), aborted(stop)]);
    if (found.length > 0) return found;
  } catch (error) {
    throw unreachable(host, (error as Error).message, error);
  }
  throw unreachable(host, "the name has no address");
}

function mayReach(text: string, port: number, isNamed: boolean, allowed: Allowed): boolean {
  const address = parseAddress(text);
  if (address === undefined) return false;
  const isOpen = (each: AllowedRange): boolean => each.port === undefined || each.port === port;
  if (allowed.ranges.some((each) => isOpen(each) && inRange(address, each.range))) return true;
  const kind = addressKindOf(address);
  return kind === "public" || (isNamed && kind !== "special");
}

function describeKind(text: string): string {
  const address = parseAddress(text);
  const kind: AddressKind = address === undefined ? "special" : addressKindOf(address);
  return kind === "special" ? "link-local or reserved" : kind;
}

async function dialFirst(
  to: DialTarget,
  addresses: readonly string[],
  stop: AbortSignal,
  tls: ConnectionOptions | undefined,
): Promise<Socket> {
  let last: unknown;
  for (const [index, address] of addresses.entries()) {
    try {
      // An address that swallows packets must not use up the time of the others.
      const isLast = index === addresses.length - 1;
      return await dialOne(to, address, isLast ? stop : AbortSignal.any([stop, AbortSignal.timeout(2_000)]), tls);
    } catch (error) {
      last = error;
      if (stop.aborted) break;
    }
  }
  throw unreachable(`${to.host}:${to.port}`, (last as Error)?.message ?? "no answer", last);
}

async function dialOne(
  to: DialTarget,
  address: string,
  stop: AbortSignal,
  tls: ConnectionOptions | undefined,
): Promise<Socket> {
  // An address, so that the name is not resolved again.
  const socket = connectTcp({
    host: address,
    port: to.port,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: 30_000,
  });
  try {
    await event(socket, "connect", stop);
    if (!to.tls) return socket;
    const servername = isIP(to.host) === 0 ? to.host : "";
    const secure = connectTls({ ALPNProtocols: ["http/1.1"], ...tls, socket, servername, host: to.host });
    await event(secure, "secureConnect", stop);
    return secure;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function event(socket: Socket, name: string, stop: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: Error): void => {
      socket.off(name, onEvent);
      socket.off("error", done);
      socket.off("close", onClose);
      stop.removeEventListener("abort", onStop);
      if (error) reject(error);
      else resolve();
    };
    const onEvent = (): void => done();
    const onClose = (): void => done(new Error("the connection was closed"));
    const onStop = (): void => {
      // Errors of a socket that is given up are ignored.
      socket.on("error", () => {});
      socket.destroy();
      done(new Error("no connection in time"));
    };
    socket.once(name, onEvent);
    socket.once("error", done);
    socket.once("close", onClose);
    stop.addEventListener("abort", onStop, { once: true });
    if (stop.aborted) onStop();
  });
}

function aborted(stop: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    stop.addEventListener("abort", () => reject(new Error("the name was not resolved in time")), { once: true });
  });
}

function unreachable(what: string, why: string, cause?: unknown): Fault {
  return new Fault("Unavailable", `${what} cannot be reached: ${why}`, {
    extra: { delivered: false },
    ...(cause === undefined ? {} : { cause }),
  });
}

// HTTP over the dialer, for everything but MCP connections: OAuth, JWKS, webhooks, LLM providers.

/** undici's connections, made by the dialer. */
export function outboundConnector(dialer: Dialer): buildConnector.connector {
  return (options, callback) => {
    const tls = options.protocol === "https:";
    const port = options.port === "" || options.port === undefined ? (tls ? 443 : 80) : Number(options.port);
    dialer.connect({ host: options.hostname, port, tls }).then(
      (socket) => callback(null, socket),
      (error: Error) => callback(error, null),
    );
  };
}

const MAX_REDIRECTS = 5;

export interface Outbound {
  /** Like `fetch`; follows redirects within the origin and refuses to leave it. */
  fetch: typeof globalThis.fetch;
  close(): Promise<void>;
}

export function createOutbound(dialer: Dialer): Outbound {
  let loading: Promise<Loaded> | undefined;
  return {
    async fetch(input, init = {}) {
      loading ??= load(dialer);
      const { agent, once } = await loading;
      let url = new URL(input instanceof Request ? input.url : input);
      const request =
        input instanceof Request ? { method: input.method, headers: input.headers, body: input.body } : {};
      let settings: RequestInit = { ...request, ...init };
      for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        const response = await unwrapped(once(url, { ...settings, redirect: "manual", dispatcher: agent }));
        const location = response.headers.get("location");
        if (response.status < 300 || response.status >= 400 || location === null || init.redirect === "manual") {
          return response;
        }
        await response.body?.cancel();
        url = sameOrigin(url, location);
        settings = afterRedirect(settings, response.status);
      }
      throw new Fault("Unavailable", `${url.origin} redirects more than ${MAX_REDIRECTS} times`);
    },
    close: async () => (await loading)?.agent.destroy(),
  };
}

interface Loaded {
  readonly agent: Agent;
  readonly once: (url: URL, init: Omit<RequestInit, "dispatcher"> & { dispatcher: Agent }) => Promise<Response>;
}

/** On first use: much of a command line's start-up time, and most commands never call out. */
async function load(dialer: Dialer): Promise<Loaded> {
  const undici = await import("undici");
  const agent = new undici.Agent({ connect: outboundConnector(dialer), connections: 64, pipelining: 1 });
  return { agent, once: undici.fetch as unknown as Loaded["once"] };
}

/** Where a redirect leads, which must not be to another origin. */
export function sameOrigin(from: URL, location: string): URL {
  const to = URL.canParse(location, from.href) ? new URL(location, from.href) : undefined;
  if (to?.origin === from.origin) return to;
  throw new Fault("PolicyDeny", `${from.origin} redirects to ${to?.origin ?? "nowhere"}, which is not followed`, {
    rule: "outbound",
    suggestions: [`Configure the address that ${from.origin} redirects to`],
  });
}

/** As browsers do: all but 307 and 308 turn a POST into a GET. */
function afterRedirect(settings: RequestInit, status: number): RequestInit {
  if (status === 307 || status === 308 || settings.method === undefined) return settings;
  if (settings.method === "GET" || settings.method === "HEAD") return settings;
  const { body: _, ...rest } = settings;
  return { ...rest, method: "GET" };
}

/** fetch reports only "fetch failed"; the dialer's fault is its cause. */
async function unwrapped(response: Promise<Response>): Promise<Response> {
  try {
    return await response;
  } catch (error) {
    const cause = (error as Error).cause;
    throw cause instanceof Fault ? cause : error;
  }
}
