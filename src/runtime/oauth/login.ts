// `portcullis app login`: a person lets an application use a server that wants OAuth.

import type { Command } from "commander";
import { type KeptGrant, memoryGrants, OAuthClient, OAuthError } from "../../auth/oauth-client/index.js";
import type { ServerAuth, Storage } from "../../storage/index.js";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { referenceResolver } from "../references.js";
import { outFor } from "../options.js";
import { noApplication, sealerFor, type StoreOptions, withStore } from "../store/open.js";
import { type GrantOf, storedGrants } from "./grants.js";
import { addressesOf } from "./downstream.js";
import { clientIdentity } from "./identity.js";
import { listenForAnswer } from "./loopback.js";

export interface LoginOptions extends StoreOptions {
  user?: string;
  scope?: string[];
  port: number;
  timeout: number;
  publicUrl?: string;
  allowPrivate?: string[];
}

export async function login(command: Command, app: string, server: string, options: LoginOptions): Promise<void> {
  const out = outFor(command);
  await withStore(command, options, async (storage) => {
    const sealer = await sealerFor(storage, command, options);
    const { auth, url: address } = await serverOf(storage, app, server);
    const resolve = referenceResolver(storage, sealer);
    const url = new URL(await resolve(app, address));
    const identity = await clientIdentity(auth, (text) => resolve(app, text), options.publicUrl).catch(refused);
    const allow = [...(options.allowPrivate ?? []), ...addressesOf(url, identity)];
    const outbound = createOutbound(createDialer({ allow }));
    const loopback = await listenForAnswer(options.port, options.timeout * 1_000);
    const id = { app, server, user: options.user ?? "" };
    const store = storedGrants(storage, sealer, id);
    const client = new OAuthClient({
      url,
      fetch: outbound.fetch,
      identity,
      store: memoryGrants(await store.load()),
      scopes: options.scope ?? auth.scopes,
      grant: "code",
      dpop: true,
      redirectUri: loopback.redirectUri,
      authorize: (to) => {
        process.stderr.write(`Open this address in a browser on this machine and log in:\n\n  ${to.href}\n\n`);
        return loopback.answer(to.searchParams.get("state") ?? "");
      },
    });
    try {
      const grant = await client.login();
      await replace(storage, id, () => store.save(grant, 0));
      const { issuer, requested, refreshToken, expiresAt } = grant;
      const facts = {
        app,
        server,
        user: options.user ?? null,
        issuer,
        scopes: requested,
        renews: refreshToken !== undefined,
      };
      const ends = expiresAt === undefined ? "" : ` until ${new Date(expiresAt).toISOString()}`;
      out.data(facts, () => `${app} may use ${server}${facts.renews ? ", renewed by itself" : ends}`);
    } catch (error) {
      refused(error);
    } finally {
      loopback.close();
      await outbound.close();
    }
  });
}

/** Gateways hear of a removal and connect anew; a renewed token, which is only put, disturbs nobody. */
async function replace(storage: Storage, id: GrantOf, save: () => Promise<KeptGrant | undefined>): Promise<void> {
  await storage.tokens.remove(id);
  if (!(await save())) throw new CliError("somebody else logged in at the same time", EXIT.error, "try again");
  if (!(await storage.tokens.remove(id)) || !(await save())) {
    throw new CliError("somebody else logged in or out at the same time", EXIT.error, "try again");
  }
}

export async function logout(command: Command, app: string, server: string, options: LoginOptions): Promise<void> {
  await withStore(command, options, async (storage) => {
    await serverOf(storage, app, server);
    const removed = await storage.tokens.remove({ app, server, user: options.user ?? "" });
    outFor(command).data({ removed }, () => (removed ? "the token is gone from here" : "there was none"));
  });
}

async function serverOf(storage: Storage, app: string, server: string): Promise<{ auth: ServerAuth; url: string }> {
  const application = await storage.applications.get(app);
  if (!application) throw noApplication(app);
  const entry = application.document.servers?.[server];
  if (!entry) throw new CliError(`${app} has no server \`${server}\``, EXIT.error, `portcullis app show ${app}`);
  if (entry.auth?.type === "oauth" && entry.url !== undefined) return { auth: entry.auth, url: entry.url };
  const remedy = `portcullis app set ${app} servers.${server}.auth '{"type":"oauth"}'`;
  throw new CliError(`\`${server}\` does not use OAuth`, EXIT.error, remedy);
}

function refused(error: unknown): never {
  throw error instanceof OAuthError ? new CliError(error.message, EXIT.auth) : error;
}
