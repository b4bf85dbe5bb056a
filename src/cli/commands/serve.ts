import type { Command } from "commander";
import { listenStdio } from "../../transport/index.js";
import { loadServer, outFor, portNumber, shared } from "../options.js";
import { paintErr } from "../print.js";
import { type Runtime, startRuntime } from "../runtime.js";
import { type WorkflowInForce, workflowInForce } from "../workflow/serving.js";

interface ServeOptions {
  host: string;
  port: number;
  adminPort: number;
  tcpPort?: number;
  wsPort?: number;
  policy?: string[];
  observe?: boolean;
  keepArguments?: boolean;
  readOnly?: string[];
  stdio?: boolean;
  publish?: string;
  logLevel: string;
  allowHost?: string[];
  allowOrigin?: string[];
  workflow?: string;
  trustGateway?: string[];
}

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical"];

export function addServe(program: Command): void {
  program
    .command("serve [module]")
    .description("serve tools behind the gate: a module that exports a server, or the demonstration")
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--port <number>", "HTTP port (0 lets the system choose)", portNumber, 7420)
    .option("--admin-port <number>", "port for health, metrics and approvals", portNumber, 7421)
    .option("--tcp-port <number>", "also serve newline-delimited JSON on TCP", portNumber)
    .option("--ws-port <number>", "also serve WebSocket", portNumber)
    .option("--stdio", "serve on stdin and stdout instead of HTTP")
    .option("--policy <path...>", "policy files or folders (default: the working folder's)")
    .option("--observe", "decide and record, but enforce nothing of the policy")
    .option("--keep-arguments", "keep arguments in the ledger, for replay and policy suggest")
    .option("--read-only <tool...>", "tools whose decision need not wait for the disk")
    .option("--publish <file>", "also write signed checkpoints to this file")
    .option("--allow-host <name...>", "names this server answers to, besides loopback")
    .option("--allow-origin <origin...>", "web origins that may call it")
    .option("--workflow <file>", "serve the agents of a workflow, each with what was delegated to it")
    .option("--trust-gateway <key...>", "public keys of gateways whose delegations are accepted too")
    .option("--log-level <level>", `one of ${LEVELS.join(", ")}`, "notice")
    .action(async (module: string | undefined, options: ServeOptions, command: Command) => {
      const { dir } = shared(command);
      const out = outFor(command);
      const { workflow: file, trustGateway: trusted, observe } = options;
      const workflow = file
        ? await workflowInForce({ file, stateDir: dir, trusted, despiteViolations: observe })
        : undefined;
      const runtime = await startRuntime({
        stateDir: dir,
        workflow,
        server: await loadServer(module),
        policyPaths: options.policy,
        observe: options.observe,
        keepArguments: options.keepArguments,
        readOnlyTools: options.readOnly,
        publishCheckpoints: options.publish,
        telemetry: { log: { level: options.logLevel as "info" } },
        limits: { challengeWaitMs: 0 },
        ...(options.stdio
          ? {}
          : {
              http: {
                host: options.host,
                port: options.port,
                allowedHosts: options.allowHost,
                allowedOrigins: options.allowOrigin,
              },
            }),
        ...(options.tcpPort === undefined ? {} : { tcp: { host: options.host, port: options.tcpPort } }),
        ...(options.wsPort === undefined ? {} : { websocket: { host: options.host, port: options.wsPort } }),
        admin: { host: "127.0.0.1", port: options.stdio ? 0 : options.adminPort },
      });
      const stopped = untilStopped(runtime);
      if (options.stdio) {
        const listener = await listenStdio(runtime.endpoint);
        await Promise.race([listener.closed, stopped]);
      } else {
        const started = { ...startedFacts(runtime), ...workflowFacts(workflow) };
        out.data(started, () => welcome(runtime, options));
        await stopped;
      }
      await runtime.close();
    });
}

function startedFacts(runtime: Runtime): Record<string, unknown> {
  return {
    urls: runtime.listeners.map((listener) => listener.url),
    admin: runtime.admin?.url,
    state: runtime.state.dir,
    policy: runtime.gate.policy.hash,
    pid: process.pid,
  };
}

/** What whoever spends a delegation here has to know, and whoever accepts one from here. */
function workflowFacts(workflow: WorkflowInForce | undefined): Record<string, unknown> {
  return workflow ? { gateway: workflow.keys.gateway, delegationKey: workflow.keys.publicKey } : {};
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
    `  admin    ${runtime.admin?.url}  (/metrics /healthz /readyz)`,
    `  policy   ${runtime.watcher.files.join(", ")}`,
    `           ${gate.policy.rules.length} rules, ${gate.policy.hash.slice(0, 12)}; save the file and new rules hold at once`,
    `  ledger   ${state.ledgerDir}`,
    ...(state.isNew ? ["", `  A working folder was made: ${state.dir}`] : []),
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

/** SIGHUP reads the policy again; SIGINT and SIGTERM end everything in order. */
function untilStopped(runtime: Runtime): Promise<void> {
  return new Promise((resolve) => {
    process.on("SIGHUP", () => void runtime.watcher.reload());
    process.once("SIGINT", () => resolve());
    process.once("SIGTERM", () => resolve());
  });
}
