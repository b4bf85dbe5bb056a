// Where the rooms are wired together: state folder, ledger, policy, gate, gateway, transports, admin port.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type AdminListener, startAdmin } from "../admin/index.js";
import { createGate, type Gate, type PolicySwap, type PolicyWatcher, watchPolicy } from "../gate/index.js";
import { createGateway, type Endpoint, type GatewayLimits, toolSummaries } from "../gateway/index.js";
import { type Ledger, openLedger } from "../ledger/index.js";
import { createTelemetry, type Telemetry, type TelemetryOptions } from "../telemetry/index.js";
import type { ServerDefinition } from "../tool/index.js";
import { type Listener, listenHttp, listenTcp, listenWebSocket } from "../transport/index.js";
import { announceAdmin } from "./gateway/admin-places.js";
import { watchLedger } from "./ledger-watch.js";
import { ensureState, type State } from "./state.js";
import type { WorkflowInForce } from "./workflow/serving.js";

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
  websocket?: { host: string; port: number };
  admin?: { host: string; port: number };
  telemetry?: TelemetryOptions;
  limits?: Partial<GatewayLimits>;
  publishCheckpoints?: string;
  /** Callers are its agents, and each holds what was delegated to it. */
  workflow?: WorkflowInForce;
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
  close(): Promise<void>;
}

export async function startRuntime(options: RuntimeOptions): Promise<Runtime> {
  const state = ensureState(options.stateDir);
  const telemetry = createTelemetry({ serviceName: "portcullis", ...options.telemetry });
  // What has been opened is closed again, in reverse, when anything after it fails to open.
  const opened: (() => unknown)[] = [() => telemetry.shutdown()];
  const closeAll = async (): Promise<void> => {
    for (const close of opened.splice(0).reverse()) await close();
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
  opened: (() => unknown)[],
  closeAll: () => Promise<void>,
): Promise<Runtime> {
  const { server } = options;
  const readOnly = new Set(options.readOnlyTools);
  const tools = () => toolSummaries(server, readOnly);
  await writeFile(join(state.dir, "tools.json"), manifest(server), { mode: 0o600 });
  const ledger = await openLedger({
    dir: state.ledgerDir,
    origin: "portcullis.local/gateway",
    keepArguments: options.keepArguments ?? false,
    ...(options.publishCheckpoints === undefined ? {} : { publish: { file: options.publishCheckpoints } }),
  });
  opened.push(() => ledger.close());
  opened.push(watchLedger(ledger, telemetry));
  const { workflow } = options;
  const gate = createGate({ observe: options.observe ?? false, voices: workflow?.voices() });
  const ownPolicy = (): string => workflow?.policyFile(state.dir, server.tools.keys()) ?? state.policyDir;
  const watcher = await watchPolicy({
    paths: options.policyPaths?.length ? options.policyPaths : [ownPolicy()],
    tools,
    gate,
    onSwap: (swap) => recordSwap(ledger, telemetry, swap),
    onRefused: ({ kept, error }) => {
      telemetry.metrics.policyRefusals.inc();
      telemetry.log.error("the new policy is refused, the old one stays", { kept, problem: error.message });
    },
  });
  opened.push(() => watcher.close());
  const unwatch = server.onChange((change) => {
    if (change.kind === "tools") void watcher.reload();
  });
  opened.push(unwatch);
  const endpoint = createGateway({
    server,
    gate,
    ledger,
    telemetry,
    limits: options.limits,
    readOnlyTools: readOnly,
    keepArguments: options.keepArguments,
    identify: workflow?.identify(),
  });
  opened.push(() => endpoint.close());
  const admin = options.admin
    ? await startAdmin({
        ...options.admin,
        telemetry,
        gate,
        ledger,
        tokenFile: state.operatorToken,
        policyFiles: () => watcher.files,
      })
    : undefined;
  opened.push(() => admin?.close());
  if (admin) opened.push(announceAdmin(state.dir, admin.url));
  const listeners: Listener[] = [];
  const listen = async (listening: Promise<Listener>): Promise<void> => {
    const listener = await listening;
    listeners.push(listener);
    opened.push(() => listener.close());
  };
  if (options.http) await listen(listenHttp(endpoint, options.http));
  if (options.tcp) await listen(listenTcp(endpoint, options.tcp));
  if (options.websocket) await listen(listenWebSocket(endpoint, options.websocket));
  telemetry.metrics.addSource(() => {
    telemetry.metrics.connections.set(listeners.reduce((sum, listener) => sum + listener.connections, 0));
    return [];
  });
  return { state, endpoint, gate, ledger, telemetry, listeners, admin, watcher, close: closeAll };
}

async function recordSwap(ledger: Ledger, telemetry: Telemetry, swap: PolicySwap): Promise<void> {
  await ledger.append({ kind: "policy", old: swap.from, new: swap.to, detail: { files: swap.files } });
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
