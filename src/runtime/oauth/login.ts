// `portcullis app login`: a user logs in to a server that needs OAuth, for an application.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Command } from "commander";
import { type KeptGrant, memoryGrants, OAuthClient, OAuthError } from "../../auth/oauth-client/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { ServerAuth, Storage } from "../../storage/index.js";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { referenceResolver } from "../environment.js";
import { outFor } from "../options.js";
import { noApplication, type StoreOptions, sealerFor, withStore } from "../store/open.js";
import { addressesOf, clientIdentity, type GrantOf, storedGrants } from "./downstream.js";

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

/** Removal makes running gateways reconnect; a renewed token is only put and changes no connection. */
async function replace(storage: Storage, id: GrantOf, save: () => Promise<KeptGrant | undefined>): Promise<void> {
  await storage.tokens.remove(id);
  if (!(await save())) throw new CliError("another login finished at the same time", EXIT.error, "try again");
  if (!(await storage.tokens.remove(id)) || !(await save())) {
    throw new CliError("another login or logout finished at the same time", EXIT.error, "try again");
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

export interface Loopback {
  readonly redirectUri: string;
  /** The URL, with its query, that carried this state. Others get 404. */
  answer(state: string): Promise<string>;
  close(): void;
}

const PAGE = "<!doctype html><meta charset=utf-8><title>Portcullis</title><p>Done. You can close this window.";

async function listenForAnswer(port: number, timeoutMs: number): Promise<Loopback> {
  const waiting = new Map<string, (url: string) => void>();
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", redirectUri);
    const take = url.pathname === "/callback" ? waiting.get(url.searchParams.get("state") ?? "") : undefined;
    response.setHeader("cache-control", "no-store");
    response.setHeader("connection", "close");
    if (!take || request.method !== "GET") return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
    take(url.href);
  });
  server.maxConnections = 16;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const redirectUri = `http://127.0.0.1:${(server.address() as AddressInfo).port}/callback`;
  return {
    redirectUri,
    answer: (state) =>
      new Promise((resolve, reject) => {
        const late = new Error(`no login within ${Math.round(timeoutMs / 1_000)} s`);
        const timer = setTimeout(() => reject(late), timeoutMs);
        waiting.set(state, (url) => {
          clearTimeout(timer);
          waiting.delete(state);
          resolve(url);
        });
      }),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
