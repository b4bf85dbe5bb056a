// Identifies callers of a gateway: by API key, by a token of an issuer that the operator trusts, on stdio as the user of the
// operating system. On loopback it is that user only while the store grants local access, which ends for good when the first
// key or issuer is configured.

import { readFileSync } from "node:fs";
import {
  ApiKeyCache,
  approverOf,
  consoleRolesOf,
  type Identify,
  keyIdentity,
  LOCAL_CREDENTIAL,
  localIdentity,
  noCredential,
  type OAuthSettings,
  openOAuthIdentity,
  readOAuthSettings,
} from "../auth/index.js";
import { placed, readYaml } from "../host/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { isLoopbackHost, storeUnavailable } from "../mcp/index.js";
import type { Peer } from "../mcp/transports/index.js";
import type { Principal } from "../policy/index.js";
import type { AccessState, Storage } from "../storage/index.js";
import { allowanceFor, createDialer, createOutbound } from "../upstream/index.js";
import { takeVariable } from "./environment.js";
import { clientDocumentRoute } from "./oauth/downstream.js";
import { registrarOf } from "./registrations.js";
import type { IdentityHere, IdentityParts } from "./start.js";

interface IdentityOptions {
  /** The application that local callers belong to. */
  readonly localApp: string;
  /** Only this machine can connect. */
  readonly isLoopback: boolean;
  /** Names that the gateway answers to, as `--allow-host` gives them. */
  readonly allowHost?: readonly string[];
  /** True and false switch local access on and off, and the store keeps it; undefined leaves it as it is. */
  readonly localAccess?: boolean;
  readonly oauth?: OAuthSettings;
  /** Private hosts and ranges that issuers may be at, besides their own addresses. */
  readonly allow?: readonly string[];
  /** Where the document is read that describes us as a client. */
  readonly publicUrl?: string;
}

export function keysOrLocal(options: IdentityOptions) {
  const { localApp, oauth, allow = [], publicUrl } = options;
  return async ({ storage, telemetry, onRevoked }: IdentityParts): Promise<IdentityHere> => {
    if (oauth) await storage.access.credentialConfigured("issuer", BY);
    const isLocalAccessOn = await applyLocalAccess(storage, options);
    const ring = await ApiKeyCache.open({
      storage,
      onRevoked,
      onProblem: (problem, error) => telemetry.log.warning(problem, { problem: String((error as Error)?.message) }),
    });
    const byKey = keyIdentity(ring);
    const local = localIdentity({ app: localApp });
    const access = isLocalAccessOn
      ? await LocalAccess.open({
          storage,
          app: localApp,
          onEnded: () => onRevoked(localApp, LOCAL_CREDENTIAL),
          isFresh: () => ring.isFresh,
        })
      : undefined;
    const others: Identify = (peer, auth, meta) => {
      if (peer.headers?.authorization !== undefined || auth !== undefined) return byKey(peer, auth, meta);
      if (peer.transport === "stdio") return local(peer);
      return access ? access.identify(peer) : byKey(peer);
    };
    // What the operator wrote down as an issuer may be at a private address.
    const outbound = oauth && createOutbound(createDialer({ allow: [...allow, ...issuerHosts(oauth)] }));
    const once = (id: string, ttlMs: number): Promise<boolean> => storage.once.first(`dpop:${id}`, ttlMs);
    const tokens =
      oauth && outbound && (await openOAuthIdentity({ settings: oauth, fetch: outbound.fetch, others, once }));
    const document = publicUrl === undefined ? undefined : clientDocumentRoute(publicUrl);
    return {
      isLocalAccessOn,
      identify: tokens?.identify ?? others,
      open: (request) => (tokens?.open(request) || document?.(request)) ?? false,
      approverFor: async (token) => {
        const credential = token === "" ? undefined : await ring.find(token);
        const approver = credential && approverOf(credential);
        return approver && { ...approver, roles: consoleRolesOf(credential), key: credential.key.id };
      },
      registrarFor: (token) => registrarOf(ring, token),
      close: async () => {
        await outbound?.close();
        access?.close();
        await ring.close();
      },
    };
  };
}

/** Stores what the operator asked for, and returns whether callers without a credential are served at all. */
async function applyLocalAccess(storage: Storage, options: IdentityOptions): Promise<boolean> {
  const exposure = exposureOf(options);
  if (options.localAccess === undefined) return exposure === undefined && isGranted(await storage.access.get());
  if (!options.localAccess) {
    await storage.access.setLocalAccess(false, BY);
    return false;
  }
  if (exposure !== undefined) {
    throw new CliError(`--local-access is refused: ${exposure}`, EXIT.usage, NEEDS_KEY);
  }
  if (isGranted(await storage.access.setLocalAccess(true, BY))) return true;
  const reason = "a key or an issuer was configured for this store, and callers need a credential from then on";
  throw new CliError(`--local-access is refused: ${reason}`, EXIT.usage, NEEDS_KEY);
}

/** On record for what `serve` itself changes. */
const BY = "portcullis serve";
const NEEDS_KEY = "remove --local-access and create a key for each caller: portcullis key add APP --name NAME";

/** Why callers may come from other machines, whatever their address looks like; undefined when they cannot. */
function exposureOf({ isLoopback, allowHost = [], publicUrl, oauth }: IdentityOptions): string | undefined {
  if (!isLoopback) return "the gateway does not listen on a loopback address";
  if (oauth) return "callers are identified by the issuers of --oauth";
  const name = allowHost.find((host) => !isLoopbackHost(host));
  if (name !== undefined) return `--allow-host names \`${name}\`, which is not a loopback name`;
  const isPublic = publicUrl !== undefined && !(URL.canParse(publicUrl) && isLoopbackHost(new URL(publicUrl).host));
  return isPublic ? "--public-url is not a loopback address" : undefined;
}

function issuerHosts({ issuers }: OAuthSettings): string[] {
  const addresses = issuers.flatMap(({ issuer, jwksUri }) => [issuer, jwksUri ?? issuer]);
  return addresses.filter((text) => URL.canParse(text)).map((text) => allowanceFor(new URL(text)));
}

interface LocalAccessOptions {
  readonly storage: Pick<Storage, "access" | "feed">;
  /** The application that local callers belong to. */
  readonly app: string;
  /** Called once, when it ends: what local callers still listen to has to end too. */
  readonly onEnded: () => void;
  /** False when the store has been unreachable for so long that the end may have been missed. */
  readonly isFresh: () => boolean;
}

/** `LocalAccess` identifies local callers until a key or an issuer is configured by any process. It never comes back. */
export class LocalAccess {
  readonly #options: LocalAccessOptions;
  readonly #local: Identify;
  #isOn = true;
  /** The state in the store has to be read before the next caller: changes may have been missed. */
  #mustRead = false;
  #stop: (() => void) | undefined;

  private constructor(options: LocalAccessOptions) {
    this.#options = options;
    this.#local = localIdentity({ app: options.app, credential: LOCAL_CREDENTIAL });
  }

  static async open(options: LocalAccessOptions): Promise<LocalAccess> {
    const access = new LocalAccess(options);
    access.#stop = await options.storage.feed.watch({
      change: ({ topic, action }) => {
        // Every key ends it, so nothing has to be read first.
        if (topic === "key" && action === "put") access.#end();
        if (topic === "access") access.#readSoon();
      },
      resync: () => access.#readSoon(),
    });
    // What was configured before the feed was watched.
    access.#mustRead = true;
    await access.#read();
    return access;
  }

  identify(peer: Peer): Principal | Promise<Principal> {
    const principal = this.#local(peer) as Principal;
    if (this.#isOn && !this.#options.isFresh()) throw storeUnavailable();
    if (this.#isOn && this.#mustRead) return this.#read().then(() => this.#granted(principal), unreadable);
    return this.#granted(principal);
  }

  close(): void {
    this.#stop?.();
  }

  #granted(principal: Principal): Principal {
    if (this.#isOn) return principal;
    throw noCredential();
  }

  #readSoon(): void {
    this.#mustRead = true;
    // A failed read is repeated by the next caller.
    this.#read().catch(() => {});
  }

  async #read(): Promise<void> {
    const state = await this.#options.storage.access.get();
    if (isGranted(state)) this.#mustRead = false;
    else this.#end();
  }

  #end(): void {
    if (!this.#isOn) return;
    this.#isOn = false;
    this.#options.onEnded();
  }
}

export function isGranted({ localAccess, hasCredentials }: AccessState): boolean {
  return localAccess && !hasCredentials;
}

function unreadable(error: unknown): never {
  throw storeUnavailable(error);
}

export function readOAuthFile(file: string, env?: NodeJS.ProcessEnv): OAuthSettings {
  let source: string;
  try {
    source = readFileSync(file, "utf8");
  } catch (error) {
    throw new CliError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`, EXIT.usage);
  }
  const yaml = readYaml(source, file);
  const read = yaml.problems.length > 0 ? undefined : readOAuthSettings(yaml.value ?? {});
  if (read?.ok) return withSecrets(read.settings, env);
  const problems = read ? read.problems.map((problem) => placed(problem, yaml.positions)) : yaml.problems;
  const lines = problems.map(
    ({ line, path, message }) => `${file}:${line}: ${path === "" ? "" : `${path} `}${message}`,
  );
  throw new CliError(lines.join("\n"), EXIT.usage, "docs/guides/oauth.md shows a whole file");
}

/** A secret never stands in the file itself. */
function withSecrets(settings: OAuthSettings, env: NodeJS.ProcessEnv | undefined): OAuthSettings {
  const issuers = settings.issuers.map((issuer) => {
    const { introspection } = issuer;
    if (!introspection) return issuer;
    const [, name = ""] = /^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$/.exec(introspection.clientSecret) ?? [];
    const clientSecret = (env === undefined ? takeVariable(name) : env[name]) ?? "";
    if (clientSecret !== "") return { ...issuer, introspection: { ...introspection, clientSecret } };
    throw new CliError(
      `introspection at ${issuer.issuer} has no client secret`,
      EXIT.usage,
      "write clientSecret: ${env:NAME} and set that variable",
    );
  });
  return { ...settings, issuers };
}
