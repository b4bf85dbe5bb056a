// A gateway of many applications, wired together: store, ledger, rules, identity, connections, doors.

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { type AdminListener, startAdmin, startWebhook } from "../../admin/index.js";
import { noPolicy, type PolicySet, type PolicyWatcher, StoredApprovals, watchPolicy } from "../../gate/index.js";
import {
  Applications,
  createGateway,
  DEFAULT_GATEWAY_LIMITS,
  type GatewayLimits,
  type HouseServices,
  Lobby,
  type LobbyOptions,
  PolicyBook,
  Post,
  Seal,
  sharedLimits,
  storedSessions,
} from "../../gateway/index.js";
import type { Identify } from "../../identity/index.js";
import { type Ledger, openLedger } from "../../ledger/index.js";
import { createSealer, loadSealKeys, openStorage, type Sealer, type Storage, type Topic } from "../../storage/index.js";
import { createTelemetry, type Telemetry, type TelemetryOptions } from "../../telemetry/index.js";
import { defineServer } from "../../tool/index.js";
import { type Listener, listenHttp, listenTcp, listenWebSocket } from "../../transport/index.js";
import { createDialer, createOutbound } from "../../upstream/index.js";
import { watchLedger } from "../ledger-watch.js";
import { ensureState, type State } from "../state.js";
import { VERSION } from "../version.js";
import type { WorkflowInForce } from "../workflow/serving.js";
import { announceAdmin } from "./admin-places.js";
import { coreFor } from "./core.js";
import { openFreeLedger } from "./free-ledger.js";
import { pinKeeper } from "./pins.js";
import { referenceResolver } from "./references.js";
import { replicaName } from "./replica-name.js";
import { serverFacts, serverFamilies } from "./server-facts.js";
import { connector, type OAuthFor, type ResolveText } from "./servers.js";

export interface GatewayRuntimeOptions {
  stateDir: string;
  /** `sqlite:path` or `postgres://…`; a file in the working folder unless given. */
  storage?: string;
  sealKey?: string;
  policyPaths?: readonly string[];
  observe?: boolean;
  keepArguments?: boolean;
  modules?: readonly string[];
  /** Private hosts and ranges that may be reached besides those named in documents. */
  allow?: readonly string[];
  /** Names this process among its replicas. */
  replica?: string;
  ledgerDir?: string;
  http?: Parameters<typeof listenHttp>[1];
  tcp?: { host: string; port: number };
  websocket?: { host: string; port: number };
  admin?: { host: string; port: number };
  /** Where people reach the admin port; its own address unless given. */
  adminUrl?: string;
  telemetry?: TelemetryOptions;
  limits?: Partial<GatewayLimits>;
  publishCheckpoints?: string;
  /** The callers of one application are the agents of a workflow. */
  workflow?: WorkflowInForce;
  /** Told of every call that waits for a person. */
  webhook?: { readonly url: string; readonly secret: string };
  identity: (parts: IdentityParts) => Promise<IdentityHere>;
  oauth?: (parts: { storage: Storage; sealer: Sealer; resolve: ResolveText }) => OAuthFor;
}

export interface IdentityParts {
  readonly storage: Storage;
  readonly telemetry: Telemetry;
}

export interface IdentityHere {
  readonly identify: Identify;
  readonly open?: NonNullable<LobbyOptions["open"]>;
  /** Whose key this is, when it is an approver's. */
  readonly approverFor?: NonNullable<Parameters<typeof startAdmin>[0]["approverFor"]>;
  close(): Promise<void>;
}

export interface GatewayRuntime {
  readonly state: State;
  readonly storage: Storage;
  readonly sealer: Sealer;
  readonly applications: Applications;
  readonly lobby: Lobby;
  readonly ledger: Ledger;
  readonly telemetry: Telemetry;
  readonly listeners: readonly Listener[];
  readonly admin: AdminListener | undefined;
  readonly watcher: PolicyWatcher;
  readonly policy: PolicySet;
  close(): Promise<void>;
}

const BEAT_MS = 5_000;
/** Modules of a Core server; an App or Community server loads none of them. */
export const MODULES = ["framework", "state", "llm", "linux", "filesystem"] as const;

export async function startGateway(options: GatewayRuntimeOptions): Promise<GatewayRuntime> {
  const state = ensureState(options.stateDir, "applications");
  const telemetry = createTelemetry({ serviceName: "portcullis", ...options.telemetry });
  // What has been opened is closed again, in reverse, when anything after it fails to open.
  const opened: (() => unknown)[] = [() => telemetry.shutdown()];
  const close = async (): Promise<void> => {
    for (const end of opened.splice(0).reverse()) await end();
  };
  try {
    return { ...(await open(options, state, telemetry, opened)), close };
  } catch (error) {
    await close().catch(() => {});
    throw error;
  }
}

async function open(
  options: GatewayRuntimeOptions,
  state: State,
  telemetry: Telemetry,
  opened: (() => unknown)[],
): Promise<Omit<GatewayRuntime, "close">> {
  const storage = await openStorage(options.storage, { defaultFile: join(state.dir, "portcullis.db") });
  opened.push(() => storage.close());
  const sealer = createSealer(
    loadSealKeys({ defaultFile: join(state.dir, "seal.key"), ...(options.sealKey ? { source: options.sealKey } : {}) }),
  );
  const isReplica = storage.kind === "postgres" || options.replica !== undefined;
  const base = options.replica ?? replicaName(state.dir, isReplica);
  const nameOf = (nth: number): string => (nth === 1 ? base : `${base}-${nth}`);
  const originOf = (nth: number): string => `portcullis.local/${nameOf(nth)}`;
  const recording = {
    keepArguments: options.keepArguments ?? false,
    ...(options.publishCheckpoints === undefined ? {} : { publish: { file: options.publishCheckpoints } }),
  };
  const { ledger, nth } =
    options.ledgerDir === undefined
      ? await openFreeLedger(state.dir, originOf, recording)
      : { ledger: await openLedger({ ...recording, dir: options.ledgerDir, origin: originOf(1) }), nth: 1 };
  const replica = nameOf(nth);
  const isShared = isReplica || nth > 1;
  opened.push(() => ledger.close());
  opened.push(watchLedger(ledger, telemetry));
  const { workflow } = options;
  const delegations = workflow?.voices(storage.once) ?? [];
  const book = new PolicyBook();
  let policy: PolicySet = noPolicy;
  const watcher = await watchPolicy({
    paths: options.policyPaths?.length
      ? options.policyPaths
      : [state.policyDir, ...(workflow ? [workflow.policyFile(state.dir)] : [])],
    tools: () => [],
    unknownTools: "warn",
    gate: {
      get policy() {
        return policy;
      },
      swap(next, sources) {
        policy = next;
        book.setCommon(sources);
      },
    },
    onSwap: async (swap) => {
      await ledger.append({ kind: "policy", old: swap.from, new: swap.to, detail: { files: swap.files } });
      telemetry.log.info("policy in force", { policy: swap.to, files: swap.files });
    },
    onRefused: ({ kept, error }) => {
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("the new policy is refused, the old one stays", { kept, problem: error.message });
    },
  });
  opened.push(() => watcher.close());
  const approvals = new StoredApprovals(storage.challenges);
  const resolve = referenceResolver(storage, sealer);
  const allow = options.allow ?? [];
  const limits = { ...DEFAULT_GATEWAY_LIMITS, ...options.limits };
  const sealKey = await sealKeyOf(storage, sealer);
  const post = isShared ? await Post.open({ storage, key: sealKey }) : undefined;
  opened.push(() => post?.close());
  let adminUrl = options.adminUrl;
  const services: HouseServices = {
    info: { name: "portcullis", version: VERSION },
    mcpPath: options.http?.path ?? "/mcp",
    ledger,
    telemetry,
    limits,
    approvals,
    policies: book,
    ...(workflow ? { voices: (app) => (app === workflow.app ? delegations : []) } : {}),
    observe: options.observe ?? false,
    keepArguments: options.keepArguments ?? false,
    seal: new Seal(sealKey, storage.once),
    pins: pinKeeper(storage, telemetry),
    coreTools: coreFor({
      storage,
      telemetry,
      resolve,
      stateDir: state.dir,
      protectedPaths: [state.dir],
      modules: new Set(options.modules ?? MODULES),
      allow,
    }),
    connect: connector({
      resolve,
      allow,
      ...(options.oauth ? { oauth: options.oauth({ storage, sealer, resolve }) } : {}),
    }),
    approvalUrl: (challenge) => (adminUrl === undefined ? undefined : `${adminUrl}/approve/${challenge}`),
    ...(isShared
      ? {
          post,
          sharedLimits: sharedLimits(storage.leases),
          sessions: () => storedSessions(storage.sessions, replica, limits.sessionIdleMs),
        }
      : {}),
  };
  const applications = await Applications.start({ storage, services });
  opened.push(() => applications.close());
  await recordChanges(storage, ledger, telemetry, opened);
  if (isShared) await beat(storage, replica, opened);
  const who = await options.identity({ storage, telemetry });
  opened.push(() => who.close());
  const identify = workflow?.identify(who.identify) ?? who.identify;
  const outside = createGateway({ server: defineServer({ name: "portcullis", version: VERSION }), telemetry, limits });
  opened.push(() => outside.close());
  const lobby = new Lobby({ identify, applications, outside, ...(who.open ? { open: who.open } : {}) });
  const admin = options.admin
    ? await startAdmin({
        host: options.admin.host,
        port: options.admin.port,
        telemetry,
        gate: {
          get policy() {
            return policy;
          },
          approvals,
        },
        ledger,
        tokenFile: state.operatorToken,
        // People come by this name, which may be a proxy's.
        ...(options.adminUrl === undefined
          ? {}
          : { allowedHosts: [new URL(options.adminUrl).hostname.replace(/^\[|\]$/g, "")] }),
        ...(who.approverFor ? { approverFor: who.approverFor } : {}),
        policyFiles: () => watcher.files,
        servers: () => serverFacts(applications, replica),
        refused: () => applications.refused,
      })
    : undefined;
  opened.push(() => admin?.close());
  adminUrl ??= admin?.url;
  if (admin) opened.push(announceAdmin(state.dir, admin.url));
  if (options.webhook) {
    const { fetch } = createOutbound(createDialer({ allow: [...allow, new URL(options.webhook.url).hostname] }));
    const webhook = startWebhook({
      ...options.webhook,
      approvals,
      telemetry,
      approvalUrl: services.approvalUrl,
      fetch,
    });
    opened.push(() => webhook.close());
  }
  const listeners = await listenAll(options, lobby, opened);
  telemetry.metrics.addSource(() => serverFamilies(applications));
  telemetry.metrics.addSource(() => {
    telemetry.metrics.connections.set(listeners.reduce((sum, listener) => sum + listener.connections, 0));
    return [];
  });
  return {
    state,
    storage,
    sealer,
    applications,
    lobby,
    ledger,
    telemetry,
    listeners,
    admin,
    watcher,
    get policy() {
      return policy;
    },
  };
}

async function listenAll(
  options: GatewayRuntimeOptions,
  lobby: Lobby,
  opened: (() => unknown)[],
): Promise<readonly Listener[]> {
  const listeners: Listener[] = [];
  const listen = async (listening: Promise<Listener>): Promise<void> => {
    const listener = await listening;
    listeners.push(listener);
    opened.push(() => listener.close());
  };
  if (options.http) await listen(listenHttp(lobby, options.http));
  if (options.tcp) await listen(listenTcp(lobby, options.tcp));
  if (options.websocket) await listen(listenWebSocket(lobby, options.websocket));
  return listeners;
}

/** What was sealed at one replica is opened at another, so they share the key, which the store keeps sealed. */
async function sealKeyOf(storage: Storage, sealer: Sealer): Promise<Buffer> {
  const id = { app: "~gateway", server: "portcullis", user: "request-state" };
  const as = { kind: "token" as const, app: "~gateway", name: "portcullis/request-state" };
  for (let i = 0; i < 3; i++) {
    const stored = await storage.tokens.get(id);
    if (stored) return Buffer.from(sealer.open(as, stored.sealed), "base64");
    const fresh = randomBytes(32).toString("base64");
    if (await storage.tokens.put(id, sealer.seal(as, fresh), 0)) return Buffer.from(fresh, "base64");
  }
  throw new Error("the store keeps no key for this gateway; is it writable?");
}

/** Part of calls, which are on record themselves, or of connections. */
const NOT_ON_RECORD: ReadonlySet<Topic> = new Set(["challenge", "session", "token", "letter"]);

/** Changes of applications, keys, secrets and pins are on record here, by whomever they were made. */
async function recordChanges(
  storage: Storage,
  ledger: Ledger,
  telemetry: Telemetry,
  opened: (() => unknown)[],
): Promise<void> {
  const unwatch = await storage.feed.watch({
    change: ({ topic, action, app, name, by, seq }) => {
      if (NOT_ON_RECORD.has(topic)) return;
      ledger
        .append({ kind: "admin", actor: by, action: `${topic}.${action}`, detail: { app, name, seq } })
        .catch((error: Error) =>
          telemetry.log.error("a change is not on record", { topic, app, problem: error.message }),
        );
    },
    resync: () => {},
  });
  opened.push(unwatch);
}

async function beat(storage: Storage, replica: string, opened: (() => unknown)[]): Promise<void> {
  const tell = (): Promise<void> =>
    storage.replicas.beat({
      id: replica,
      ledgerOrigin: `portcullis.local/${replica}`,
      detail: { version: VERSION, address: storage.origin },
    });
  await tell();
  const timer = setInterval(() => void tell().catch(() => {}), BEAT_MS);
  timer.unref();
  opened.push(async () => {
    clearInterval(timer);
    await storage.replicas.remove(replica).catch(() => {});
  });
}
