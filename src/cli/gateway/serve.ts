// `portcullis serve` for applications: the endpoint that all of them share.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { listenStdio } from "../../transport/index.js";
import { guardAgainstStrays } from "../crash.js";
import { CliError, EXIT } from "../exit.js";
import { downstreamOAuth } from "../oauth/downstream.js";
import { type Out, paintErr } from "../print.js";
import { asWorker, isOverseer, leave, oversee } from "./workers.js";
import { keysOrLocal } from "./identity.js";
import { readOAuthFile } from "./oauth-file.js";
import { noteServedWorkflow } from "../served-workflow.js";
import { workflowFacts, workflowHelp, workflowInForce } from "../workflow/serving.js";
import { type GatewayRuntime, type GatewayRuntimeOptions, startGateway } from "./runtime.js";

export interface ServeApplicationsOptions {
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
  logLevel: string;
  allowHost?: string[];
  allowOrigin?: string[];
  storage?: string;
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
  /** Set for workers: another says for all of them that they are up, and has the admin port. */
  isSilent?: boolean;
  withoutAdmin?: boolean;
  oauth?: string;
  publicUrl?: string;
}

const WEBHOOK_SECRET = "PORTCULLIS_WEBHOOK_SECRET";
const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);

/** The working folder holds a store, or one was named: then its applications are served. */
export function servesApplications(dir: string, options: { storage?: string; app?: string; oauth?: string }): boolean {
  const { storage, app, oauth } = options;
  return storage !== undefined || app !== undefined || oauth !== undefined || existsSync(join(dir, "portcullis.db"));
}

export function runtimeOptions(dir: string, options: ServeApplicationsOptions): GatewayRuntimeOptions {
  const { host } = options;
  const isLoopback = LOOPBACK.has(host);
  return {
    stateDir: dir,
    ...(options.storage === undefined ? {} : { storage: options.storage }),
    ...(options.sealKey === undefined ? {} : { sealKey: options.sealKey }),
    ...(options.policy ? { policyPaths: options.policy } : {}),
    ...(options.modules === undefined ? {} : { modules: options.modules.split(",").filter((name) => name !== "") }),
    ...(options.replica === undefined ? {} : { replica: options.replica }),
    ...(options.ledger === undefined ? {} : { ledgerDir: options.ledger }),
    ...(options.publish === undefined ? {} : { publishCheckpoints: options.publish }),
    observe: options.observe ?? false,
    keepArguments: options.keepArguments ?? false,
    allow: options.allowPrivate ?? [],
    telemetry: { log: { level: options.logLevel as "info" } },
    limits: { challengeWaitMs: options.challengeWait * 1_000 },
    ...(options.approvalWebhook === undefined ? {} : { webhook: webhookOf(options.approvalWebhook) }),
    oauth: downstreamOAuth({ allow: options.allowPrivate ?? [], publicUrl: options.publicUrl }),
    identity: keysOrLocal({
      localApp: options.app ?? "local",
      isLoopback,
      allow: options.allowPrivate ?? [],
      ...(options.publicUrl === undefined ? {} : { publicUrl: options.publicUrl }),
      ...(options.oauth === undefined ? {} : { oauth: readOAuthFile(options.oauth) }),
    }),
    ...(options.stdio
      ? {}
      : {
          http: {
            host,
            port: options.port,
            ...(options.allowHost ? { allowedHosts: options.allowHost } : {}),
            ...(options.allowOrigin ? { allowedOrigins: options.allowOrigin } : {}),
          },
        }),
    ...(options.tcpPort === undefined ? {} : { tcp: { host, port: options.tcpPort } }),
    ...(options.wsPort === undefined ? {} : { websocket: { host, port: options.wsPort } }),
    ...(options.adminUrl === undefined ? {} : { adminUrl: options.adminUrl }),
    ...(options.withoutAdmin === true
      ? {}
      : {
          admin: {
            host: options.adminHost,
            port: options.stdio ? 0 : options.adminPort,
          },
        }),
  };
}

function webhookOf(url: string): { url: string; secret: string } {
  const secret = process.env[WEBHOOK_SECRET] ?? "";
  if (secret.length >= 16) return { url, secret };
  const remedy = `set ${WEBHOOK_SECRET} to a text of at least 16 characters that the receiver knows too`;
  throw new CliError("a webhook has to be signed", EXIT.usage, remedy);
}

export async function serveApplications(dir: string, given: ServeApplicationsOptions, out: Out): Promise<void> {
  if (isOverseer(given)) {
    if (given.stdio) throw new CliError("stdio has one peer, so one process", EXIT.usage, "leave --workers away");
    process.exitCode = await oversee(given.workers ?? 1);
    return;
  }
  try {
    await serveHere(dir, asWorker(dir, given), out);
  } finally {
    leave();
  }
}

async function serveHere(dir: string, options: ServeApplicationsOptions, out: Out): Promise<void> {
  const { workflow: file, trustGateway: trusted, app, observe } = options;
  const workflow = file
    ? await workflowInForce({ file, stateDir: dir, trusted, app, despiteViolations: observe })
    : undefined;
  if (file) noteServedWorkflow(dir, file);
  const runtime = await startGateway({ ...runtimeOptions(dir, options), workflow });
  const stopped = untilStopped(runtime);
  const unguard = guardAgainstStrays(() => runtime.close());
  if (options.stdio) {
    const listener = await listenStdio(runtime.lobby);
    await Promise.race([listener.closed, stopped]);
  } else {
    const { items } = await runtime.storage.applications.list({ limit: 100 });
    const facts = {
      urls: runtime.listeners.map((listener) => listener.url),
      admin: runtime.admin?.url,
      state: runtime.state.dir,
      storage: runtime.storage.kind,
      applications: items.map((application) => application.id),
      policy: runtime.policy.hash,
      pid: process.pid,
      ...workflowFacts(workflow),
    };
    if (options.isSilent !== true)
      out.data(facts, () => `${welcome(runtime, facts.applications, options)}${workflowHelp(workflow)}`);
    await stopped;
  }
  await runtime.close();
  unguard();
}

function welcome(runtime: GatewayRuntime, applications: readonly string[], options: ServeApplicationsOptions): string {
  const { bold, yellow } = paintErr;
  const names = applications.length === 0 ? "none yet: portcullis app add NAME" : applications.join(", ");
  return [
    `${bold("Portcullis")} is up${options.observe ? yellow(" and only observing: nothing is denied") : ""}.`,
    "",
    ...runtime.listeners.map((listener) => `  MCP           ${listener.url}`),
    `  admin         ${runtime.admin?.url}  (/metrics /healthz /readyz)`,
    `  applications  ${names}`,
    `  policy        ${runtime.watcher.files.join(", ")}`,
    `  ledger        ${runtime.state.ledgerDir}`,
    "",
    options.oauth === undefined
      ? "Callers send a key of their application: portcullis key add. Without any key, this machine's user may call."
      : `Callers send a key of their application, or a token of an issuer in ${options.oauth}.`,
    "Stop with Ctrl-C.",
  ].join("\n");
}

/** SIGHUP reads the policy again; SIGINT and SIGTERM end everything in order. */
function untilStopped(runtime: GatewayRuntime): Promise<void> {
  return new Promise((resolve) => {
    process.on("SIGHUP", () => void runtime.watcher.reload());
    process.once("SIGINT", () => resolve());
    process.once("SIGTERM", () => resolve());
  });
}
