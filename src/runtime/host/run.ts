// `portcullis host`: the application `host` on stdio, started like every other one. What is its own: policy.yaml, the
// audit file beside the ledger, and where its ledgers are.

import { appendFileSync, existsSync, mkdirSync, renameSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { localIdentity } from "../../auth/index.js";
import { type AuditSummary, closeProcess, closeSharedSandbox, type Policy } from "../../host/index.js";
import type { Level, Telemetry } from "../../telemetry/index.js";
import { runUntilStopped } from "../process.js";
import { type GatewayRuntime, startGateway } from "../start.js";
import { hostApplication } from "./application.js";
import { readText } from "./config/edit.js";
import { type HostFileOptions, type HostFiles, hostFiles, noteServedPolicy, requireFile } from "./config/files.js";
import { checkHostPolicy, opennessOf, policyProblemsOf, requireClient, requireClosed } from "./config/read.js";
import { HOST_APP, HOST_STARTER } from "./starter-policy.js";

export interface HostOptions extends HostFileOptions {
  client?: string;
  metricsPort?: number;
  logLevel?: string;
  reload?: boolean;
  observe?: boolean;
  keepArguments?: boolean;
  /** Seconds. */
  challengeWait: number;
}

/** A file of the largest size a policy may allow, as base64 in JSON, with a margin. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const CALL_MS = 5_000;

export async function runHost(options: HostOptions): Promise<void> {
  closeProcess();
  const files = hostFiles(options);
  const first = readPolicy(files, options.client);
  // The starter of this process named the client; what the client calls itself counts for nothing.
  const identify = localIdentity({
    app: HOST_APP,
    ...(options.client === undefined ? {} : { agent: options.client }),
  });
  const { agent } = await identify({ transport: "stdio", address: "" }, undefined);
  let runtime: GatewayRuntime | undefined;
  let writeAudit: (line: AuditSummary) => void = () => {};
  const application = hostApplication({
    files,
    agent,
    client: options.client,
    first,
    audit: (line) => writeAudit(line),
    onPolicy: (policy) => {
      if (runtime === undefined) return;
      writeAudit = auditTo(policy, files, runtime.telemetry);
      runtime.telemetry.log.level = levelOf(options, policy);
    },
  });
  const { metricsPort = 0 } = options;
  runtime = await startGateway({
    ...application,
    stateDir: files.state,
    starterPolicy: HOST_STARTER,
    modules: [],
    observe: options.observe ?? false,
    keepArguments: options.keepArguments ?? false,
    ledgers: (nth) => ({ name: `host-${nth - 1}`, dir: join(files.state, "ledger", String(nth - 1)) }),
    identity: async () => ({ isLocalAccessOn: true, identify, close: async () => {} }),
    limits: { maxResultBytes: MAX_MESSAGE_BYTES, challengeWaitMs: options.challengeWait * 1_000 },
    // Every client starts a host of its own: one that finds the port taken serves all the same.
    admin: { host: "127.0.0.1", port: metricsPort, orAny: true },
    telemetry: { log: { level: levelOf(options, first.policy) } },
  });
  noteServedPolicy(files);
  const { telemetry, admin } = runtime;
  writeAudit = auditTo(first.policy, files, telemetry);
  for (const notice of first.policy.notices) telemetry.log.notice(notice);
  const open = opennessOf(files.config);
  if (open !== undefined) telemetry.log.warning(open.detail, { remedy: open.remedy });
  if (admin && options.metricsPort !== undefined) telemetry.log.notice("metrics", { url: `${admin.url}/metrics` });
  if (process.stdin.isTTY) {
    process.stderr.write(
      "This is a server for an MCP client: it reads JSON-RPC, one message per line. Ctrl-D ends it.\n",
    );
  }
  const limits = { maxMessageBytes: MAX_MESSAGE_BYTES, maxBufferedBytes: MAX_MESSAGE_BYTES };
  await runUntilStopped(runtime, { stdio: { limits }, reload: options.reload === true, delayMs: 0, callMs: CALL_MS });
  await closeSharedSandbox();
}

/** The line beside the ledger. A call that ran has run: when its line cannot be written, that is logged, not undone. */
function auditTo(policy: Policy, files: HostFiles, telemetry: Telemetry): (line: AuditSummary) => void {
  const { file, maxBytes, maxFiles } = policy.logging;
  const write = auditFile(expand(file ?? join(files.state, "audit.jsonl")), { maxBytes, maxFiles });
  return (line) => {
    try {
      write(line);
    } catch (error) {
      telemetry.log.error("audit line not written", { problem: (error as Error).message });
    }
  };
}

function levelOf(options: HostOptions, policy: Policy): Level {
  if (options.logLevel !== undefined) return options.logLevel as Level;
  const { level } = policy.logging;
  return level === "warn" ? "warning" : level;
}

function expand(path: string): string {
  return path.startsWith("~/") ? join(homedir(), path.slice(2)) : resolve(path);
}

function readPolicy(files: HostFiles, client: string | undefined): { text: string; policy: Policy } {
  requireFile(files.config);
  requireClosed(files.config);
  const text = readText(files.config);
  const loaded = checkHostPolicy(text, files);
  if (!loaded.ok) throw policyProblemsOf(files.config, loaded.problems);
  requireClient(loaded.policy, client);
  return { text, policy: loaded.policy };
}

interface AuditFileOptions {
  /** The file is rotated before it grows past this. */
  readonly maxBytes: number;
  /** Rotated files that are kept. */
  readonly maxFiles: number;
}

function auditFile(path: string, { maxBytes, maxFiles }: AuditFileOptions): (line: object) => void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  return (line) => {
    const text = Buffer.from(`${JSON.stringify(line)}\n`);
    // Asked each time: several hosts may write to one file.
    const bytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
    if (bytes > 0 && bytes + text.length > maxBytes) rotate(path, maxFiles);
    appendFileSync(path, text, { mode: 0o600 });
  };
}

/** With five kept: path.5 goes, path.4 becomes path.5, …, path becomes path.1. */
function rotate(path: string, kept: number): void {
  rmSync(`${path}.${kept}`, { force: true });
  for (let n = kept - 1; n >= 0; n--) {
    const from = n === 0 ? path : `${path}.${n}`;
    if (existsSync(from)) renameSync(from, `${path}.${n + 1}`);
  }
}
