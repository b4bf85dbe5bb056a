// A real authorization server (oidc-provider) on loopback. Whoever comes to log in is `alice` and agrees to everything.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair } from "jose";
// @ts-expect-error: it comes without types
import Provider from "oidc-provider";

export interface AuthorizationServer {
  readonly issuer: string;
  /** What it was asked, as `POST /token`. */
  readonly asked: string[];
  /** Bodies of token requests. */
  readonly tokenRequests: URLSearchParams[];
  /** A token by client credentials, for this resource. */
  token(resource: string, scope: string, client?: string): Promise<string>;
  revoke(token: string): Promise<void>;
  close(): Promise<void>;
}

export const MACHINE = { id: "machine", secret: "machine-secret-for-tests" } as const;
const OTHER = { id: "other-machine", secret: "machine-secret-for-tests" } as const;

export interface AuthorizationServerOptions {
  readonly scopes: readonly string[];
  readonly accessTokenSeconds?: number;
  /** Clients known beforehand. */
  readonly clients?: readonly Record<string, unknown>[];
  readonly registration?: boolean;
  readonly metadataDocuments?: boolean;
}

export async function authorizationServer(options: AuthorizationServerOptions): Promise<AuthorizationServer> {
  const handler: { now: (req: IncomingMessage, res: ServerResponse) => void } = { now: (_, res) => res.end() };
  const asked: string[] = [];
  const tokenRequests: URLSearchParams[] = [];
  const http = createServer((req, res) => {
    asked.push(`${req.method} ${req.url?.split("?")[0]}`);
    if (req.url === "/token" && req.method === "POST") {
      req.on("data", (chunk: Buffer) => tokenRequests.push(new URLSearchParams(chunk.toString("utf8"))));
      req.pause();
      setImmediate(() => req.resume());
    }
    handler.now(req, res);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const issuer = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const machine = ({ id, secret }: { id: string; secret: string }) => ({
    client_id: id,
    client_secret: secret,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  });
  const seconds = options.accessTokenSeconds ?? 600;
  const log = console.warn;
  console.warn = () => {};
  const provider = new Provider(issuer, {
    clients: [machine(MACHINE), machine(OTHER), ...(options.clients ?? [])],
    jwks: { keys: [{ ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid: "of-provider" }] },
    scopes: ["openid", "offline_access", ...options.scopes],
    cookies: { keys: ["for tests"] },
    ttl: {
      AccessToken: seconds,
      ClientCredentials: seconds,
      RefreshToken: 3600,
      Grant: 3600,
      Session: 3600,
      Interaction: 600,
    },
    pkce: { required: () => true },
    issueRefreshToken: async () => true,
    rotateRefreshToken: true,
    findAccount: async (_: unknown, id: string) => ({ accountId: id, claims: async () => ({ sub: id }) }),
    interactions: { url: (_: unknown, interaction: { uid: string }) => `/interaction/${interaction.uid}` },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      registration: { enabled: options.registration ?? false },
      ...(options.metadataDocuments
        ? {
            clientIdMetadataDocument: {
              enabled: true,
              ack: "draft-01",
              allowFetch: async () => true,
              allowClient: async () => true,
            },
          }
        : {}),
      resourceIndicators: {
        enabled: true,
        useGrantedResource: async () => true,
        getResourceServerInfo: async (_: unknown, resource: string) => ({
          scope: options.scopes.join(" "),
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: seconds,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  console.warn = log;
  const callback = provider.callback();
  handler.now = (req, res) => {
    if (req.url?.startsWith("/interaction/")) void agree(provider, req, res, options.scopes);
    else callback(req, res);
  };
  const basic = ({ id, secret }: { id: string; secret: string }): string =>
    `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
  const post = (path: string, body: Record<string, string>, client: { id: string; secret: string } = MACHINE) =>
    fetch(`${issuer}${path}`, {
      method: "POST",
      headers: { authorization: basic(client) },
      body: new URLSearchParams(body),
    });
  return {
    issuer,
    asked,
    tokenRequests,
    token: async (resource, scope, client = MACHINE.id) => {
      const response = await post(
        "/token",
        { grant_type: "client_credentials", resource, scope },
        client === OTHER.id ? OTHER : MACHINE,
      );
      const { access_token: token } = (await response.json()) as { access_token: string };
      return token;
    },
    revoke: async (token) => void (await post("/token/revocation", { token })),
    close: () =>
      new Promise((resolve) => {
        http.close(() => resolve());
        http.closeAllConnections();
      }),
  };
}

/** Logs in and grants what is asked for, without a person. */
async function agree(
  // biome-ignore lint/suspicious/noExplicitAny: it comes without types
  provider: any,
  req: IncomingMessage,
  res: ServerResponse,
  scopes: readonly string[],
): Promise<void> {
  const { prompt, params, grantId, session } = await provider.interactionDetails(req, res);
  if (prompt.name === "login") {
    return provider.interactionFinished(req, res, { login: { accountId: "alice" } }, { mergeWithLastSubmission: true });
  }
  const grant =
    (grantId && (await provider.Grant.find(grantId))) ??
    new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(`openid offline_access ${params.scope ?? ""}`);
  const wanted = String(params.scope ?? "").split(" ");
  if (params.resource) {
    grant.addResourceScope(params.resource, scopes.filter((scope) => wanted.includes(scope)).join(" "));
  }
  const consent = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(req, res, consent, { mergeWithLastSubmission: true });
}
