// `portcullis host`: three hardened tools on stdio, decided by policy.yaml, on record like everything else.

import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { type AdminListener, startAdmin } from "../admin/index.js";
import { createGate, type Gate } from "../gate/index.js";
import { createGateway } from "../gateway/index.js";
import { type AuditSummary, closeProcess, closeSharedSandbox, type Policy, policyFor } from "../host/index.js";
import { localIdentity } from "../identity/index.js";
import { type Ledger, LedgerLocked, openLedger } from "../ledger/index.js";
import { createTelemetry, type Level, type Telemetry } from "../telemetry/index.js";
import { listenStdio } from "../transport/index.js";
import { auditFile } from "./audit-file.js";
import { CliError } from "./exit.js";
import { type HostFileOptions, type HostFiles, hostFiles } from "./host-config/files.js";
import { loadHostPolicy, problemsOf, requireClient, requireFile } from "./host-config/read.js";
import { opennessOf, requireClosed } from "./host-config/ownership.js";
import { hostPolicySet } from "./host-gate.js";
import { hostServer } from "./host-server.js";
import { Health } from "./health.js";
import { untilSignalled } from "./shutdown.js";

export interface HostOptions extends HostFileOptions {
  client?: string;
  metricsPort?: number;
  logLevel?: string;
  reload?: boolean;
}

/** A file of the largest size a policy may allow, as base64 in JSON, with room to spare. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const MAX_LEDGERS = 64;

export async function runHost(options: HostOptions): Promise<void> {
  closeProcess();
  const files = hostFiles(options);
  // Whoever started us said which client this is; the client itself is not asked.
  const identify = localIdentity(options.client === undefined ? {} : { agent: options.client });
  const { agent } = await identify({ transport: "stdio", address: "" }, undefined);
  let policy = readPolicy(files, options.client);
  const telemetry = createTelemetry({ log: { level: levelOf(options, policy) } });
  for (const notice of policy.notices) telemetry.log.notice(notice);
  const open = opennessOf(files.config);
  if (open !== undefined) telemetry.log.warning(open.detail, { remedy: open.remedy });
  mkdirSync(join(files.state, "ledger"), { recursive: true, mode: 0o700 });
  const ledger = await openFreeLedger(join(files.state, "ledger"));
  let writeAudit = auditTo(policy, files, telemetry);
  const { server, voice, announce } = hostServer(
    () => policy,
    (line) => writeAudit(line),
  );
  announce(agent);
  const tools = new Set(server.tools.keys());
  const gate: Gate = createGate({ policy: hostPolicySet(policyFor(policy, agent).hash, tools), voices: [voice] });
  ledger.appendSoon({ kind: "policy", old: null, new: gate.policy.hash, detail: { files: [files.config] } });
  const endpoint = createGateway({
    server,
    gate,
    ledger,
    identify,
    telemetry,
    plainMethods: tools,
    limits: { maxResultBytes: MAX_MESSAGE_BYTES },
  });
  if (options.reload) {
    process.on("SIGHUP", () => {
      try {
        const next = readPolicy(files, options.client);
        const hash = policyFor(next, agent).hash;
        const audit = auditTo(next, files, telemetry);
        ledger.appendSoon({ kind: "policy", old: gate.policy.hash, new: hash, detail: { files: [files.config] } });
        // In one breath: the rules and the name they are recorded under.
        policy = next;
        gate.swap(hostPolicySet(hash, tools));
        announce(agent);
        writeAudit = audit;
        telemetry.log.level = levelOf(options, next);
        telemetry.metrics.policyReloads.inc();
        telemetry.log.notice("policy in force", { policy: hash });
      } catch (error) {
        const { message, help = "" } = error as CliError;
        telemetry.log.error("the new policy is refused, the old one stays", { problem: `${message}\n${help}`.trim() });
      }
    });
  }
  if (process.stdin.isTTY) {
    process.stderr.write(
      "This is a server for an MCP client: it waits for JSON-RPC, a message a line. Ctrl-D ends it.\n",
    );
  }
  const health = new Health();
  const admin = await openMetrics(options.metricsPort, { telemetry, gate, ledger, files, health });
  const limits = { maxMessageBytes: MAX_MESSAGE_BYTES, maxBufferedBytes: MAX_MESSAGE_BYTES };
  const listener = await listenStdio(endpoint, { limits });
  await Promise.race([listener.closed, untilSignalled()]);
  health.stopping();
  await admin?.close();
  endpoint.close();
  await listener.close();
  await closeSharedSandbox();
  await ledger.close();
  await telemetry.shutdown();
}

interface Watched {
  readonly telemetry: Telemetry;
  readonly gate: Gate;
  readonly ledger: Ledger;
  readonly files: HostFiles;
  readonly health: Health;
}

/** `/metrics`, `/livez` and `/readyz` for this machine. Every client starts a host of its own; one that finds the port taken serves all the same. */
async function openMetrics(port: number | undefined, watched: Watched): Promise<AdminListener | undefined> {
  if (port === undefined) return undefined;
  const { telemetry, gate, ledger, files, health } = watched;
  try {
    const tokenFile = join(files.state, "operator.token");
    const { components } = health;
    const policyFiles = (): string[] => [files.config];
    const admin = await startAdmin({ port, telemetry, gate, ledger, tokenFile, policyFiles, components });
    telemetry.log.notice("metrics", { url: `${admin.url}/metrics` });
    return admin;
  } catch (error) {
    telemetry.log.error("there are no metrics", { problem: (error as Error).message });
    return undefined;
  }
}

/** The line beside the ledger. A call that ran has run: when its line cannot be written, that is said, not undone. */
function auditTo(policy: Policy, files: HostFiles, telemetry: Telemetry): (line: AuditSummary) => void {
  const { file, maxBytes, maxFiles } = policy.logging;
  const write = auditFile(expand(file ?? join(files.state, "audit.jsonl")), { maxBytes, maxFiles });
  return (line) => {
    try {
      write(line);
    } catch (error) {
      telemetry.log.error("the audit line could not be written", { problem: (error as Error).message });
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

function readPolicy(files: HostFiles, client: string | undefined): Policy {
  requireFile(files.config);
  requireClosed(files.config);
  const loaded = loadHostPolicy(files);
  if (!loaded.ok) throw problemsOf(files.config, loaded.problems);
  requireClient(loaded.policy, client);
  return loaded.policy;
}

/** Every client starts a host of its own, and a ledger has one writer: each host takes the first that is free. */
async function openFreeLedger(dir: string): Promise<Ledger> {
  for (let n = 0; n < MAX_LEDGERS; n++) {
    try {
      return await openLedger({ dir: join(dir, String(n)), origin: `portcullis.local/host-${n}`, lockTimeoutMs: 50 });
    } catch (error) {
      if (!(error instanceof LedgerLocked)) throw error;
    }
  }
  throw new CliError(`${MAX_LEDGERS} hosts are already running on ${dir}`);
}
