// The composition root: everything that serves starts here. Store, ledger, policies, identity, upstream servers, listeners.

import { join, resolve as resolvePath } from "node:path";
import { type AdminListener, type Registrar, startAdmin, startWebhook } from "../admin/index.js";
import { type Identify, localIdentity } from "../auth/index.js";
import {
  type ApplicationServices,
  Applications,
  CallsInFlight,
  createGateway,
  DEFAULT_GATEWAY_LIMITS,
  type GatewayLimits,
  type InProcessApplication,
  PolicyCache,
  ReplicaBus,
  StateCipher,
  sharedLimits,
  storedSessions,
  TenantRouter,
  type TenantRouterOptions,
  toolSummaries,
} from "../gateway/index.js";
import type { Ledger } from "../ledger/index.js";
import { ERROR_PAGE_PATH, RetainedBytes, setDocumentationBase } from "../mcp/index.js";
import { defineServer } from "../mcp/server/index.js";
import { type Listener, listenHttp, listenTcp, listenWebSocket } from "../mcp/transports/index.js";
import {
  type Approvals,
  type CheckFile,
  noPolicy,
  type PolicySet,
  type PolicySource,
  type PolicyWatcher,
  type Reload,
  StoredApprovals,
  type ToolSummary,
  watchPolicy,
} from "../policy/index.js";
import type { Sealer, Storage } from "../storage/index.js";
import { createTelemetry, type Telemetry, type TelemetryOptions } from "../telemetry/index.js";
import { allowanceFor, createDialer, createOutbound } from "../upstream/index.js";
import { announceAdmin } from "./admin-client.js";
import { defined, type Settings } from "./config.js";
import { openConsole } from "./console/index.js";
import { coreFor, guardrailModules, isModuleFile, loadToolModules } from "./core.js";
import { ensureState, replicaName, STORE_START_WAIT_MS, STORE_WAIT_MS, type State } from "./data-directory.js";
import { environment, referenceResolver, takeVariable, VERSION } from "./environment.js";
import { flowMemory } from "./flow.js";
import { followHalts } from "./halts.js";
import { Health } from "./health.js";
import { LedgerRegistry, openFreeLedger, openNamedLedger, registeredCheckpoint, watchLedger } from "./ledger.js";
import { observeStore, ServerMetrics, serverFacts, watchConnections, watchRuntime } from "./metrics.js";
import { pinKeeper } from "./pins.js";
import { closeListeners } from "./process.js";
import { POLICY_PENDING, pendingReasons, recordChanges } from "./record-changes.js";
import { registrationsOf } from "./registrations.js";
import { type RetentionOptions, startRetention } from "./retention.js";
import {
  filesDetail,
  type GatewayFiles,
  hiddenFiles,
  type OAuthFor,
  type ResolveText,
  serverConnector,
} from "./servers.js";
import { COMMON_STARTER, isInForce, type StarterPolicy } from "./starters.js";
import { LOCAL_APP, openStore, SEAL_KEY_FILE } from "./store/open.js";
import { followSharedKeys, openSealer } from "./store/sealer.js";
import { settleOlderStore } from "./store-rollback.js";
import { ToolSnapshots } from "./tool-snapshots.js";
import { collectFromParent } from "./workers.js";
import type { WorkflowInForce } from "./workflow/serving.js";

/** The settings that count while a gateway runs; those of listeners and limits come as `http`, `admin` and `limits`. */
type RuntimeSettings = Partial<
  Omit<
    Settings,
    "host" | "port" | "tcpPort" | "wsPort" | "adminHost" | "adminPort" | "logLevel" | "archive" | "workflow"
  >
>;

export interface GatewayRuntimeOptions extends RuntimeSettings {
  stateDir: string;
  /** Files besides the gateway's own that no server may see, such as those of OAuth. */
  secretFiles?: readonly string[];
  /** Files besides the policies that no server may change, because the gateway decides by them or runs them. */
  ruleFiles?: readonly string[];
  http?: Parameters<typeof listenHttp>[1] | undefined;
  tcp?: Parameters<typeof listenTcp>[1] | undefined;
  websocket?: Parameters<typeof listenWebSocket>[1] | undefined;
  /** `orAny`: any free port where this one is taken. */
  admin?: { host: string; port: number; orAny?: boolean };
  /** The admin port of this machine, also where another worker serves it. */
  adminPort?: number;
  telemetry?: TelemetryOptions;
  limits?: Partial<GatewayLimits>;
  /** Where closed files of the ledger are archived, and what stays. */
  retention?: RetentionOptions | undefined;
  /** The callers of one application are the agents of a workflow. */
  workflow?: WorkflowInForce | undefined;
  /** Gets a signed request for every call that waits for approval. */
  webhook?: { readonly url: string; readonly secret: string } | undefined;
  /** An application whose tools run in this process; it is served beside those of the store. */
  inProcess?: (InProcessApplication & { readonly app: string }) | undefined;
  /** It is what is served before anything was configured. */
  isDemonstration?: boolean;
  /** The first policy file of a new data directory. */
  starterPolicy?: StarterPolicy | undefined;
  /** A policy in another language than Cedar, such as a host's policy.yaml, which is one more check. */
  checkFile?: CheckFile;
  /** Names and places of the ledgers that processes of this data directory take, the first that is free. */
  ledgers?: (nth: number) => { readonly name: string; readonly dir: string };
  /** How callers are identified; the local user of the operating system unless given. */
  identity?: (parts: IdentityParts) => Promise<IdentityHere>;
  oauthClient?: (parts: { storage: Storage; sealer: Sealer; resolve: ResolveText }) => OAuthFor;
}

export interface IdentityParts {
  readonly storage: Storage;
  readonly telemetry: Telemetry;
  /** Ends what the holder of a key still listens to, when its revocation was missed. */
  readonly onRevoked: (app: string, key: string) => void;
}

export interface IdentityHere {
  /** Callers of this machine need no credential. */
  readonly isLocalAccessOn: boolean;
  readonly identify: Identify;
  readonly open?: NonNullable<TenantRouterOptions["open"]>;
  /** Whose key this is, when it is an approver's. */
  readonly approverFor?: NonNullable<Parameters<typeof startAdmin>[0]["approverFor"]>;
  /** Whose key this is, when it may read or change registrations of its application. */
  readonly registrarFor?: (token: string) => Promise<Registrar | undefined>;
  close(): Promise<void>;
}

export interface GatewayRuntime {
  readonly state: State;
  readonly storage: Storage;
  readonly sealer: Sealer;
  readonly applications: Applications;
  readonly tenantRouter: TenantRouter;
  readonly ledger: Ledger;
  readonly telemetry: Telemetry;
  readonly listeners: readonly Listener[];
  readonly admin: AdminListener | undefined;
  readonly watcher: PolicyWatcher;
  readonly policy: PolicySet;
  readonly approvals: Approvals;
  /** Where this approval request is answered, where an admin port is known. */
  approvalUrl(challenge: string): string | undefined;
  readonly isLocalAccessOn: boolean;
  readonly health: Health;
  /** Reads the policy files now; resolves when every open application decides by what was read. */
  reloadPolicies(): Promise<Reload>;
  close(callMs?: number): Promise<void>;
}

/** Closes in reverse order; each gets the time that calls under way have left. */
type Opened = ((callMs?: number) => unknown)[];

/** Read by now: the store's address holds a password, and headers for a collector a token. */
const SECRET_VARIABLES = [
  "PORTCULLIS_SEAL_KEY",
  "PORTCULLIS_STORAGE",
  "PORTCULLIS_STORAGE_LISTEN",
  "OTEL_EXPORTER_OTLP_HEADERS",
];
const BEAT_MS = 5_000;
const STORE_RESTORED = "the store was restored: open approvals and request states are no longer valid";

export async function startGateway(options: GatewayRuntimeOptions): Promise<GatewayRuntime> {
  const state = ensureState(options.stateDir, options.starterPolicy);
  const telemetry = createTelemetry({ serviceName: "portcullis", env: environment(), ...options.telemetry });
  // What has been opened is closed again, in reverse, when anything after it fails to open.
  const opened: Opened = [() => telemetry.shutdown()];
  const close = async (callMs?: number): Promise<void> => {
    for (const end of opened.splice(0).reverse()) await end(callMs);
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
  opened: Opened,
): Promise<Omit<GatewayRuntime, "close">> {
  const health = new Health();
  opened.push(() => health.close());
  const storage = await openStore(state.dir, options.storage, {
    waitMs: () => (health.isStarted() ? STORE_WAIT_MS : STORE_START_WAIT_MS),
    ...defined({ maxConnections: options.storageConnections, listenUrl: options.storageListen }),
    isThreaded: true,
    observe: observeStore(telemetry),
  });
  opened.push(() => storage.close());
  health.watchStore(storage);
  const sealer = await openSealer(storage, {
    defaultFile: join(state.dir, SEAL_KEY_FILE),
    env: environment(),
    source: options.sealKey,
  });
  for (const name of SECRET_VARIABLES) takeVariable(name);
  if (options.sealKey?.startsWith("env:")) takeVariable(options.sealKey.slice("env:".length));
  const isReplica = storage.kind === "postgres" || options.replica !== undefined;
  const base = options.replica ?? replicaName(state.dir, isReplica);
  const nameOf = (nth: number): string => options.ledgers?.(nth).name ?? (nth === 1 ? base : `${base}-${nth}`);
  const originOf = (nth: number): string => `portcullis.local/${nameOf(nth)}`;
  const registry = new LedgerRegistry(storage.ledgers, telemetry);
  const { publish, lockTimeout } = options;
  const recording = {
    onAppended: (seconds: number) => telemetry.metrics.ledgerAppends.record(seconds),
    keepArguments: options.keepArguments ?? false,
    compress: options.compressLedger ?? true,
    outcomes: options.outcomes ?? ("lazy" as const),
    publish: [registry.publish, ...(publish === undefined ? [] : [{ file: publish }])],
  };
  const expected = (origin: string, dir: string) => registeredCheckpoint(storage.ledgers, origin, dir);
  const { ledger, nth } =
    options.ledger === undefined
      ? await openFreeLedger(state.dir, originOf, recording, expected, options.ledgers)
      : await openNamedLedger(options.ledger, originOf(1), recording, expected, lockTimeout);
  const replica = nameOf(nth);
  const isShared = isReplica || nth > 1;
  let endRegistration = async (): Promise<void> => {};
  opened.push(async () => {
    await ledger.close();
    // After it: the last checkpoint is signed when the ledger is closed.
    await endRegistration();
  });
  if (await settleOlderStore(storage, ledger.dir)) telemetry.log.warning(STORE_RESTORED);
  endRegistration = await registry.begin(ledger);
  const retention = options.retention && startRetention(ledger, options.retention, telemetry);
  opened.push(() => retention?.close());
  if (retention) health.watchArchive(retention);
  opened.push(watchLedger(ledger, telemetry));
  const { workflow } = options;
  const delegations = workflow?.checks(storage.once) ?? [];
  const { inProcess } = options;
  const inProcessTools = (): ToolSummary[] =>
    inProcess ? toolSummaries(inProcess.server, new Set(inProcess.readOnlyTools)) : [];
  // Rules for all applications may name tools that only some of them have; with a single application that is a mistake.
  const isAlone = inProcess !== undefined && !(await hasOthers(storage, inProcess.app));
  const snapshots = new ToolSnapshots(state.dir, telemetry);
  opened.push(() => snapshots.close());
  const known = knownSet(options.starterPolicy);
  const book = new PolicyCache(known);
  let policy: PolicySet = noPolicy;
  const watcher = await watchPolicy({
    paths: options.policy?.length
      ? options.policy
      : [state.policyDir, ...(workflow ? [workflow.policyFile(state.dir, inProcess?.server.tools.keys())] : [])],
    isInForce: options.policy?.length
      ? undefined
      : (source) => isInForce(source, (options.starterPolicy ?? COMMON_STARTER).name),
    checkFile: options.checkFile,
    known,
    tools: inProcessTools,
    unknownTools: isAlone ? "refuse" : "warn",
    gate: {
      get policy() {
        return policy;
      },
      swap(next, sources, checks) {
        policy = next;
        for (const { onApplied } of checks) onApplied?.();
        book.setCommon(sources, checks);
      },
    },
    onSwap: async (swap) => {
      const { from, to, interim, files } = swap;
      await ledger.append({ kind: "policy", old: from, new: to, detail: { files, interim } });
      telemetry.metrics.policyReloads.inc();
      telemetry.log.info("policy files loaded", { policy: to, files });
    },
    onPending: ({ to, problem }) => telemetry.log.error(POLICY_PENDING, { policy: to, problem }),
    onRefused: ({ kept, error }) => {
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("policy refused, the previous policy stays in force", { kept, problem: error.message });
    },
  });
  opened.push(() => watcher.close());
  health.watchPolicy(watcher);
  let checkedTools = JSON.stringify(inProcessTools());
  // Rules are checked against names and schemas: another description is not a reason to read the files.
  const recheck = (): void => {
    const tools = JSON.stringify(inProcessTools());
    if (tools === checkedTools) return;
    checkedTools = tools;
    void watcher.reload();
  };
  opened.push(
    inProcess?.server.onChange((change) => {
      if (change.kind === "tools" && isAlone) setImmediate(recheck);
    }) ?? (() => {}),
  );
  const halts = await followHalts({ stateDir: state.dir, storage, ledger, telemetry });
  opened.push(() => halts.close());
  health.watchHalts(halts.halts);
  const approvals = new StoredApprovals(storage.challenges);
  approvals.onOpen(() => telemetry.metrics.approvalsOpened.inc());
  const resolve = referenceResolver(storage, sealer);
  const allow = options.allowPrivate ?? [];
  const limits: GatewayLimits = { ...DEFAULT_GATEWAY_LIMITS, ...options.limits };
  const retained = new RetainedBytes(limits);
  const calls = new CallsInFlight(limits, (bound) => telemetry.metrics.shed.inc(bound));
  const keys = await followSharedKeys(storage, sealer, telemetry);
  opened.push(() => keys.close());
  const bus = isShared ? await ReplicaBus.open({ storage, keys, retained }) : undefined;
  opened.push(() => bus?.close());
  let adminUrl = options.adminUrl;
  const adminAddresses: string[] = options.adminPort ? [`http://127.0.0.1:${options.adminPort}`] : [];
  const approvalUrl = (challenge: string): string | undefined =>
    adminUrl === undefined ? undefined : `${adminUrl}/approve/${challenge}`;
  const files = ownFiles(options, state);
  const services: ApplicationServices = {
    info: { name: "portcullis", version: VERSION },
    mcpPath: options.http?.path ?? "/mcp",
    ledger,
    telemetry,
    limits,
    retained,
    calls,
    approvals,
    halts: halts.halts,
    flowMemory: flowMemory(ledger.dir, isShared),
    policies: book,
    inProcess: (app) => (app === inProcess?.app ? inProcess : undefined),
    guardrailModule: guardrailModules(state.dir),
    onTools: (app, server, readOnly) => snapshots.put(app, server, readOnly),
    checks: (app) => (app === workflow?.app ? delegations : []),
    observe: options.observe ?? false,
    keepArguments: options.keepArguments ?? false,
    stateCipher: new StateCipher(keys, storage.once),
    pins: pinKeeper(storage, telemetry),
    coreTools: coreFor({
      storage,
      telemetry,
      resolve,
      stateDir: state.dir,
      protectedPaths: [state.dir],
      modules: await loadToolModules(options.modules),
      allow,
    }),
    connect: serverConnector({
      resolve,
      allow,
      files: () => hiddenFiles(files, storage),
      stores: join(state.dir, "servers"),
      observe: (app, server, method, seconds, error) =>
        telemetry.metrics.upstreamCalls.record(seconds, app, server, method, error),
      idleStop: options.idleStop,
      discoveryTimeout: options.discoveryTimeout,
      budget: (app) => retained.ofApp(app),
      oauth: options.oauthClient?.({ storage, sealer, resolve }),
    }),
    approvalAddresses: () => adminAddresses,
    approvalUrl,
    ...(isShared
      ? {
          bus,
          sharedLimits: sharedLimits(storage.leases),
          sessions: () => storedSessions(storage.sessions, replica, limits.sessionIdleMs),
        }
      : {}),
  };
  const applications = await Applications.start({ storage, services });
  opened.push(() => applications.close());
  await followRotations(storage, ledger, telemetry, opened);
  // Its policy is checked and its tools are known before the first caller.
  if (inProcess) await applications.get(inProcess.app);
  const recorder = await recordChanges({ storage, ledger, origin: originOf(nth), telemetry });
  opened.push(() => recorder.close());
  health.watchRecords(() => pendingReasons(watcher.pending ? 1 : 0, applications.pendingPolicies, recorder.problem));
  opened.push(
    watchRuntime({
      telemetry,
      ledger,
      watcher,
      pendingPolicies: () => (watcher.pending ? 1 : 0) + applications.pendingPolicies,
      archiveProblem: () => retention?.problem,
      storage,
      retained: { bytes: retained, max: limits.maxRetainedBytes },
    }),
  );
  if (isShared) await beat(storage, replica, filesDetail(files), opened);
  const who = await (options.identity ?? localUser(inProcess?.app))({
    storage,
    onRevoked: (app, key) => applications.peek(app)?.endpoint.revoked(key),
    telemetry,
  });
  opened.push(() => who.close());
  const identify = workflow?.identify(who.identify) ?? who.identify;
  const anonymousEndpoint = createGateway({
    server: defineServer({ name: "portcullis", version: VERSION }),
    telemetry,
    limits,
    retained,
    calls,
  });
  opened.push(() => anonymousEndpoint.close());
  const tenantRouter = new TenantRouter({
    identify,
    admits: who.identify,
    retained,
    calls,
    applications,
    anonymousEndpoint,
    open: who.open,
  });
  const collect = collectFromParent();
  const servers = () => serverFacts(applications, replica);
  const reloadPolicies = async (): Promise<Reload> => {
    const reload = await watcher.reload();
    await applications.policiesLoaded();
    return reload;
  };
  const ui =
    options.admin &&
    openConsole(
      {
        stateDir: state.dir,
        policyDir: state.policyDir,
        storage,
        sealer,
        applications,
        ledger,
        telemetry,
        approvals,
        watcher,
        ownsPolicies: !options.policy?.length && workflow === undefined,
        inProcess: inProcess && { app: inProcess.app, policies: inProcess.policies ?? {} },
        workflow,
        components: () =>
          Object.entries(health.components).flatMap(([name, check]) => {
            const { problem, warning } = check();
            const message = problem ?? warning;
            return message === undefined ? [] : [{ name, message }];
          }),
        servers,
        reloadPolicies: async () => void (await reloadPolicies()),
      },
      async () => (collect ? ((await collect("servers")).servers as ReturnType<typeof servers>) : servers()),
    );
  opened.push(() => ui?.close());
  const admin = options.admin
    ? await listenAdmin(options.admin, {
        telemetry,
        gate: {
          get policy() {
            return policy;
          },
          approvals,
        },
        ledger,
        tokenFile: state.operatorToken,
        nonces: storage.once,
        halts,
        // The name that approvers use, which may be a proxy's.
        allowedHosts:
          options.adminUrl === undefined ? [] : [new URL(options.adminUrl).hostname.replace(/^\[|\]$/g, "")],
        approverFor: who.approverFor,
        registrations: who.registrarFor && {
          registrarFor: who.registrarFor,
          registrations: registrationsOf({ storage, applications, ledger, allow }),
        },
        policyFiles: () => watcher.files,
        servers,
        operations: ui?.operations,
        approvalDetail: ui?.approvalDetail,
        sessions: ui?.sessions,
        startEvents: ui?.startEvents,
        isKeyActive: async (id) => {
          const key = await storage.keys.get(id);
          return (
            key !== undefined && key.revokedAt === undefined && (key.expiresAt ?? Number.POSITIVE_INFINITY) > Date.now()
          );
        },
        version: VERSION,
        kind: options.checkFile ? "host" : options.isDemonstration ? "demonstration" : "gateway",
        refused: () => applications.refused,
        components: health.components,
        isStarted: health.isStarted,
        collect,
      })
    : undefined;
  opened.push(() => admin?.close());
  adminUrl ??= admin?.url;
  if (admin) adminAddresses.push(admin.url);
  if (admin) opened.push(announceAdmin(state.dir, admin.url));
  if (options.webhook) {
    const { fetch } = createOutbound(createDialer({ allow: [...allow, allowanceFor(new URL(options.webhook.url))] }));
    const webhook = startWebhook({
      ...options.webhook,
      approvals,
      telemetry,
      approvalUrl,
      fetch,
    });
    opened.push(() => webhook.close());
  }
  const listeners = await listenAll(options, tenantRouter, () => applications.endStreams(), opened);
  setDocumentationBase(options.documentationUrl ?? documentationPage(options.publicUrl, listeners.length > 0));
  health.started();
  const serverMetrics = new ServerMetrics(applications);
  telemetry.metrics.addSource(() => serverMetrics.families());
  watchConnections(telemetry, listeners, tenantRouter);
  return {
    state,
    storage,
    sealer,
    applications,
    tenantRouter,
    ledger,
    telemetry,
    listeners,
    admin,
    watcher,
    approvals,
    approvalUrl,
    get policy() {
      return policy;
    },
    isLocalAccessOn: who.isLocalAccessOn,
    health,
    reloadPolicies,
  };
}

/** Where the port is taken and any other will do, a free one is used. */
async function listenAdmin(
  { host, port, orAny = false }: NonNullable<GatewayRuntimeOptions["admin"]>,
  parts: Omit<Parameters<typeof startAdmin>[0], "host" | "port">,
): Promise<AdminListener> {
  try {
    return await startAdmin({ host, port, ...parts });
  } catch (error) {
    if (!orAny || port === 0) throw error;
    parts.telemetry.log.error("admin port not available", { problem: (error as Error).message });
    return startAdmin({ host, port: 0, ...parts });
  }
}

/**
 * Never the address that the gateway listens on, which is internal behind a proxy: without a public address the URL is
 * relative to the one that the caller used. A caller on stdio runs on this machine and can read the file of the package.
 */
function documentationPage(publicUrl: string | undefined, isListening: boolean): string {
  if (publicUrl !== undefined) return `${new URL(publicUrl).origin}${ERROR_PAGE_PATH}`;
  return isListening ? ERROR_PAGE_PATH : new URL("../../docs/errors.md", import.meta.url).href;
}

/** The starter policy as it was written needs no Cedar where its rules come loaded. */
function knownSet(starter: StarterPolicy | undefined): (sources: readonly PolicySource[]) => PolicySet | undefined {
  return (sources) => (sources.length === 1 && sources[0]?.text === starter?.text ? starter?.set : undefined);
}

/** The identity where none is configured: the local user, by loopback or stdio. */
function localUser(app = LOCAL_APP): NonNullable<GatewayRuntimeOptions["identity"]> {
  return async () => ({ isLocalAccessOn: true, identify: localIdentity({ app }), close: async () => {} });
}

async function hasOthers(storage: Storage, app: string): Promise<boolean> {
  const { items } = await storage.applications.list({ limit: 2 });
  return items.some(({ id }) => id !== app);
}

/** What a stdio server must not see, and what it must not change. */
function ownFiles(options: GatewayRuntimeOptions, state: State): GatewayFiles {
  const { storage = "", sealKey = "", publish } = options;
  const database = storage.startsWith("sqlite:") ? [resolvePath(storage.slice("sqlite:".length))] : [];
  const keyFile = sealKey.startsWith("file:") ? [resolvePath(sealKey.slice("file:".length))] : [];
  // A worker's ledger lies beside those of the others.
  const ledgers = options.ledger?.replace(/\/worker-\d+$/, "");
  const archive = options.retention?.archive.location;
  const copies = archive?.startsWith("s3:") ? undefined : archive;
  const further = [ledgers, copies, ...(options.secretFiles ?? [])].flatMap((path) =>
    path ? [resolvePath(path)] : [],
  );
  const modules = (options.modules ?? []).filter(isModuleFile);
  const rules = [...(options.policy ?? []), ...(options.ruleFiles ?? []), ...modules];
  if (publish !== undefined) rules.push(publish);
  return { hidden: [state.dir, ...database, ...keyFile, ...further], readOnly: rules.map((path) => resolvePath(path)) };
}

async function listenAll(
  options: GatewayRuntimeOptions,
  tenantRouter: TenantRouter,
  endStreams: () => void,
  opened: Opened,
): Promise<readonly Listener[]> {
  const listeners: Listener[] = [];
  opened.push((callMs) => closeListeners(listeners, endStreams, callMs));
  const listen = async (listening: Promise<Listener>): Promise<void> => {
    listeners.push(await listening);
  };
  if (options.http) await listen(listenHttp(tenantRouter, options.http));
  if (options.tcp) await listen(listenTcp(tenantRouter, options.tcp));
  if (options.websocket) await listen(listenWebSocket(tenantRouter, options.websocket));
  return listeners;
}

/** `portcullis audit rotate-key` cannot open a ledger that is being written: it asks its writer. */
async function followRotations(storage: Storage, ledger: Ledger, telemetry: Telemetry, opened: Opened): Promise<void> {
  const unwatch = await storage.feed.watch({
    change: ({ topic, action, name }) => {
      if (topic === "store" && action === "restored") telemetry.log.warning(STORE_RESTORED, { found: name });
      if (topic !== "ledger" || action !== "rotate" || name !== ledger.origin) return;
      ledger.rotateKey().then(
        (keys) => telemetry.log.notice("the signing key of the ledger was replaced", keys),
        (error: Error) => telemetry.log.error("the signing key could not be replaced", { problem: error.message }),
      );
    },
    resync: () => {},
  });
  opened.push(unwatch);
}

async function beat(
  storage: Storage,
  replica: string,
  files: ReturnType<typeof filesDetail>,
  opened: (() => unknown)[],
): Promise<void> {
  const register = (): Promise<void> =>
    storage.replicas.beat({
      id: replica,
      ledgerOrigin: `portcullis.local/${replica}`,
      detail: { version: VERSION, address: storage.origin, ...files },
    });
  await register();
  const timer = setInterval(() => void register().catch(() => {}), BEAT_MS);
  timer.unref();
  opened.push(async () => {
    clearInterval(timer);
    await storage.replicas.remove(replica).catch(() => {});
  });
}
