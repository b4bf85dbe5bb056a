// Tokens for one server: found out when it says 401, kept, renewed, and asked for anew when it wants more scope. A token
// goes to the server it is for and nowhere else.

import type { JsonObject } from "../../mcp/index.js";
import { authorizationRequest, type BearerChallenge, codeFrom, readChallenge } from "./authorization.js";
import { DPOP_ALGORITHM, newProofKey, nonceFrom, proveDpop } from "./dpop.js";
import { type Fetch, OAuthError, safeUrl } from "./json-fetch.js";
import { covers, type Discovered, discover } from "./metadata.js";
import { clientFor, requestToken, TokenDenied, type Tokens } from "./token-endpoint.js";
import type { ClientIdentity, GrantStore, KeptGrant, OAuthGrant, RegisteredClient } from "./types.js";

export interface OAuthClientOptions {
  /** The MCP server. */
  readonly url: URL;
  readonly fetch: Fetch;
  readonly identity: ClientIdentity;
  readonly store: GrantStore;
  /**
   * Request these; what the server asks for, unless given. A grant that needs no person requests nothing beyond them:
   * otherwise a server could obtain every scope that the client has at its issuer.
   */
  readonly scopes?: readonly string[] | undefined;
  /** `client_credentials` and `assertion` need no user; `code` needs a user, by `authorize`. */
  readonly grant: "code" | "client_credentials" | "assertion";
  /** An assertion about this client by a party that the issuer trusts (RFC 7523). Requested each time. */
  readonly assertion?: (to: { readonly issuer: string; readonly resource: string }) => Promise<string>;
  /** Bind tokens to a key where the server wants it. Every request then needs a proof: see `headers`. */
  readonly dpop?: boolean;
  readonly redirectUri?: string;
  /** Shows a person this address; resolves to the address that the answer came back to. */
  readonly authorize?: (url: URL) => Promise<string | URL>;
  readonly now?: () => number;
}

export interface Refusal {
  readonly status: number;
  readonly wwwAuthenticate: string | undefined;
  /** The `authorization` that was refused, where the caller knows it. */
  readonly sent?: string | undefined;
  /** `DPoP-Nonce` of the answer. */
  readonly dpopNonce?: string | undefined;
}

/** A token that ends sooner than this is renewed first. */
const LEEWAY_MS = 30_000;
/** How long one of several replicas may take to renew; then another tries. */
const RENEWING_MS = 20_000;
const POLL_MS = 100;
const JUST_NOW_MS = 500;
const JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const OVER = new Set(["invalid_grant", "unauthorized_client", "unsupported_grant_type"]);
const NO_HEADERS: Readonly<Record<string, string>> = {};

export class OAuthClient {
  readonly #options: OAuthClientOptions;
  readonly #now: () => number;
  #kept: KeptGrant | undefined;
  #headers: Readonly<Record<string, string>> = NO_HEADERS;
  #loaded = false;
  /** The last one the server gave for proofs. */
  #nonce: string | undefined;
  #renewedAt = Number.NEGATIVE_INFINITY;
  /** One refresh at a time: concurrent callers wait for the same one. */
  #working: Promise<boolean> | undefined;

  constructor(options: OAuthClientOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    safeUrl(options.url.href, "the server");
    checkIdentity(options.identity);
  }

  /** For one request of this method: at the server's own address, or at another path there. */
  headers(
    method = "POST",
    path?: string,
  ): Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>> {
    const isReady = this.#loaded && !this.#endsSoon(this.#kept?.grant);
    if (isReady && this.#kept?.grant.proofKey === undefined) return this.#headers;
    return isReady ? this.#proved(method, path) : this.#refreshedHeaders().then(() => this.#proved(method, path));
  }

  /** A proof is good for this request and no other. */
  async #proved(method: string, path: string | undefined): Promise<Readonly<Record<string, string>>> {
    const { proofKey, accessToken: token } = this.#kept?.grant ?? {};
    if (proofKey === undefined || token === undefined) return this.#headers;
    const headers = this.#headers;
    const url = path === undefined ? this.#options.url : new URL(this.#options.url.origin + path);
    return { ...headers, dpop: await proveDpop(proofKey, { method, url, token, nonce: this.#nonce }) };
  }

  /** True when the request should be made again, with other headers. */
  refused(refusal: Refusal): Promise<boolean> {
    const challenge = readChallenge(refusal.wwwAuthenticate);
    const nonce = nonceFrom(refusal.dpopNonce);
    if (challenge.error === "use_dpop_nonce" && this.#kept?.grant.proofKey && nonce !== undefined) {
      const isNew = nonce !== this.#nonce;
      this.#nonce = nonce;
      return Promise.resolve(isNew);
    }
    // The token is as good as before, it takes another proof. (How often, the caller decides.)
    if (challenge.error === "invalid_dpop_proof" && this.#kept?.grant.proofKey) return Promise.resolve(true);
    if (refusal.status === 403 && challenge.error !== "insufficient_scope") return Promise.resolve(false);
    // The request was on its way while another one got a new token: that one is to be tried first.
    const isOld =
      refusal.sent === undefined
        ? this.#now() - this.#renewedAt < JUST_NOW_MS
        : this.#headers.authorization !== undefined && refusal.sent !== this.#headers.authorization;
    if (isOld && !this.#working) return Promise.resolve(true);
    const sent = this.#kept?.grant.accessToken;
    return this.#alone(() => this.#renew(challenge, refusal.status === 403, sent));
  }

  /** A token from the beginning: for a person who is here now. */
  async login(): Promise<OAuthGrant> {
    await this.#reload();
    const found = await this.#discover({});
    // The server's requirements are not known yet and a login lasts: the token is bound where possible.
    await this.#acquire(found, found.bound === undefined ? {} : { isDpop: true });
    return (this.#kept as KeptGrant).grant;
  }

  #discover(challenge: BearerChallenge): Promise<Discovered> {
    const { fetch, url, identity } = this.#options;
    return discover(fetch, url, challenge, identity.issuer);
  }

  #alone(work: () => Promise<boolean>): Promise<boolean> {
    this.#working ??= work().finally(() => {
      this.#working = undefined;
    });
    return this.#working;
  }

  async #refreshedHeaders(): Promise<void> {
    if (this.#working) await this.#working.catch(() => false);
    if (!this.#loaded) await this.#reload();
    const { grant } = this.#kept ?? {};
    if (grant && this.#endsSoon(grant) && grant.refreshToken !== undefined) {
      // When it fails the old token may still do; the server's answer then says what is to be done.
      await this.#alone(() => this.#refresh({})).catch(() => false);
    }
  }

  async #renew(challenge: BearerChallenge, needsMore: boolean, sent: string | undefined): Promise<boolean> {
    await this.#reload();
    const grant = this.#kept?.grant;
    // Another replica was quicker.
    if (grant?.accessToken !== undefined && grant.accessToken !== sent) return true;
    // A grant that is not bound to a key brings no token that is.
    const isWanting = this.#options.dpop && challenge.isDpop && grant?.proofKey === undefined;
    const canRefresh = !needsMore && !isWanting && grant?.refreshToken !== undefined;
    if (canRefresh && (await this.#refresh(challenge))) return true;
    const found = await this.#discover(challenge);
    const before = grant?.issuer === found.server.issuer ? grant : undefined;
    const isMore = this.#scopesFor(found, challenge, before).some((scope) => !grant?.requested.includes(scope));
    // A repeated request for the same scopes would get the same answer, without end.
    if (needsMore && !isMore && before) return false;
    await this.#acquire(found, challenge);
    return true;
  }

  /** False when a new token has to be had in another way. Of several replicas one refreshes. */
  async #refresh(challenge: BearerChallenge): Promise<boolean> {
    for (let tries = 0; tries < RENEWING_MS / POLL_MS; tries++) {
      const kept = this.#kept;
      if (kept?.grant.refreshToken === undefined) return false;
      if ((kept.grant.renewingUntil ?? 0) <= this.#now()) {
        const claimed = await this.#options.store.save(
          { ...kept.grant, renewingUntil: this.#now() + RENEWING_MS },
          kept.version,
        );
        if (claimed) return this.#refreshAs(claimed, challenge);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      await this.#reload();
      const { grant } = this.#kept ?? {};
      if (grant?.accessToken !== undefined && grant.accessToken !== kept.grant.accessToken) return true;
    }
    return false;
  }

  async #refreshAs(claimed: KeptGrant, challenge: BearerChallenge): Promise<boolean> {
    const { fetch, identity } = this.#options;
    const { renewingUntil: _, ...grant } = claimed.grant;
    try {
      const { server, resource } = await this.#discover(challenge);
      // What one issuer gave is shown to no other.
      if (server.issuer !== grant.issuer) {
        await this.#keep({ ...without(grant), requested: [] }, claimed.version);
        return false;
      }
      const isConfigured = identity.clientId !== undefined;
      const client = isConfigured ? await clientFor(fetch, server, identity, undefined) : grant.client;
      const to = { fetch, server, client, identity, now: this.#now(), proofKey: grant.proofKey };
      const fields = { grant_type: "refresh_token", refresh_token: grant.refreshToken as string, resource };
      const tokens = await requestToken(to, fields);
      await this.#keep({ ...without(grant), client, ...fresh(tokens, grant.refreshToken) }, claimed.version);
      return true;
    } catch (error) {
      const left = afterDenial(grant, error);
      await this.#keep(left ?? grant, claimed.version);
      if (left) return false;
      throw error;
    }
  }

  async #acquire(found: Discovered, challenge: BearerChallenge): Promise<void> {
    const { server, resource } = found;
    const before = this.#kept?.grant.issuer === server.issuer ? this.#kept.grant : undefined;
    const scopes = this.#scopesFor(found, challenge, before);
    this.#assertPossible(found, scopes);
    const client = await this.#client(found, before);
    const isWanted = challenge.isDpop || found.bound === "required";
    const isBound = this.#options.dpop && isWanted && server.dpopAlgorithms?.includes(DPOP_ALGORITHM);
    const proofKey = isBound ? (before?.proofKey ?? (await newProofKey())) : undefined;
    const tokens = await this.#tokens(found, client, scopes, proofKey);
    await this.#keep(
      {
        issuer: server.issuer,
        resource,
        client,
        requested: scopes,
        ...(proofKey ? { proofKey } : {}),
        ...fresh(tokens, undefined),
      },
      this.#kept?.version ?? 0,
    );
  }

  /** Before anything is registered for a login that cannot be. */
  #assertPossible({ server, isDescribed }: Discovered, scopes: readonly string[]): void {
    const { grant, authorize } = this.#options;
    if (grant !== "code") return;
    if (!authorize) {
      const what = scopes.length > 0 ? ` for ${scopes.join(" ")}` : "";
      throw new OAuthError("OAUTH_LOGIN_NEEDED", `login required at ${server.issuer}${what}`);
    }
    if (isDescribed && !server.challengeMethods?.includes("S256")) {
      throw new OAuthError("OAUTH_METADATA", `${server.issuer} does not say that it checks PKCE with S256`);
    }
    // Otherwise an issuer that a server chose could send the person to another one, and receive the code of that one.
    const { authorizationEndpoint: endpoint, issuer, namesIssuer } = server;
    const isConfigured = this.#options.identity.issuer !== undefined;
    if (endpoint && !isConfigured && !namesIssuer && endpoint.origin !== new URL(issuer).origin) {
      const problem = `${issuer} has its authorization endpoint at ${endpoint.origin} and does not name itself in its answers (RFC 9207)`;
      throw new OAuthError("OAUTH_METADATA", `${problem}: if that is right, set \`issuer\` to ${issuer}`);
    }
  }

  async #client({ server }: Discovered, before: OAuthGrant | undefined): Promise<RegisteredClient> {
    const { fetch, identity, redirectUri } = this.#options;
    const known = before?.client;
    // A configured client is read from the configuration each time: its secret may have been replaced, also by a key.
    const isRegistered = identity.clientId === undefined && known !== undefined;
    if (isRegistered && (known.redirectUri === undefined || known.redirectUri === redirectUri)) return known;
    return clientFor(fetch, server, identity, redirectUri);
  }

  async #tokens(
    found: Discovered,
    client: RegisteredClient,
    scopes: readonly string[],
    proofKey: JsonObject | undefined,
  ): Promise<Tokens> {
    const { fetch, identity, grant, authorize, redirectUri, assertion } = this.#options;
    const { server, resource } = found;
    const to = { fetch, server, client, identity, now: this.#now(), proofKey };
    const scope: Record<string, string> = scopes.length > 0 ? { scope: scopes.join(" ") } : {};
    if (grant === "client_credentials") {
      return requestToken(to, { grant_type: "client_credentials", resource, ...scope });
    }
    if (grant === "assertion") {
      if (!assertion) throw new TypeError("this grant needs `assertion`");
      const word = await assertion({ issuer: server.issuer, resource });
      return requestToken(to, { grant_type: JWT_BEARER, assertion: word, resource, ...scope });
    }
    if (!authorize || redirectUri === undefined) throw new TypeError("`authorize` needs `redirectUri`");
    const request = authorizationRequest(server, { clientId: client.id, redirectUri, resource, scopes });
    const answer = new URL(await authorize(request.url));
    const code = codeFrom(answer.searchParams, request.state, server);
    return requestToken(
      { ...to, now: this.#now() },
      { grant_type: "authorization_code", code, redirect_uri: redirectUri, code_verifier: request.verifier, resource },
    );
  }

  /** The scopes wanted now together with those requested before; undefined when no scopes are known. */
  #scopesFor({ scopes, server }: Discovered, challenge: BearerChallenge, before: OAuthGrant | undefined): string[] {
    const { scopes: configured, grant } = this.#options;
    if (configured !== undefined && grant !== "code") return [...configured];
    const wanted = challenge.scope === undefined ? (configured ?? scopes ?? []) : scopesIn(challenge);
    const all = new Set([...(before?.requested ?? []), ...(configured ?? []), ...wanted]);
    const takesOffline = grant === "code" && server.scopesSupported?.includes("offline_access");
    if (takesOffline && all.size > 0) all.add("offline_access");
    return [...all];
  }

  async #reload(): Promise<void> {
    this.#take(await this.#options.store.load());
  }

  async #keep(grant: OAuthGrant, version: number): Promise<void> {
    const kept = await this.#options.store.save(grant, version);
    if (kept) this.#take(kept);
    // Another process stored a grant meanwhile; that one is in force.
    else await this.#reload();
  }

  #take(stored: KeptGrant | undefined): void {
    // A grant for another address, from before the address changed, is not usable and is never sent.
    const isOurs = stored === undefined || covers(stored.grant.resource, this.#options.url);
    const kept = isOurs
      ? stored
      : { version: stored.version, grant: { ...without(stored.grant), issuer: "", requested: [] } };
    this.#kept = kept;
    this.#loaded = true;
    const token = kept?.grant.accessToken;
    const authorization = `${kept?.grant.proofKey ? "DPoP" : "Bearer"} ${token}`;
    if (token !== undefined && this.#headers.authorization !== authorization) this.#renewedAt = this.#now();
    this.#headers = token === undefined ? NO_HEADERS : { authorization };
  }

  #endsSoon(grant: OAuthGrant | undefined): boolean {
    return grant?.expiresAt !== undefined && grant.expiresAt - this.#now() < LEEWAY_MS;
  }
}

/** INVARIANT: a client that was registered beforehand has an issuer, so that a server's metadata cannot choose who receives its credentials. */
function checkIdentity({ clientId, clientSecret, privateKey, issuer }: ClientIdentity): void {
  if (issuer !== undefined) {
    safeUrl(issuer, "`issuer`");
    return;
  }
  if ((clientId ?? clientSecret ?? privateKey) === undefined) return;
  throw new OAuthError(
    "OAUTH_REGISTRATION",
    "`issuer` is missing: name the authorization server that the client is registered with, such as https://login.example; its credentials are sent to no other",
  );
}

function scopesIn({ scope = "" }: BearerChallenge): string[] {
  return scope.split(" ").filter((each) => each !== "");
}

function without(grant: OAuthGrant): OAuthGrant {
  const { accessToken: _a, refreshToken: _r, expiresAt: _e, ...rest } = grant;
  return rest;
}

/** What is left of a grant whose refresh token is over; undefined when it may do another time. */
function afterDenial(grant: OAuthGrant, error: unknown): OAuthGrant | undefined {
  if (!(error instanceof TokenDenied)) return undefined;
  // The issuer does not know us any more, so there is nothing to go on with.
  if (error.error === "invalid_client") return { ...without(grant), issuer: "" };
  return OVER.has(error.error) ? without(grant) : undefined;
}

/** An answer without a refresh token leaves the old one in force. */
function fresh(tokens: Tokens, refreshToken: string | undefined): Partial<OAuthGrant> {
  return { ...(refreshToken === undefined ? {} : { refreshToken }), ...tokens };
}
