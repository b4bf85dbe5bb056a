// `portcullis host`: three hardened tools on stdio, decided by policy.yaml, on record like everything else.

import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { createGate, loadPolicy as loadCedar } from "../gate/index.js";
import { createGateway, toolSummaries } from "../gateway/index.js";
import { closeSharedSandbox, loadPolicy, type Policy, problemText } from "../host/index.js";
import { type Ledger, LedgerLocked, openLedger } from "../ledger/index.js";
import { createTelemetry, type Level } from "../telemetry/index.js";
import { listenStdio } from "../transport/index.js";
import { auditFile } from "./audit-file.js";
import { CliError, EXIT } from "./exit.js";
import { hostServer } from "./host-server.js";

export interface HostOptions {
  config: string;
  state?: string;
  logLevel: string;
  reload?: boolean;
}

/** A file of the largest size a policy may allow, as base64 in JSON, with room to spare. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
const MAX_LEDGERS = 64;

export async function runHost(options: HostOptions): Promise<void> {
  const state = resolve(options.state ?? defaultState());
  let policy = readPolicy(options.config, state);
  const telemetry = createTelemetry({ log: { level: options.logLevel as Level } });
  for (const notice of policy.notices) telemetry.log.notice(notice);
  mkdirSync(join(state, "ledger"), { recursive: true, mode: 0o700 });
  const ledger = await openFreeLedger(join(state, "ledger"));
  const writeAudit = auditFile(expand(policy.logging.file ?? join(state, "audit.jsonl")));
  const { server, voice } = hostServer(() => policy, writeAudit);
  const cedar = loadCedar(
    [{ file: "host", text: '@id("host") permit (principal, action in Action::"tools/call", resource);' }],
    toolSummaries(server),
  );
  const endpoint = createGateway({
    server,
    gate: createGate({ policy: cedar, voices: [voice] }),
    ledger,
    telemetry,
    plainMethods: server.tools.keys(),
    limits: { maxResultBytes: MAX_MESSAGE_BYTES },
  });
  if (options.reload) {
    process.on("SIGHUP", () => {
      try {
        policy = readPolicy(options.config, state);
        ledger.appendSoon({
          kind: "admin",
          actor: "operator",
          action: "host.reload",
          detail: { policy: policy.hash },
        });
      } catch (error) {
        telemetry.log.error("the new policy is refused, the old one stays", { problem: (error as CliError).help });
      }
    });
  }
  const limits = { maxMessageBytes: MAX_MESSAGE_BYTES, maxBufferedBytes: MAX_MESSAGE_BYTES };
  const listener = await listenStdio(endpoint, { limits });
  const stopped = new Promise<void>((done) => {
    process.once("SIGINT", () => done());
    process.once("SIGTERM", () => done());
  });
  await Promise.race([listener.closed, stopped]);
  endpoint.close();
  await listener.close();
  await closeSharedSandbox();
  await ledger.close();
  await telemetry.shutdown();
}

function defaultState(): string {
  return join(process.env.XDG_STATE_HOME ?? join(homedir(), ".local", "state"), "portcullis", "host");
}

function expand(path: string): string {
  return path.startsWith("~/") ? join(homedir(), path.slice(2)) : resolve(path);
}

function readPolicy(config: string, state: string): Policy {
  const loaded = loadPolicy(resolve(config), { protectedPaths: [state] });
  if (loaded.ok) return loaded.policy;
  const count = loaded.problems.length === 1 ? "a problem" : `${loaded.problems.length} problems`;
  throw new CliError(`${config} has ${count}`, EXIT.invalidPolicy, loaded.problems.map(problemText).join("\n"));
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
