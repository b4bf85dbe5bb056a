// OAuth client towards upstream servers: the gateway's own tokens, never its callers'. A login that is needed is an error
// with the command that starts it.

import { createPrivateKey } from "node:crypto";
import {
  type ClientIdentity,
  clientMetadata,
  type GrantStore,
  type KeptGrant,
  OAuthClient,
  OAuthError,
  type OAuthGrant,
  safeUrl,
} from "../../auth/oauth-client/index.js";
import { shellWord } from "../../lib/print.js";
import { Fault } from "../../mcp/index.js";
import type { HttpRequest } from "../../mcp/transports/index.js";
import type { Application, DownstreamToken, Sealer, ServerAuth, ServerEntry, Storage } from "../../storage/index.js";
import { allowanceFor, createDialer, createOutbound, type Outbound } from "../../upstream/index.js";
import type { OAuthFor, ResolveText } from "../servers.js";

interface DownstreamOAuthOptions {
  /** Private hosts that authorization servers may be at: a server's own word is not enough. */
  readonly allow: readonly string[];
  readonly publicUrl?: string | undefined;
}

interface Parts {
  readonly storage: Storage;
  readonly sealer: Sealer;
  readonly resolve: ResolveText;
}

/** Connections that are kept, one pool for each server's address and issuer: its users share it. */
const MAX_OUTBOUND = 1_000;

export function downstreamOAuth({ allow, publicUrl }: DownstreamOAuthOptions) {
  const outbound = new Map<string, Outbound>();
  const outboundFor = (named: readonly string[]): Outbound => {
    const key = named.join(" ");
    const known = outbound.get(key);
    if (known) return known;
    const made = createOutbound(createDialer({ allow: [...allow, ...named], ofServer: true }));
    if (outbound.size < MAX_OUTBOUND) outbound.set(key, made);
    return made;
  };
  return (parts: Parts): OAuthFor =>
    (application, server, entry, user = "") => {
      let client: OAuthClient | undefined;
      const made = async (): Promise<OAuthClient> => {
        try {
          client ??= await clientOf(parts, application, server, entry, user);
          return client;
        } catch (error) {
          throw explained(error, application.id, server, user);
        }
      };
      return {
        headers: (method, path) => client?.headers(method, path) ?? made().then((ready) => ready.headers(method, path)),
        refused: async (refusal) => {
          try {
            return await (await made()).refused(refusal);
          } catch (error) {
            throw explained(error, application.id, server, user);
          }
        },
      };
    };

  async function clientOf(
    { storage, sealer, resolve }: Parts,
    { id: app }: Application,
    server: string,
    entry: ServerEntry,
    user: string,
  ): Promise<OAuthClient> {
    const { auth } = entry;
    const url = new URL(await resolve(app, entry.url ?? ""));
    const identity = await clientIdentity(auth ?? { type: "oauth" }, (text) => resolve(app, text), publicUrl);
    const { fetch } = outboundFor(addressesOf(url, identity));
    // With a credential of its own, and not for a user, the gateway needs no login.
    const isMachine = (identity.clientSecret ?? identity.privateKey) !== undefined && auth?.per !== "user";
    return new OAuthClient({
      url,
      fetch,
      identity,
      store: storedGrants(storage, sealer, { app, server, user }),
      scopes: auth?.scopes,
      grant: isMachine ? "client_credentials" : "code",
      dpop: true,
    });
  }
}

/** What the operator wrote down may be at a private address, at that port; what a server's metadata names may not. */
export function addressesOf(url: URL, { issuer, tokenEndpoint }: ClientIdentity): string[] {
  const named = [issuer, tokenEndpoint].flatMap((text) => (text === undefined ? [] : [new URL(text)]));
  return [...new Set([url, ...named].map(allowanceFor))];
}

function explained(error: unknown, app: string, server: string, user: string): Fault {
  if (error instanceof Fault) return error;
  const why = (error as Error)?.message ?? String(error);
  const login = `portcullis app login ${app} ${server}${user === "" ? "" : ` --user ${shellWord(user)}`}`;
  return new Fault("Unavailable", `server \`${server}\` needs an access token: ${why}`, {
    extra: { server, delivered: false },
    ...(error instanceof OAuthError && error.code === "OAUTH_LOGIN_NEEDED"
      ? { suggestions: [`Log in with: ${login}`] }
      : {}),
    cause: error,
  });
}

const NAME = "Portcullis";
const DOCUMENT_PATH = "/oauth/client.json";
/** `app login` waits on this machine, on whichever port is free. */
const REDIRECTS = ["http://127.0.0.1/callback", "http://localhost/callback"];

function clientDocumentUrl(publicUrl: string): string {
  return new URL(DOCUMENT_PATH, publicUrl).href;
}

/** Serves the document; true when it answered. */
export function clientDocumentRoute(publicUrl: string): (request: HttpRequest) => boolean {
  const text = JSON.stringify({ client_id: clientDocumentUrl(publicUrl), ...clientMetadata(NAME, REDIRECTS) });
  return ({ method, path, reply }) => {
    if (path !== DOCUMENT_PATH || method !== "GET") return false;
    const headers = { "content-type": "application/json", "cache-control": "public, max-age=300" };
    reply.end(text, { status: 200, headers });
    return true;
  };
}

/** From a server's `auth`, with its references resolved. */
export async function clientIdentity(
  auth: ServerAuth,
  resolve: (text: string) => Promise<string>,
  publicUrl: string | undefined,
): Promise<ClientIdentity> {
  const text = (value: string | undefined) => (value === undefined ? undefined : resolve(value));
  const clientId = await text(auth.clientId);
  const issuer = await text(auth.issuer);
  const tokenEndpoint = await text(auth.tokenEndpoint);
  const privateKey = await text(auth.privateKey);
  // With a key there is no need for a secret that travels.
  const clientSecret = privateKey === undefined ? await text(auth.clientSecret) : undefined;
  return {
    name: NAME,
    ...(clientId === undefined ? {} : { clientId }),
    ...(clientSecret === undefined ? {} : { clientSecret }),
    ...(privateKey === undefined ? {} : { privateKey: signingKey(privateKey, auth.privateKeyId) }),
    ...(issuer === undefined ? {} : { issuer }),
    ...(tokenEndpoint === undefined ? {} : { tokenEndpoint: safeUrl(tokenEndpoint, "`tokenEndpoint`").href }),
    // A client id of this kind is an https address, or none.
    ...(publicUrl?.startsWith("https:") ? { metadataUrl: clientDocumentUrl(publicUrl) } : {}),
  };
}

const CURVES: Readonly<Record<string, string>> = { prime256v1: "ES256", secp384r1: "ES384", secp521r1: "ES512" };

/** PKCS #8 whatever form it came in, with the algorithm that its kind signs with. */
function signingKey(pem: string, keyId: string | undefined): NonNullable<ClientIdentity["privateKey"]> {
  const unusable = (): OAuthError =>
    new OAuthError("OAUTH_REGISTRATION", "`privateKey` is not a usable key: expected RSA, EC or Ed25519 in PEM");
  try {
    const key = createPrivateKey(pem);
    const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
    const algorithm =
      type === "rsa" ? "RS256" : type === "ed25519" ? "EdDSA" : CURVES[(type === "ec" && details?.namedCurve) || ""];
    if (algorithm === undefined) throw unusable();
    const text = key.export({ format: "pem", type: "pkcs8" }).toString();
    return { pem: text, algorithm, ...(keyId === undefined ? {} : { keyId }) };
  } catch {
    // What went wrong inside could quote the key.
    throw unusable();
  }
}

export interface GrantOf {
  readonly app: string;
  readonly server: string;
  /** "" for the application's own. */
  readonly user: string;
}

export function storedGrants(storage: Pick<Storage, "tokens">, sealer: Sealer, id: GrantOf): GrantStore {
  const as = { kind: "token" as const, app: id.app, name: `${id.server}/${id.user}` };
  const read = ({ sealed, version }: DownstreamToken): KeptGrant => ({
    grant: JSON.parse(sealer.open(as, sealed)) as OAuthGrant,
    version,
  });
  return {
    load: async () => {
      const stored = await storage.tokens.get(id);
      return stored && read(stored);
    },
    save: async (grant, version) => {
      const stored = await storage.tokens.put(id, sealer.seal(as, JSON.stringify(grant)), version);
      return stored && read(stored);
    },
  };
}
