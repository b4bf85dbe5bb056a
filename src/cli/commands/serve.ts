import { type Command, InvalidArgumentError, Option } from "commander";
import { closeProcess } from "../../host/index.js";
import { listenStdio } from "../../transport/index.js";
import { LOCATION_HELP } from "../archive.js";
import { guardAgainstStrays } from "../crash.js";
import { hideCommandLine } from "../environment.js";
import { CliError, EXIT } from "../exit.js";
import {
  accessHelp,
  identityFor,
  limitsFor,
  retentionFor,
  type ServeApplicationsOptions,
  serveApplications,
  servesApplications,
  shutdownTimes,
} from "../gateway/serve.js";
import { loadServer, outFor, portNumber, shared } from "../options.js";
import { paintErr } from "../print.js";
import { LOCAL_APP } from "../store/local-application.js";
import { type Runtime, startRuntime } from "../runtime.js";
import { connectionCount, listenAddress, listenerLimits, megabytes, poolSize } from "../serve-limits.js";
import { stopInOrder, untilSignalled } from "../shutdown.js";
import { keepDays, keepSize } from "../gateway/retention.js";
import { noteServedWorkflow } from "../served-workflow.js";
import { workflowFacts, workflowHelp, workflowInForce } from "../workflow/serving.js";

interface ServeOptions extends ServeApplicationsOptions {
  readOnly?: string[];
}

function seconds(text: string): number {
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0 && value <= 3_600) return value;
  throw new InvalidArgumentError("write a number of seconds from 0 to 3600");
}

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

export function addServe(program: Command): void {
  program
    .command("serve [module]")
    .description("serve tools behind the gate: a module that exports a server, or the demonstration")
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--port <number>", "HTTP port (0 lets the system choose)", portNumber, 7420)
    .option("--admin-port <number>", "port for health, metrics and approvals", portNumber, 7421)
    .option("--admin-host <address>", "address of the admin port, with --storage", "127.0.0.1")
    .option("--tcp-port <number>", "also serve newline-delimited JSON on TCP", portNumber)
    .option("--ws-port <number>", "also serve WebSocket", portNumber)
    .option("--stdio", "serve on stdin and stdout instead of HTTP")
    .option("--policy <path...>", "policy files or folders (default: the working folder's)")
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
    .option("--modules <names>", "core modules to load, by commas; an empty text for none")
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
    .option("--log-level <level>", `one of ${LEVELS.join(", ")}`, "notice")
    .action(async (module: string | undefined, options: ServeOptions, command: Command) => {
      closeProcess();
      hideCommandLine();
      const { dir } = shared(command);
      const out = outFor(command);
      if (module !== undefined && options.oauth !== undefined) {
        const remedy = "make an application whose server the module is: portcullis app add";
        throw new CliError("--oauth is for the applications of a store, not for a module", EXIT.usage, remedy);
      }
      if (module === undefined && (await servesApplications(dir, options))) {
        return serveApplications(dir, options, out);
      }
      const { workflow: file, trustGateway: trusted, observe } = options;
      const workflow = file
        ? await workflowInForce({ file, stateDir: dir, trusted, despiteViolations: observe })
        : undefined;
      if (file) noteServedWorkflow(dir, file);
      const runtime = await startRuntime({
        stateDir: dir,
        workflow,
        server: await loadServer(module),
        policyPaths: options.policy,
        observe: options.observe,
        keepArguments: options.keepArguments,
        readOnlyTools: options.readOnly,
        publishCheckpoints: options.publish,
        compressLedger: options.compressLedger,
        outcomes: options.outcomes,
        retention: retentionFor(options),
        telemetry: { log: { level: options.logLevel as "info" } },
        limits: limitsFor(options),
        storage: options.storage,
        identity: identityFor({ ...options, app: LOCAL_APP }),
        ...(options.stdio
          ? {}
          : {
              http: {
                host: options.host,
                port: options.port,
                allowedHosts: options.allowHost,
                allowedOrigins: options.allowOrigin,
                ...listenerLimits(options),
              },
            }),
        ...(options.tcpPort === undefined
          ? {}
          : { tcp: { host: options.host, port: options.tcpPort, ...listenerLimits(options) } }),
        ...(options.wsPort === undefined
          ? {}
          : {
              websocket: {
                host: options.host,
                port: options.wsPort,
                allowedHosts: options.allowHost,
                allowedOrigins: options.allowOrigin,
                ...listenerLimits(options),
              },
            }),
        admin: { host: "127.0.0.1", port: options.stdio ? 0 : options.adminPort },
      });
      process.on("SIGHUP", () => void runtime.watcher.reload());
      const stopped = untilSignalled();
      const unguard = guardAgainstStrays(() => runtime.close());
      if (options.stdio) {
        const listener = await listenStdio(runtime.endpoint);
        await Promise.race([listener.closed, stopped]);
        await listener.close(shutdownTimes(options).callMs);
      } else {
        const started = { ...startedFacts(runtime), ...workflowFacts(workflow) };
        out.data(started, () => `${welcome(runtime, options)}${workflowHelp(workflow)}`);
        await stopped;
      }
      await stopInOrder(runtime, shutdownTimes(options));
      unguard();
    });
}

function startedFacts(runtime: Runtime): Record<string, unknown> {
  return {
    urls: runtime.listeners.map((listener) => listener.url),
    admin: runtime.admin?.url,
    state: runtime.state.dir,
    policy: runtime.gate.policy.hash,
    localAccess: runtime.isLocalAccessOn,
    pid: process.pid,
  };
}

/** What a person needs next: where it is, how to connect, and what to try. */
function welcome(runtime: Runtime, options: ServeOptions): string {
  const url = runtime.listeners[0]?.url ?? "";
  const { state, gate } = runtime;
  const bold = paintErr.bold;
  const config = JSON.stringify({ mcpServers: { portcullis: { type: "http", url } } }, null, 2);
  const lines = [
    `${bold("Portcullis")} is up${options.observe ? paintErr.yellow(" and only observing: nothing is denied") : ""}.`,
    "",
    ...runtime.listeners.map((listener) => `  MCP      ${listener.url}`),
    `  admin    ${runtime.admin?.url}  (/metrics /livez /readyz)`,
    `  policy   ${runtime.watcher.files.join(", ")}`,
    `           ${gate.policy.rules.length} rules, ${gate.policy.hash.slice(0, 12)}; save the file and new rules hold at once`,
    `  ledger   ${state.ledgerDir}`,
    ...(state.isNew ? ["", `  A working folder was made: ${state.dir}`] : []),
    "",
    accessHelp(runtime.isLocalAccessOn, LOCAL_APP),
    "",
    "Paste into your client's configuration:",
    "",
    config,
    "",
    "Then, in another terminal (add --url if you chose another port):",
    "",
    `  portcullis ls                                            what may be called`,
    `  portcullis call math.add '{"a":1,"b":2}'                 a permitted call`,
    `  portcullis call shell.run '{"command":"ls"}'             a denied one`,
    `  portcullis call notes.delete '{"title":"demo/x"}'        one that waits for you`,
    `  portcullis approvals ls                                  answer it: portcullis approve ID`,
    `  portcullis audit tail                                    what was decided, and why`,
    "",
    "From a clone, write `node dist/cli/main.js` for `portcullis`. Stop with Ctrl-C.",
  ];
  return lines.join("\n");
}
