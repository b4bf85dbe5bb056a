import type { EnterpriseIdentity, Fetch, GrantStore } from "../../auth/oauth-client/index.js";
import {
  type ClientTransport,
  type HttpCredentials,
  httpClient,
  listenMemory,
  type MemoryListener,
  type StdioClientOptions,
  stdioClient,
  type TransportHandler,
  tcpClient,
  webSocketClient,
} from "../transports/index.js";
import { Client } from "./client.js";
import { errorOf } from "./errors.js";
import { type ConnectOptions, DEFAULT_CLIENT_LIMITS } from "./options.js";

/** Connects and agrees on a revision. The client that comes back is ready for calls; close it when done. */
export async function connect(target: ConnectTarget, options: ConnectOptions = {}): Promise<Client> {
  const { transport, name } = await dial(target, options);
  const client = new Client(transport, { server: name, ...options });
  await client.open();
  return client;
}

/** A server that lives in this process: what stands behind a listening transport, or a listener in memory. */
export type InProcessTarget = TransportHandler | { readonly handler: TransportHandler } | MemoryListener;

/** `http(s)://…`, `ws(s)://…`, `tcp://host:port`, a command to start, a server in this process, or any transport. */
export type ConnectTarget = string | URL | Omit<StdioClientOptions, "limits"> | InProcessTarget | ClientTransport;

interface Dialed {
  transport: ClientTransport;
  /** How policies name the server when the caller gives it no name. */
  name: string;
}

async function dial(target: ConnectTarget, options: ConnectOptions): Promise<Dialed> {
  if (typeof target === "string" || target instanceof URL) return dialUrl(asUrl(target), options);
  if ("start" in target) return { transport: target, name: target.kind };
  if ("command" in target) {
    return { transport: stdioClient({ ...target, limits: wireLimits(options) }), name: target.command };
  }
  if ("client" in target) return { transport: target.client(wireLimits(options)), name: "memory" };
  return { transport: await inProcess("handler" in target ? target.handler : target, options), name: "memory" };
}

function asUrl(target: string | URL): URL {
  if (typeof target !== "string") return target;
  if (!URL.canParse(target)) {
    throw new TypeError(
      `\`${target}\` is not an address; write http://…, ws://…, tcp://host:port, or give { command }`,
    );
  }
  return new URL(target);
}

async function dialUrl(url: URL, options: ConnectOptions): Promise<Dialed> {
  // Without what may be secret in it: the name goes into records.
  const name = `${url.protocol}//${url.host}${url.pathname}`;
  const limits = wireLimits(options);
  switch (url.protocol) {
    case "http:":
    case "https:": {
      const { maxInFlight, maxListens, maxInputs } = { ...DEFAULT_CLIENT_LIMITS, ...options.limits };
      // Every stream holds a connection, and answers and cancellations need some as well.
      const connections = maxInFlight + maxListens + maxInputs;
      const credentials = options.auth && (await oauthCredentials(url, options.auth));
      return { transport: httpClient({ url, limits, connections, ...(credentials ? { credentials } : {}) }), name };
    }
    case "ws:":
    case "wss:": {
      const { headers = {} } = options;
      const given = typeof headers === "function" ? await headers() : headers;
      return { transport: webSocketClient({ url, limits, headers: given }), name };
    }
    case "tcp:":
      return {
        transport: tcpClient({ host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port), limits }),
        name,
      };
    default:
      throw new TypeError(`\`${url.protocol}\` is not a transport; use http, https, ws, wss or tcp`);
  }
}

async function inProcess(handler: TransportHandler, options: ConnectOptions): Promise<ClientTransport> {
  const listener = await listenMemory(handler, { limits: wireLimits(options) });
  const transport = listener.client(wireLimits(options));
  return {
    kind: transport.kind,
    start: (events) => transport.start(events),
    send: (text, how) => transport.send(text, how),
    close: async () => {
      await transport.close();
      await listener.close(0);
    },
  };
}

function wireLimits(options: ConnectOptions): { maxMessageBytes?: number } {
  const maxMessageBytes = options.limits?.maxMessageBytes;
  return maxMessageBytes === undefined ? {} : { maxMessageBytes };
}

interface Vouched {
  readonly issuer: string;
  readonly resource: string;
}

export interface OAuthOptions {
  /** A client registered beforehand, with its `issuer`; without one the server is asked to take `clientMetadataUrl`, or to register us. */
  clientId?: string;
  clientSecret?: string;
  /** Proves who we are instead of a secret. PKCS #8 in PEM, with the algorithm to sign with. */
  privateKey?: { pem: string; algorithm: string };
  /** The issuer that the client is registered with: required beside `clientId`, whose credentials are sent to no other. */
  issuer?: string;
  /** The issuer's token endpoint, where that is at another origin than the issuer itself. */
  tokenEndpoint?: string;
  /** Where a document describes this client (its client id, at servers that read such documents). */
  clientMetadataUrl?: string;
  /** Shown to people who log in. */
  clientName?: string;
  /** `client_credentials` and `assertion` need no login; `code`, the default, needs `authorize` and `redirectUri`. */
  grant?: "code" | "client_credentials" | "assertion";
  /**
   * For `assertion`: a signed statement of a party that the issuer trusts about who we are, such as a workload's identity.
   * For people whom their employer's identity provider vouches for, `enterprise` gets it.
   */
  assertion?: (to: Vouched) => Promise<string>;
  enterprise?: EnterpriseIdentity;
  redirectUri?: string;
  /** Shows a person this address; resolves to the address, with its query, that the answer came back to. */
  authorize?: (url: URL) => Promise<string | URL>;
  scopes?: readonly string[];
  /** Where tokens are kept; in memory unless given. What is kept is secret. */
  store?: GrantStore;
}

/** Loaded on first use: most connections need none of it. */
async function oauthCredentials(url: URL, options: OAuthOptions): Promise<HttpCredentials> {
  const { exchangeIdToken, memoryGrants, OAuthClient } = await import("../../auth/oauth-client/index.js");
  const { clientMetadataUrl, clientName, redirectUri, authorize, enterprise, scopes, store, grant, ...rest } = options;
  // Secrets and codes go to the address they are for and to no other.
  const straight: Fetch = (to, init) => fetch(to, { redirect: "error", ...init });
  const vouched = enterprise && ((to: Vouched) => exchangeIdToken(straight, enterprise, to));
  const { assertion = vouched, ...identity } = rest;
  const client = new OAuthClient({
    url,
    fetch: straight,
    identity: {
      ...identity,
      ...(clientMetadataUrl === undefined ? {} : { metadataUrl: clientMetadataUrl }),
      ...(clientName === undefined ? {} : { name: clientName }),
    },
    store: store ?? memoryGrants(),
    scopes,
    grant: grant ?? "code",
    ...(redirectUri === undefined ? {} : { redirectUri }),
    ...(authorize === undefined ? {} : { authorize }),
    ...(assertion === undefined ? {} : { assertion }),
    dpop: true,
  });
  return {
    headers: (method) => client.headers(method),
    refused: (refusal) =>
      client.refused(refusal).catch((error: Error) => {
        const why = `no access token for ${url.origin}: ${error.message}`;
        throw errorOf("AuthenticationError", why, { status: refusal.status, cause: error });
      }),
  };
}
