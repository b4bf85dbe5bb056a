// Who calls a gateway of applications: the holder of a key, or of a token of an issuer that the operator trusts. On stdio
// it is the operating system's user. On loopback it is that user only while the store grants local access, which ends for
// good when the first key or issuer is configured.

import {
  approverOf,
  type Identify,
  keyIdentity,
  ApiKeyCache,
  localIdentity,
  type OAuthSettings,
  LOCAL_CREDENTIAL,
  openOAuthIdentity,
} from "../auth/index.js";
import { isLoopbackHost } from "../mcp/index.js";
import type { Storage } from "../storage/index.js";
import { allowanceFor, createDialer, createOutbound } from "../upstream/index.js";
import { CliError, EXIT } from "../lib/exit.js";
import { clientDocumentRoute } from "./oauth/identity.js";
import { isGranted, LocalAccess } from "./local-access.js";
import { registrarOf } from "./registrations.js";
import type { IdentityHere, IdentityParts } from "./start.js";

export interface IdentityOptions {
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
    if (oauth) await storage.access.issuerConfigured(BY);
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
        return credential && approverOf(credential);
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
