// OAuth towards downstream servers: the gateway's own tokens, never its callers'. Nobody is there to log in, so what
// needs a person is said to whoever runs it.

import { OAuthClient, OAuthError } from "../../oauth/index.js";
import { Fault } from "../../protocol/index.js";
import type { Application, Sealer, ServerEntry, Storage } from "../../storage/index.js";
import { createDialer, createOutbound, type Outbound } from "../../upstream/index.js";
import type { OAuthFor, ResolveText } from "../gateway/servers.js";
import { storedGrants } from "./grants.js";
import { clientIdentity } from "./identity.js";

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

/** Ways out that are kept, one for each server's host: its users share it. */
const MAX_OUTBOUND = 1_000;

export function downstreamOAuth({ allow, publicUrl }: DownstreamOAuthOptions) {
  const outbound = new Map<string, Outbound>();
  const outboundFor = (host: string): Outbound => {
    const known = outbound.get(host);
    if (known) return known;
    const made = createOutbound(createDialer({ allow: [...allow, host] }));
    if (outbound.size < MAX_OUTBOUND) outbound.set(host, made);
    return made;
  };
  return (parts: Parts): OAuthFor =>
    (application, server, entry, user = "") => {
      let client: OAuthClient | undefined;
      const made = async (): Promise<OAuthClient> => {
        client ??= await clientOf(parts, application, server, entry, user);
        return client;
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
    const clientSecret = auth?.clientSecret === undefined ? undefined : await resolve(app, auth.clientSecret);
    const clientId = auth?.clientId === undefined ? undefined : await resolve(app, auth.clientId);
    const { fetch } = outboundFor(url.hostname.replace(/^\[|\]$/g, ""));
    // With a secret of its own, and nobody to stand for, the gateway needs no person.
    const isMachine = clientSecret !== undefined && auth?.per !== "user";
    return new OAuthClient({
      url,
      fetch,
      identity: clientIdentity({ clientId, clientSecret }, publicUrl),
      store: storedGrants(storage, sealer, { app, server, user }),
      scopes: auth?.scopes,
      grant: isMachine ? "client_credentials" : "code",
      dpop: true,
    });
  }
}

function explained(error: unknown, app: string, server: string, user: string): Fault {
  if (error instanceof Fault) return error;
  const why = (error as Error)?.message ?? String(error);
  const login = `portcullis app login ${app} ${server}${user === "" ? "" : ` --user ${quoted(user)}`}`;
  return new Fault("Unavailable", `server \`${server}\` wants an access token: ${why}`, {
    extra: { server, delivered: false },
    ...(error instanceof OAuthError && error.code === "OAUTH_LOGIN_NEEDED"
      ? { suggestions: [`Log in with: ${login}`] }
      : {}),
    cause: error,
  });
}

/** As a shell takes it. */
function quoted(text: string): string {
  return /^[\w.@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
