// Where the rooms are wired together: state folder, ledger, policy, gate, gateway, transports, admin port.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type AdminListener, startAdmin } from "../admin/index.js";
import {
  createGate,
  type Gate,
  type PolicySwap,
  type PolicyWatcher,
  type Principal,
  watchPolicy,
} from "../gate/index.js";
import { createGateway, type Endpoint, type GatewayLimits, toolSummaries } from "../gateway/index.js";
import { unknownCaller } from "../identity/index.js";
import { type Ledger, openLedger, type OutcomeDurability } from "../ledger/index.js";
import type { Storage } from "../storage/index.js";
import { createTelemetry, type Telemetry, type TelemetryOptions } from "../telemetry/index.js";
import type { ServerDefinition } from "../tool/index.js";
import { type Listener, listenHttp, listenTcp, listenWebSocket } from "../transport/index.js";
import { announceAdmin } from "./gateway/admin-places.js";
import { pendingReasons, POLICY_PENDING, recordChanges } from "./gateway/record-changes.js";
import type { GatewayRuntimeOptions, IdentityHere } from "./gateway/runtime.js";
import { type RetentionOptions, startRetention } from "./gateway/retention.js";
import { Health } from "./health.js";
import { watchLedger } from "./ledger-watch.js";
import { observeStore, watchConnections, watchRuntime } from "./runtime-metrics.js";
import { closeListeners } from "./shutdown.js";
import { ensureState, type State, STORE_START_WAIT_MS, STORE_WAIT_MS } from "./state.js";
import { openStore } from "./store/open.js";
import type { WorkflowInForce } from "./workflow/serving.js";

const LEDGER_ORIGIN = "portcullis.local/gateway";

export interface RuntimeOptions {
  stateDir: string;
  server: ServerDefinition;
  /** Policy files and folders; the state folder's own when empty. */
  policyPaths?: readonly string[];
  observe?: boolean;
  keepArguments?: boolean;
  /** Tools that the operator declared read-only. */
  readOnlyTools?: readonly string[];
  http?: {
    host: string;
    port: number;
    path?: string;
    allowedHosts?: readonly string[];
    allowedOrigins?: readonly string[];
  };
  tcp?: { host: string; port: number };
  websocket?: Parameters<typeof listenWebSocket>[1];
  admin?: { host: string; port: number };
  telemetry?: TelemetryOptions;
  limits?: Partial<GatewayLimits>;
  publishCheckpoints?: string;
  /** Compress closed files of the ledger in the background. */
  compressLedger?: boolean;
  /** Whether the answer of a call waits for its outcome to be durable; `lazy` unless given. */
  outcomes?: OutcomeDurability | undefined;
  /** Where closed files of the ledger are archived, and what stays. */
  retention?: RetentionOptions | undefined;
  /** Callers are its agents, and each holds what was delegated to it. */
  workflow?: WorkflowInForce;
  /** The store whose keys callers send; that of the data directory unless given. */
  storage?: string | undefined;
  /** How callers are identified; the local user only, unless given. */
  identity?: GatewayRuntimeOptions["identity"];
}

export interface Runtime {
  readonly state: State;
  readonly endpoint: Endpoint;
  readonly gate: Gate;
  readonly ledger: Ledger;
  readonly telemetry: Telemetry;
  readonly listeners: readonly Listener[];
  readonly admin: AdminListener | undefined;
  readonly watcher: PolicyWatcher;
  readonly isLocalAccessOn: boolean;
  readonly health: Health;
  close(callMs?: number): Promise<void>;
}

/** Closes in reverse order; each gets the time that calls under way have left. */
type Opened = ((callMs?: number) => unknown)[];

export async function startRuntime(options: RuntimeOptions): Promise<Runtime> {
  const state = ensureState(options.stateDir);
  const telemetry = createTelemetry({ serviceName: "portcullis", ...options.telemetry });
  // What has been opened is closed again, in reverse, when anything after it fails to open.
  const opened: Opened = [() => telemetry.shutdown()];
  const closeAll = async (callMs?: number): Promise<void> => {
    for (const close of opened.splice(0).reverse()) await close(callMs);
  };
  try {
    return await open(options, state, telemetry, opened, closeAll);
  } catch (error) {
    await closeAll().catch(() => {});
    throw error;
  }
}

async function open(
  options: RuntimeOptions,
  state: State,
  telemetry: Telemetry,
  opened: Opened,
  closeAll: Runtime["close"],
): Promise<Runtime> {
  const health = new Health();
  opened.push(() => health.close());
  const { server } = options;
  const readOnly = new Set(options.readOnlyTools);
  const tools = () => toolSummaries(server, readOnly);
  await writeFile(join(state.dir, "tools.json"), manifest(server), { mode: 0o600 });
  const ledger = await openLedger({
    dir: state.ledgerDir,
    origin: LEDGER_ORIGIN,
    onAppended: (seconds) => telemetry.metrics.ledgerAppends.record(seconds),
    keepArguments: options.keepArguments ?? false,
    compress: options.compressLedger ?? true,
    outcomes: options.outcomes ?? ("lazy" as const),
    ...(options.publishCheckpoints === undefined ? {} : { publish: { file: options.publishCheckpoints } }),
  });
  opened.push(() => ledger.close());
  if (options.retention) opened.push(startRetention(ledger, options.retention, telemetry));
  opened.push(watchLedger(ledger, telemetry));
  const { workflow } = options;
  const gate = createGate({ observe: options.observe ?? false, voices: workflow?.voices() });
  const ownPolicy = (): string => workflow?.policyFile(state.dir, server.tools.keys()) ?? state.policyDir;
  const watcher = await watchPolicy({
    paths: options.policyPaths?.length ? options.policyPaths : [ownPolicy()],
    tools,
    gate,
    onSwap: (swap) => recordSwap(ledger, telemetry, swap),
    onPending: ({ to, problem }) => telemetry.log.error(POLICY_PENDING, { policy: to, problem }),
    onRefused: ({ kept, error }) => {
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("the new policy is refused, the old one stays", { kept, problem: error.message });
    },
  });
  opened.push(() => watcher.close());
  health.watchPolicy(watcher);
  const unwatch = server.onChange((change) => {
    if (change.kind === "tools") void watcher.reload();
  });
  opened.push(unwatch);
  const who = options.identity && (await openIdentity(options, state, { telemetry, ledger, health }, opened));
  health.watchRecords(() => pendingReasons(watcher.pending ? 1 : 0, 0, who?.recordingProblem()));
  opened.push(
    watchRuntime({
      telemetry,
      ledger,
      watcher,
      pendingPolicies: () => (watcher.pending ? 1 : 0),
      storage: who?.storage,
    }),
  );
  const endpoint = createGateway({
    server,
    gate,
    ledger,
    telemetry,
    limits: options.limits,
    readOnlyTools: readOnly,
    keepArguments: options.keepArguments,
    identify: workflow?.identify(who?.identify) ?? who?.identify,
  });
  opened.push(() => endpoint.close());
  who?.onRevoked((credential) => endpoint.revoked(credential));
  const admin = options.admin
    ? await startAdmin({
        ...options.admin,
        telemetry,
        gate,
        ledger,
        tokenFile: state.operatorToken,
        ...(who?.approverFor ? { approverFor: who.approverFor } : {}),
        policyFiles: () => watcher.files,
        components: health.components,
        isStarted: health.isStarted,
      })
    : undefined;
  opened.push(() => admin?.close());
  if (admin) opened.push(announceAdmin(state.dir, admin.url));
  const listeners: Listener[] = [];
  opened.push((callMs) => closeListeners(listeners, () => endpoint.endStreams(), callMs));
  const listen = async (listening: Promise<Listener>): Promise<void> => {
    listeners.push(await listening);
  };
  if (options.http) await listen(listenHttp(endpoint, options.http));
  if (options.tcp) await listen(listenTcp(endpoint, options.tcp));
  if (options.websocket) await listen(listenWebSocket(endpoint, options.websocket));
  watchConnections(telemetry, listeners);
  health.started();
  const isLocalAccessOn = who?.isLocalAccessOn ?? true;
  const close = closeAll;
  return { state, endpoint, gate, ledger, telemetry, listeners, admin, watcher, isLocalAccessOn, health, close };
}

interface KnownCallers extends IdentityHere {
  readonly storage: Storage;
  onRevoked(listener: (credential: string) => void): void;
  recordingProblem(): string | undefined;
}

/** Keys of the application `local` are accepted, those of other applications are not. */
async function openIdentity(
  options: RuntimeOptions,
  state: State,
  { telemetry, ledger, health }: { telemetry: Telemetry; ledger: Ledger; health: Health },
  opened: Opened,
): Promise<KnownCallers | undefined> {
  const storage = await openStore(state.dir, options.storage, {
    waitMs: () => (health.isStarted() ? STORE_WAIT_MS : STORE_START_WAIT_MS),
    observe: observeStore(telemetry),
  });
  opened.push(() => storage.close());
  health.watchStore(storage);
  let revoked: (credential: string) => void = () => {};
  const who = await options.identity?.({ storage, telemetry, onRevoked: (_app, key) => revoked(key) });
  if (!who) return undefined;
  opened.push(() => who.close());
  const unwatch = await storage.feed.watch({
    change: ({ topic, action, name }) => {
      if (topic === "key" && (action === "revoke" || action === "changed")) revoked(name);
    },
    resync: () => {},
  });
  opened.push(unwatch);
  const recorder = await recordChanges({ storage, ledger, origin: LEDGER_ORIGIN, telemetry });
  opened.push(() => recorder.close());
  const app = options.workflow?.app ?? "local";
  const ofThisApp = (principal: Principal): Principal => {
    if (principal.app === app) return principal;
    throw unknownCaller();
  };
  return {
    ...who,
    storage,
    identify: (peer, auth, meta) => {
      const known = who.identify(peer, auth, meta);
      return known instanceof Promise ? known.then(ofThisApp) : ofThisApp(known);
    },
    onRevoked: (listener) => {
      revoked = listener;
    },
    recordingProblem: () => recorder.problem,
  };
}

async function recordSwap(ledger: Ledger, telemetry: Telemetry, swap: PolicySwap): Promise<void> {
  await ledger.append({
    kind: "policy",
    old: swap.from,
    new: swap.to,
    detail: { files: swap.files, interim: swap.interim },
  });
  telemetry.metrics.policyReloads.inc();
  telemetry.log.info("policy in force", { policy: swap.to, files: swap.files });
}

/** What is served, kept where the offline commands find it. */
function manifest(server: ServerDefinition): string {
  const tools = [...server.tools.values()].map(({ definition, tags, noGuardrailRequired }) => ({
    ...definition,
    tags,
    noGuardrailRequired,
  }));
  return `${JSON.stringify({ server: server.info.name, tools }, null, 2)}\n`;
}
