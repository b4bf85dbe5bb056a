// `portcullis serve` for applications: the endpoint that all of them share.

import cluster from "node:cluster";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { CliError, EXIT } from "../lib/exit.js";
import { counted, type Out, paintErr } from "../lib/print.js";
import { isLoopbackHost } from "../mcp/index.js";
import { defined, limitsOf, type Settings } from "./config.js";
import { STORE_FILE } from "./data-directory.js";
import { takeVariable } from "./environment.js";
import { keysOrLocal, readOAuthFile } from "./identity.js";
import { demonstration, loadModule, type ServedModule } from "./module.js";
import { downstreamOAuth } from "./oauth/downstream.js";
import { runUntilStopped } from "./process.js";
import { openArchive, type RetentionOptions, retentionOf } from "./retention.js";
import { type GatewayRuntime, type GatewayRuntimeOptions, startGateway } from "./start.js";
import { isForKeysOnly, LOCAL_APP, openStore } from "./store/open.js";
import { answerParent, asWorker, isOverseer, leave, oversee } from "./workers.js";
import { noteServedWorkflow } from "./workflow/load.js";
import { workflowFacts, workflowHelp, workflowInForce } from "./workflow/serving.js";

/** `isSilent` is set for workers: another announces for all of them that they serve. */
export type ServeSettings = Settings & {
  readonly isSilent?: boolean;
  /** The file that the settings were read from, where one was named. */
  readonly config?: string | undefined;
};

/** Where closed files of the ledger go and what stays; undefined when everything stays. */
async function retentionFor(settings: ServeSettings): Promise<RetentionOptions | undefined> {
  const { archive, keepDays, keepSize } = settings;
  if (archive !== undefined) return { ...retentionOf(settings), ...(await openArchive(archive)) };
  if (keepDays === undefined && keepSize === undefined) return undefined;
  throw new CliError("--keep-days and --keep-size need --archive", EXIT.usage, "name where pruned records go");
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

/** For the start-up message: which callers are accepted, and how to change it. */
function accessHelp(isLocalAccessOn: boolean, app: string): string {
  return isLocalAccessOn
    ? `Local access is on: programs on this machine call without a credential, as the user who started the gateway.
It ends for good when the first API key or issuer is added: portcullis key add ${app} --name NAME --allow 'invoke(*)' list
Switch it off with \`portcullis serve --no-local-access\`.`
    : `Local access is off: callers send an API key. Create one: portcullis key add ${app} --name NAME --allow 'invoke(*)' list`;
}

export function runtimeOptions(dir: string, settings: ServeSettings, served?: ServedModule): GatewayRuntimeOptions {
  const { host, stdio, tcpPort, wsPort, adminHost, logLevel, archive: _archive, workflow, config, ...rest } = settings;
  const { allowPrivate: allow = [], approvalWebhook, oauth, publicUrl, localAccess } = rest;
  const limits = defined({
    maxConnections: rest.maxConnections,
    maxConnectionsPerAddress: rest.addressConnections,
    maxMessageBytes: rest.maxMessageBytes,
  });
  const web = { limits, allowedHosts: rest.allowHost, allowedOrigins: rest.allowOrigin };
  const adminPort = stdio ? 0 : rest.adminPort;
  const { policies, starterPolicy, gatewayLimits, file: _file, ...inProcess } = served ?? {};
  return {
    ...rest,
    stateDir: dir,
    secretFiles: oauth === undefined ? [] : [oauth],
    ruleFiles: [config, workflow, served?.file].filter((file) => file !== undefined),
    telemetry: { log: { level: logLevel } },
    limits: { ...gatewayLimits, ...limitsOf(settings) },
    inProcess: served && {
      ...inProcess,
      server: served.server,
      app: settings.app ?? LOCAL_APP,
      readOnlyTools: settings.readOnly,
      // The files that an operator names replace the module's own policy.
      policies: settings.policy ? undefined : policies,
    },
    // A workflow brings its own policy.
    starterPolicy: workflow === undefined ? starterPolicy : undefined,
    webhook: approvalWebhook === undefined ? undefined : webhookOf(approvalWebhook),
    oauthClient: downstreamOAuth({ allow, publicUrl }),
    identity: keysOrLocal({
      localApp: settings.app ?? LOCAL_APP,
      isLoopback: isLoopbackHost(host),
      allowHost: rest.allowHost,
      oauth: oauth === undefined ? undefined : readOAuthFile(oauth),
      ...{ allow, localAccess, publicUrl },
    }),
    http: stdio ? undefined : { host, port: rest.port, ...web },
    tcp: tcpPort === undefined ? undefined : { host, port: tcpPort, limits },
    websocket: wsPort === undefined ? undefined : { host, port: wsPort, ...web },
    adminPort,
    admin: { host: adminHost, port: adminPort },
  };
}

function webhookOf(url: string): { url: string; secret: string } {
  const secret = takeVariable(WEBHOOK_SECRET) ?? "";
  if (secret.length >= 16) return { url, secret };
  const remedy = `set ${WEBHOOK_SECRET} to a text of at least 16 characters that the receiver knows too`;
  throw new CliError("a webhook has to be signed", EXIT.usage, remedy);
}

/**
 * V8 optimizes a function when it has run through so many bytes of bytecode. With a third of the usual number a gateway is
 * at its speed sooner: the CPU of its first 5,000 calls is a tenth less. The name and the usual number belong to this
 * version of V8; other versions keep theirs.
 */
function optimizeSooner(): void {
  if (process.versions.v8.startsWith("11.3.")) setFlagsFromString("--interrupt-budget=40000");
}

/** Serves the applications of the store, and beside them `module` or, where there are none, the demonstration. */
export async function serve(dir: string, module: string | undefined, given: ServeSettings, out: Out): Promise<void> {
  if (isOverseer(given)) {
    if (given.stdio) {
      throw new CliError("--workers cannot be combined with --stdio", EXIT.usage, "remove one of them");
    }
    process.exitCode = await oversee(given.workers ?? 1);
    return;
  }
  optimizeSooner();
  try {
    await serveHere(dir, module, asWorker(dir, given), out);
  } finally {
    leave();
  }
}

async function inProcessFor(
  dir: string,
  module: string | undefined,
  options: ServeSettings,
): Promise<ServedModule | undefined> {
  if (module !== undefined) return loadModule(module, options.app ?? LOCAL_APP);
  return (await servesApplications(dir, options)) ? undefined : demonstration();
}

async function serveHere(dir: string, module: string | undefined, options: ServeSettings, out: Out): Promise<void> {
  const { workflow: file, trustGateway: trusted, app, observe } = options;
  const workflow =
    file === undefined
      ? undefined
      : await workflowInForce({ file, stateDir: dir, trusted, app, despiteViolations: observe });
  if (file) noteServedWorkflow(dir, file);
  const served = await inProcessFor(dir, module, options);
  const runtime = await startGateway({
    ...runtimeOptions(dir, options, served),
    retention: await retentionFor(options),
    workflow,
    isDemonstration: served !== undefined && module === undefined,
  });
  const { admin } = runtime;
  if (cluster.isWorker && admin) answerParent((part) => admin.report(part));
  const announce = async (): Promise<void> => {
    const found = await servedApplications(runtime, served && (app ?? LOCAL_APP));
    const applications = [...found.keys()];
    const facts = {
      urls: runtime.listeners.map((listener) => listener.url),
      admin: admin?.url,
      state: runtime.state.dir,
      storage: runtime.storage.kind,
      applications,
      policy: runtime.policy.hash,
      localAccess: runtime.isLocalAccessOn,
      pid: process.pid,
      ...workflowFacts(workflow),
    };
    const isDemonstration = served !== undefined && module === undefined;
    out.data(facts, () => `${welcome(runtime, found, options, isDemonstration)}${workflowHelp(workflow)}`);
  };
  const { stdio, isSilent, shutdownDelay, shutdownTimeout } = options;
  await runUntilStopped(runtime, {
    reload: true,
    stdio: stdio ? { limits: defined({ maxMessageBytes: options.maxMessageBytes }) } : undefined,
    // On stdio there is no balancer to wait for.
    delayMs: stdio ? 0 : shutdownDelay * 1_000,
    callMs: shutdownTimeout * 1_000,
    onReady: stdio || isSilent ? undefined : announce,
  });
}

/** How long the link that is printed at the start can be used. */
const CONSOLE_LINK_MS = 10 * 60_000;

/** Each application with the names of its own policies. */
async function servedApplications(
  runtime: GatewayRuntime,
  inProcess: string | undefined,
): Promise<Map<string, readonly string[]>> {
  const { items } = await runtime.storage.applications.list({ limit: 100 });
  const found = new Map<string, readonly string[]>(inProcess === undefined ? [] : [[inProcess, []]]);
  for (const { id, document } of items) found.set(id, Object.keys(document.policies ?? {}));
  return found;
}

/** What an operator needs next: the addresses, how to connect a client, and the first commands. */
function welcome(
  runtime: GatewayRuntime,
  applications: ReadonlyMap<string, readonly string[]>,
  options: ServeSettings,
  isDemonstration: boolean,
): string {
  const { bold, yellow } = paintErr;
  const { state, policy, watcher } = runtime;
  const names = [...applications].map(([app, own]) => (own.length === 0 ? app : `${app} (${own.join(", ")})`));
  return [
    `${bold("Portcullis")} is up${options.observe ? yellow(" and only observing: nothing is denied") : ""}.`,
    "",
    ...runtime.listeners.map((listener) => `  MCP           ${listener.url}`),
    `  admin         ${runtime.admin?.url}  (/metrics /livez /readyz)`,
    ...consoleHelp(runtime),
    `  applications  ${names.length === 0 ? "none yet: portcullis app add NAME" : names.join(", ")}`,
    `  policy        ${watcher.files.join(", ")}`,
    `                ${counted(policy.rules.length, "rule")} for all applications, ${policy.hash.slice(0, 12)}; a saved change applies at once`,
    `  ledger        ${state.ledgerDir}`,
    ...(state.isNew ? ["", `  Created the data directory ${state.dir}`] : []),
    "",
    options.oauth === undefined
      ? accessHelp(runtime.isLocalAccessOn, [...applications.keys()][0] ?? "APP")
      : `Callers send a key of their application, or a token of an issuer in ${options.oauth}.`,
    ...connectHelp(runtime),
    ...(isDemonstration ? DEMONSTRATION_HELP : []),
    "",
    "Stop with Ctrl-C.",
  ].join("\n");
}

/** A log is read by others, and later: only a terminal gets a link that signs in, once. */
function consoleHelp({ admin }: GatewayRuntime): string[] {
  if (!admin) return [];
  const link = process.stdout.isTTY ? admin.signInLink(CONSOLE_LINK_MS) : undefined;
  return [`  console       ${link ?? `${admin.url}/console/  (signed in: portcullis console)`}`];
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
  `  portcullis ls                                       list the tools`,
  `  portcullis call math.add '{"a":1,"b":2}'            a permitted call`,
  `  portcullis call shell.run '{"command":"ls"}'        a denied call`,
  `  portcullis call notes.delete '{"title":"demo/x"}'   needs your approval`,
  `  portcullis approvals ls                             then portcullis approve ID`,
  `  portcullis audit tail                               what was decided, and why`,
  "",
  "From a clone, write `node dist/cli/main.js` for `portcullis`.",
];
