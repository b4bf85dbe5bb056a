// OAuth towards downstream servers: the gateway's own tokens, never its callers'. Nobody is there to log in, so what
// needs a person is said to whoever runs it.

import { type ClientIdentity, OAuthClient, OAuthError } from "../../auth/oauth-client/index.js";
import { Fault } from "../../mcp/index.js";
import type { Application, Sealer, ServerEntry, Storage } from "../../storage/index.js";
import { allowanceFor, createDialer, createOutbound, type Outbound } from "../../upstream/index.js";
import type { OAuthFor, ResolveText } from "../servers.js";
import { storedGrants } from "./grants.js";
import { clientIdentity } from "./identity.js";
import { shellWord } from "../../lib/print.js";

export interface DownstreamOAuthOptions {
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
    const made = createOutbound(createDialer({ allow: [...allow, ...named] }));
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
    // With a credential of its own, and nobody to stand for, the gateway needs no person.
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
  return new Fault("Unavailable", `server \`${server}\` wants an access token: ${why}`, {
    extra: { server, delivered: false },
    ...(error instanceof OAuthError && error.code === "OAUTH_LOGIN_NEEDED"
      ? { suggestions: [`Log in with: ${login}`] }
      : {}),
    cause: error,
  });
}
