import { type Command, InvalidArgumentError, Option } from "commander";
import { groupOptions } from "../help.js";
import { closeProcess } from "../../host/index.js";
import { LOCATION_HELP } from "../../runtime/archive.js";
import { hideCommandLine } from "../../runtime/environment.js";
import { rememberDataDirectory } from "../../runtime/find-data-directory.js";
import { type ServeApplicationsOptions, serve } from "../../runtime/serve.js";
import { outFor, portNumber, seconds, shared } from "../../runtime/options.js";
import { connectionCount, listenAddress, megabytes, poolSize } from "../../runtime/serve-limits.js";
import { keepDays, keepSize } from "../../runtime/retention.js";

function workerCount(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 64) return value;
  throw new InvalidArgumentError("write a number from 1 to 64");
}

function callCount(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 1_000_000) return value;
  throw new InvalidArgumentError("write a number from 1 to 1000000");
}

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical"];

const GROUPS = {
  "Listen:": "host port tcp-port ws-port stdio allow-host allow-origin public-url address-connections workers",
  "Decide:": "policy observe read-only modules app workflow trust-gateway allow-private documentation-url",
  "Identify callers:": "local-access no-local-access oauth",
  "Approve:": "challenge-wait approval-webhook admin-port admin-host admin-url",
  "Record:": "ledger keep-arguments outcomes no-compress-ledger archive keep-days keep-size publish log-level",
  "Store:": "storage storage-connections storage-listen seal-key replica",
  "Limits:":
    "memory-budget queue-deadline max-calls max-app-calls max-agent-calls idle-stop shutdown-delay shutdown-timeout",
};

export function addServe(program: Command): void {
  const command = program
    .command("serve [module]")
    .description("serve tools behind the gate: a module that exports a server, or the demonstration")
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--port <number>", "HTTP port (0 lets the system choose)", portNumber, 7420)
    .option("--admin-port <number>", "port for health, metrics and approvals", portNumber, 7421)
    .option("--admin-host <address>", "address of the admin port, with --storage", "127.0.0.1")
    .option("--tcp-port <number>", "also serve newline-delimited JSON on TCP", portNumber)
    .option("--ws-port <number>", "also serve WebSocket", portNumber)
    .option("--stdio", "serve on stdin and stdout instead of HTTP")
    .option("--policy <path...>", "policy files or directories (default: those of the data directory)")
    .option("--observe", "decide and record, but enforce nothing of the policy")
    .option("--keep-arguments", "keep arguments in the ledger, for replay and policy suggest")
    .option("--read-only <tool...>", "tools whose decision need not wait for the disk")
    .option("--no-compress-ledger", "leave closed files of the ledger uncompressed")
    .addOption(
      new Option("--outcomes <durability>", "whether an answer waits until its outcome is on the disk (flush) or not")
        .choices(["flush", "lazy"])
        .default("lazy"),
    )
    .addOption(
      new Option("--archive <location>", `copy closed files of the ledger to ${LOCATION_HELP}`).env(
        "PORTCULLIS_ARCHIVE",
      ),
    )
    .option("--keep-days <number>", "prune archived files of the ledger when all in them is older than this", keepDays)
    .option("--keep-size <mib>", "prune the oldest archived files when all files have more than this", keepSize)
    .option("--publish <file>", "also write signed checkpoints to this file")
    .option("--allow-host <name...>", "names this server answers to, besides loopback")
    .option("--allow-origin <origin...>", "web origins that may call it")
    .option(
      "--local-access",
      "serve this machine's user without a credential; refused once a key or issuer was configured",
    )
    .option("--no-local-access", "require a credential from every caller, now and at later starts")
    .option("--workflow <file>", "serve the agents of a workflow, each with what was delegated to it")
    .option("--trust-gateway <key...>", "public keys of gateways whose delegations are accepted too")
    .addOption(
      new Option("--storage <url>", "serve the applications of this store: sqlite:FILE or postgres://…").env(
        "PORTCULLIS_STORAGE",
      ),
    )
    .addOption(
      new Option(
        "--storage-connections <number>",
        "connections to PostgreSQL, besides the one that listens for changes (default: 4)",
      )
        .env("PORTCULLIS_STORAGE_CONNECTIONS")
        .argParser(poolSize),
    )
    .addOption(
      new Option(
        "--storage-listen <url>",
        "where to listen for changes when --storage is a pooler such as PgBouncer; none for polling only",
      )
        .env("PORTCULLIS_STORAGE_LISTEN")
        .argParser(listenAddress),
    )
    .addOption(
      new Option(
        "--seal-key <source>",
        "where the key for secrets comes from: env:NAME, file:PATH or keyring:NAME",
      ).env("PORTCULLIS_SEAL_KEY_SOURCE"),
    )
    .option("--app <name>", "the application of local callers")
    .option(
      "--modules <names>",
      "tool modules to load, by commas: built-in names and files such as ./mine.mjs; an empty text for none",
    )
    .option(
      "--allow-private <host...>",
      "private hosts, HOST:PORT and ranges that may be reached beyond those of servers",
    )
    .option("--challenge-wait <seconds>", "how long a challenged call waits for a person", seconds, 45)
    .addOption(
      new Option("--memory-budget <mib>", "MiB that callers and servers may make the process keep (default: 160)")
        .env("PORTCULLIS_MEMORY_BUDGET")
        .argParser(megabytes),
    )
    .addOption(
      new Option("--address-connections <number>", "connections of one remote address (default: 5000)")
        .env("PORTCULLIS_ADDRESS_CONNECTIONS")
        .argParser(connectionCount),
    )
    .option("--replica <name>", "the name of this process among others on the same store")
    .option("--workers <number>", "processes that share the work on this machine", workerCount)
    .option("--ledger <folder>", "where this process writes its ledger")
    .option("--admin-url <url>", "where people reach the admin port, for approval links")
    .option("--approval-webhook <url>", "tell this address, signed, when a call waits for a person")
    .option("--oauth <file>", "accept access tokens of the issuers in this file, for applications")
    .option("--public-url <url>", "where the world reaches this gateway, to describe it to authorization servers")
    .option(
      "--documentation-url <url>",
      "the page that error objects refer to (default: /docs/errors of this gateway)",
      webUrl,
    )
    .option("--shutdown-delay <seconds>", "keep serving this long after /readyz fails at SIGTERM", seconds, 0)
    .option("--shutdown-timeout <seconds>", "time for calls under way at SIGTERM", seconds, 30)
    .option(
      "--idle-stop <seconds>",
      "stop the process of a server that was not used for so long, until the next call (default 1800; 0 for never)",
      seconds,
    )
    .option("--max-calls <number>", "calls in flight in this process (default 4096)", callCount)
    .option("--max-app-calls <number>", "calls in flight of one application (default 2048)", callCount)
    .option("--max-agent-calls <number>", "calls in flight of one agent (default 1024)", callCount)
    .option(
      "--queue-deadline <ms>",
      "refuse requests that waited longer than this for their turn (default 5000)",
      callCount,
    )
    .addOption(
      new Option("--log-level <level>", "the least severe messages that are logged").choices(LEVELS).default("notice"),
    )
    .action(async (module: string | undefined, options: ServeApplicationsOptions, command: Command) => {
      closeProcess();
      hideCommandLine();
      const { dir } = shared(command);
      rememberDataDirectory(dir);
      const out = outFor(command);
      await serve(dir, module, options, out);
    });
  groupOptions(command, GROUPS);
}

function webUrl(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text;
  throw new InvalidArgumentError(`\`${text}\` is not a valid URL: expected http:// or https://`);
}
