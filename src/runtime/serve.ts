// `portcullis serve` for applications: the endpoint that all of them share.

import cluster from "node:cluster";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { OutcomeDurability } from "../ledger/index.js";
import { isLoopbackHost } from "../mcp/index.js";
import { listenStdio } from "../mcp/transports/index.js";
import { openArchive } from "./archive.js";
import { guardAgainstStrays } from "./crash.js";
import { takeVariable } from "./environment.js";
import { CliError, EXIT } from "../lib/exit.js";
import { downstreamOAuth } from "./oauth/downstream.js";
import { type Out, paintErr } from "../lib/print.js";
import { listenerLimits, retainedLimits, type ServeLimits } from "./serve-limits.js";
import { type ShutdownTimes, stopInOrder, untilSignalled } from "./shutdown.js";
import { STORE_FILE } from "./data-directory.js";
import { openStore } from "./store/open.js";
import { isForKeysOnly, LOCAL_APP } from "./store/local-application.js";
import { asWorker, isOverseer, leave, oversee } from "./workers.js";
import { keysOrLocal } from "./identity.js";
import { checkRetention, type RetentionFlags, retentionOf, type RetentionOptions } from "./retention.js";
import { readOAuthFile } from "./oauth-file.js";
import { demonstration, loadModule, type ServedModule } from "./module.js";
import { noteServedWorkflow } from "./served-workflow.js";
import { workflowFacts, workflowHelp, workflowInForce } from "./workflow/serving.js";
import { type GatewayRuntime, type GatewayRuntimeOptions, startGateway } from "./start.js";
import { noteWaiting } from "./waiting-approvals.js";
import { answerParent } from "./worker-reports.js";

export interface ServeApplicationsOptions extends ServeLimits, RetentionFlags {
  host: string;
  port: number;
  adminPort: number;
  adminHost: string;
  adminUrl?: string;
  tcpPort?: number;
  wsPort?: number;
  policy?: string[];
  observe?: boolean;
  keepArguments?: boolean;
  stdio?: boolean;
  publish?: string;
  compressLedger: boolean;
  outcomes: OutcomeDurability;
  archive?: string;
  logLevel: string;
  allowHost?: string[];
  allowOrigin?: string[];
  storage?: string;
  storageConnections?: number;
  storageListen?: string;
  /** Seconds. */
  idleStop?: number;
  sealKey?: string;
  app?: string;
  modules?: string;
  allowPrivate?: string[];
  challengeWait: number;
  replica?: string;
  ledger?: string;
  workflow?: string;
  trustGateway?: string[];
  approvalWebhook?: string;
  workers?: number;
  readOnly?: string[];
  /** Set for workers: another says for all of them that they are up. */
  isSilent?: boolean;
  oauth?: string;
  publicUrl?: string;
  documentationUrl?: string;
  localAccess?: boolean;
  /** Seconds. */
  shutdownDelay: number;
  shutdownTimeout: number;
  maxCalls?: number;
  maxAppCalls?: number;
  maxAgentCalls?: number;
  queueDeadline?: number;
}

/** The bounds that have a flag. */
function limitsFor(options: ServeApplicationsOptions): NonNullable<GatewayRuntimeOptions["limits"]> {
  const { challengeWait, maxCalls, maxAppCalls, maxAgentCalls, queueDeadline } = options;
  return {
    challengeWaitMs: challengeWait * 1_000,
    ...(maxCalls === undefined ? {} : { maxCalls }),
    ...(maxAppCalls === undefined ? {} : { maxAppCalls }),
    ...(maxAgentCalls === undefined ? {} : { maxAgentCalls }),
    ...(queueDeadline === undefined ? {} : { queueDeadlineMs: queueDeadline }),
    ...retainedLimits(options),
  };
}

/** Where the ledger's closed files go and what stays, or undefined when everything stays. */
export async function retentionFor(options: ServeApplicationsOptions): Promise<RetentionOptions | undefined> {
  checkRetention(options.archive, options);
  return options.archive === undefined
    ? undefined
    : { ...retentionOf(options), ...(await openArchive(options.archive)) };
}

const WEBHOOK_SECRET = "PORTCULLIS_WEBHOOK_SECRET";

/**
 * The applications of a store are served when one is named, or when that of the data directory has any. The
 * demonstration has a store too: it keeps whether local access is on, and keys.
 */
export async function servesApplications(
  dir: string,
  { storage, app, oauth }: { storage?: string; app?: string; oauth?: string },
): Promise<boolean> {
  if (storage !== undefined || app !== undefined || oauth !== undefined) return true;
  const file = join(dir, STORE_FILE);
  if (!existsSync(file)) return false;
  const store = await openStore(dir, undefined, { sweepMs: 0 });
  try {
    const { items } = await store.applications.list({ limit: 2 });
    return items.some((application) => !isForKeysOnly(application));
  } finally {
    await store.close();
  }
}

/** How callers are identified, for applications and for the server of a module alike. */
function identityFor(options: ServeApplicationsOptions): GatewayRuntimeOptions["identity"] {
  return keysOrLocal({
    localApp: options.app ?? LOCAL_APP,
    isLoopback: isLoopbackHost(options.host),
    allow: options.allowPrivate ?? [],
    ...(options.allowHost === undefined ? {} : { allowHost: options.allowHost }),
    ...(options.localAccess === undefined ? {} : { localAccess: options.localAccess }),
    ...(options.publicUrl === undefined ? {} : { publicUrl: options.publicUrl }),
    ...(options.oauth === undefined ? {} : { oauth: readOAuthFile(options.oauth) }),
  });
}

/** For the start-up message: who may call, and how to change it. */
function accessHelp(isLocalAccessOn: boolean, app: string): string {
  return isLocalAccessOn
    ? `Local access is on: programs on this machine call without a credential, as the user who started the gateway.
It ends for good when the first API key or issuer is added: portcullis key add ${app} --name NAME --allow 'invoke(*)' list
Switch it off with \`portcullis serve --no-local-access\`.`
    : `Local access is off: callers send an API key. Create one: portcullis key add ${app} --name NAME --allow 'invoke(*)' list`;
}

export function runtimeOptions(
  dir: string,
  options: ServeApplicationsOptions,
  served?: ServedModule,
): GatewayRuntimeOptions {
  const { host } = options;
  const allowed = {
    ...(options.allowHost ? { allowedHosts: options.allowHost } : {}),
    ...(options.allowOrigin ? { allowedOrigins: options.allowOrigin } : {}),
    ...listenerLimits(options),
  };
  return {
    stateDir: dir,
    ...(options.storage === undefined ? {} : { storage: options.storage }),
    ...(options.storageConnections === undefined ? {} : { storageConnections: options.storageConnections }),
    ...(options.storageListen === undefined ? {} : { storageListen: options.storageListen }),
    ...(options.idleStop === undefined ? {} : { idleStopMs: options.idleStop * 1_000 }),
    ...(options.sealKey === undefined ? {} : { sealKey: options.sealKey }),
    ...(options.policy ? { policyPaths: options.policy } : {}),
    ...(options.modules === undefined ? {} : { modules: options.modules.split(",").filter((name) => name !== "") }),
    ...(options.replica === undefined ? {} : { replica: options.replica }),
    ...(options.ledger === undefined ? {} : { ledgerDir: options.ledger }),
    ...(options.oauth === undefined ? {} : { secretFiles: [options.oauth] }),
    ...(options.workflow === undefined ? {} : { ruleFiles: [options.workflow] }),
    ...(options.publish === undefined ? {} : { publishCheckpoints: options.publish }),
    compressLedger: options.compressLedger,
    outcomes: options.outcomes,
    observe: options.observe ?? false,
    keepArguments: options.keepArguments ?? false,
    allow: options.allowPrivate ?? [],
    telemetry: { log: { level: options.logLevel as "info" } },
    limits: { ...served?.gatewayLimits, ...limitsFor(options) },
    ...inProcessOptions(options, served),
    ...(options.approvalWebhook === undefined ? {} : { webhook: webhookOf(options.approvalWebhook) }),
    ...(options.publicUrl === undefined ? {} : { publicUrl: options.publicUrl }),
    ...(options.documentationUrl === undefined ? {} : { documentationUrl: options.documentationUrl }),
    oauth: downstreamOAuth({ allow: options.allowPrivate ?? [], publicUrl: options.publicUrl }),
    identity: identityFor(options),
    ...(options.stdio
      ? {}
      : {
          http: { host, port: options.port, ...allowed },
        }),
    ...(options.tcpPort === undefined ? {} : { tcp: { host, port: options.tcpPort, ...listenerLimits(options) } }),
    ...(options.wsPort === undefined ? {} : { websocket: { host, port: options.wsPort, ...allowed } }),
    ...(options.adminUrl === undefined ? {} : { adminUrl: options.adminUrl }),
    adminPort: options.stdio ? 0 : options.adminPort,
    admin: { host: options.adminHost, port: options.stdio ? 0 : options.adminPort },
  };
}

function inProcessOptions(
  options: ServeApplicationsOptions,
  served: ServedModule | undefined,
): Pick<GatewayRuntimeOptions, "inProcess" | "starterPolicy"> {
  if (!served) return {};
  const { policies, starterPolicy, ...rest } = served;
  return {
    inProcess: {
      ...rest,
      app: options.app ?? LOCAL_APP,
      ...(options.readOnly ? { readOnlyTools: options.readOnly } : {}),
      // The files that an operator names replace the module's own policy.
      ...(policies && !options.policy ? { policies } : {}),
    },
    // A workflow brings its own policy.
    ...(starterPolicy && options.workflow === undefined ? { starterPolicy } : {}),
  };
}

function webhookOf(url: string): { url: string; secret: string } {
  const secret = takeVariable(WEBHOOK_SECRET) ?? "";
  if (secret.length >= 16) return { url, secret };
  const remedy = `set ${WEBHOOK_SECRET} to a text of at least 16 characters that the receiver knows too`;
  throw new CliError("a webhook has to be signed", EXIT.usage, remedy);
}

/** Serves the applications of the store, and beside them `module` or, where there are none, the demonstration. */
export async function serve(
  dir: string,
  module: string | undefined,
  given: ServeApplicationsOptions,
  out: Out,
): Promise<void> {
  if (isOverseer(given)) {
    if (given.stdio) {
      throw new CliError("--workers cannot be combined with --stdio", EXIT.usage, "remove one of them");
    }
    process.exitCode = await oversee(given.workers ?? 1);
    return;
  }
  try {
    await serveHere(dir, module, asWorker(dir, given), out);
  } finally {
    leave();
  }
}

async function inProcessFor(
  dir: string,
  module: string | undefined,
  options: ServeApplicationsOptions,
): Promise<ServedModule | undefined> {
  if (module !== undefined) return loadModule(module, options.app ?? LOCAL_APP);
  return (await servesApplications(dir, options)) ? undefined : demonstration();
}

async function serveHere(
  dir: string,
  module: string | undefined,
  options: ServeApplicationsOptions,
  out: Out,
): Promise<void> {
  const { workflow: file, trustGateway: trusted, app, observe } = options;
  const workflow = file
    ? await workflowInForce({ file, stateDir: dir, trusted, app, despiteViolations: observe })
    : undefined;
  if (file) noteServedWorkflow(dir, file);
  const served = await inProcessFor(dir, module, options);
  const runtime = await startGateway({
    ...runtimeOptions(dir, options, served),
    retention: await retentionFor(options),
    workflow,
  });
  const { admin } = runtime;
  runtime.approvals.onOpen((challenge) => noteWaiting(runtime, challenge));
  if (cluster.isWorker && admin) answerParent((part) => admin.report(part));
  process.on("SIGHUP", () => void runtime.reloadPolicies());
  const stopped = untilSignalled();
  const unguard = guardAgainstStrays(() => runtime.close());
  if (options.stdio) {
    const listener = await listenStdio(runtime.tenantRouter);
    await Promise.race([listener.closed, stopped]);
    await listener.close(shutdownTimes(options).callMs);
  } else {
    const applications = await servedApplications(runtime, served && (app ?? LOCAL_APP));
    const facts = {
      urls: runtime.listeners.map((listener) => listener.url),
      admin: runtime.admin?.url,
      state: runtime.state.dir,
      storage: runtime.storage.kind,
      applications,
      policy: runtime.policy.hash,
      localAccess: runtime.isLocalAccessOn,
      pid: process.pid,
      ...workflowFacts(workflow),
    };
    if (options.isSilent !== true) {
      const isDemonstration = served !== undefined && module === undefined;
      const text = (): string => welcome(runtime, applications, options, isDemonstration);
      out.data(facts, () => `${text()}${workflowHelp(workflow)}`);
    }
    await stopped;
  }
  await stopInOrder(runtime, shutdownTimes(options));
  unguard();
}

async function servedApplications(runtime: GatewayRuntime, inProcess: string | undefined): Promise<string[]> {
  const { items } = await runtime.storage.applications.list({ limit: 100 });
  return [...new Set([...(inProcess === undefined ? [] : [inProcess]), ...items.map(({ id }) => id)])];
}

/** On stdio there is no balancer to wait for. */
function shutdownTimes(options: ServeApplicationsOptions): ShutdownTimes {
  const { shutdownDelay, shutdownTimeout, stdio } = options;
  return { delayMs: stdio ? 0 : shutdownDelay * 1_000, callMs: shutdownTimeout * 1_000 };
}

/** What an operator needs next: the addresses, how to connect a client, and the first commands. */
function welcome(
  runtime: GatewayRuntime,
  applications: readonly string[],
  options: ServeApplicationsOptions,
  isDemonstration: boolean,
): string {
  const { bold, yellow } = paintErr;
  const { state, policy, watcher } = runtime;
  const names = applications.length === 0 ? "none yet: portcullis app add NAME" : applications.join(", ");
  return [
    `${bold("Portcullis")} is up${options.observe ? yellow(" and only observing: nothing is denied") : ""}.`,
    "",
    ...runtime.listeners.map((listener) => `  MCP           ${listener.url}`),
    `  admin         ${runtime.admin?.url}  (/metrics /livez /readyz)`,
    `  applications  ${names}`,
    `  policy        ${watcher.files.join(", ")}`,
    `                ${policy.rules.length} rules, ${policy.hash.slice(0, 12)}; a saved change applies at once`,
    `  ledger        ${state.ledgerDir}`,
    ...(state.isNew ? ["", `  Created the data directory ${state.dir}`] : []),
    "",
    options.oauth === undefined
      ? accessHelp(runtime.isLocalAccessOn, applications[0] ?? "APP")
      : `Callers send a key of their application, or a token of an issuer in ${options.oauth}.`,
    ...connectHelp(runtime),
    ...(isDemonstration ? DEMONSTRATION_HELP : []),
    "",
    "Stop with Ctrl-C.",
  ].join("\n");
}

/** Callers without a credential need no more than the address. */
function connectHelp({ listeners, isLocalAccessOn }: GatewayRuntime): string[] {
  const url = listeners.find((listener) => listener.url.startsWith("http"))?.url;
  if (!isLocalAccessOn || url === undefined) return [];
  const config = JSON.stringify({ mcpServers: { portcullis: { type: "http", url } } }, null, 2);
  return ["", "Paste into your client's configuration:", "", config];
}

const DEMONSTRATION_HELP = [
  "",
  "Then, in another terminal (add --url if you chose another port):",
  "",
  `  portcullis ls                                            list the tools that may be called`,
  `  portcullis call math.add '{"a":1,"b":2}'                 a permitted call`,
  `  portcullis call shell.run '{"command":"ls"}'             a denied call`,
  `  portcullis call notes.delete '{"title":"demo/x"}'        a call that needs your approval`,
  `  portcullis approvals ls                                  approve it: portcullis approve ID`,
  `  portcullis audit tail                                    what was decided, and why`,
  "",
  "From a clone, write `node dist/cli/main.js` for `portcullis`.",
];
