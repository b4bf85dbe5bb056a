import { type Command, InvalidArgumentError, Option } from "commander";
import { GATEWAY_LOG_LEVELS, optionsFor, parserOf } from "../../runtime/config.js";
import type { AddOptions, TestOptions } from "../../runtime/host/config/cmd-actions.js";
import { collectOption, type HostFileOptions, hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import type { InitOptions } from "../../runtime/host/config/init.js";
import type { WriteRuleOptions } from "../../runtime/host/config/policy-actions.js";
import type { HostRunOptions } from "../../runtime/host/config/talk.js";
import type { HostOptions } from "../../runtime/host/run.js";
import { wholeNumber } from "../../runtime/options.js";

export function addHostCommands(program: Command): void {
  addHost(program);
  addInit(program);
  addCmdCommands(program);
  addRun(program);
}

function addHost(program: Command): void {
  withHostFiles(program.command("host"))
    .description("serve fs.read, fs.write and cmd.run on stdio, as policy.yaml allows")
    .option("--client <name>", "profile of policy.yaml for the client that starts this host")
    .addOption(
      new Option(
        "--log-level <level>",
        "least severe messages that are logged (default: logging.level of policy.yaml)",
      ).choices(GATEWAY_LOG_LEVELS),
    )
    .option("--metrics-port <number>", "serve /metrics and /healthz on this port of this machine", parserOf("port"))
    .option("--stdio", "serve on stdin and stdout (the default)")
    .option("--reload", "also read the policies on SIGHUP; a saved change applies at once, an invalid one never")
    .option("--observe", "enforce policy.yaml alone: decide and record what the Cedar policies would do")
    .addOption(optionsFor("keepArguments")[0] as Option)
    .addOption(optionsFor("challengeWait")[0] as Option)
    .action(async (options: HostOptions) => {
      // Loaded only here: no other command needs the host's paths and sandbox.
      const { runHost } = await import("../../runtime/host/run.js");
      await runHost(options);
    });
}

function addInit(program: Command): void {
  const init = program.command("init").description("write a first policy for the host");
  withHostFiles(init.command("host"))
    .description("write a policy for `portcullis host`, and print the client configuration that starts it")
    .option("--read <directory>", "directory that may be read (repeatable)", collectOption)
    .option("--write <directory>", "directory that may be written to (repeatable)", collectOption)
    .option("--yes", "do not ask: allow to read the current directory unless --read or --write is given")
    .option("--force", "replace an existing policy")
    .action(async (options: InitOptions, command: Command) => {
      const { initHost } = await import("../../runtime/host/config/init.js");
      await initHost(command, hostFiles(options), options);
    });
}

const catalogActions = () => import("../../runtime/host/config/cmd-actions.js");

function addCmdCommands(program: Command): void {
  const cmd = program.command("cmd").description("list and change the commands that the host may run");

  withHostFiles(cmd.command("add <id>"))
    .description("add a command to the catalog: a curated profile, or a program with its allowed arguments")
    .option("--profile <name>", "curated profile (default: the one with the name ID, without --exec)")
    .option("--exec <path>", "program to run")
    .option("--allow <argument>", "allowed argument (repeatable)", collectOption)
    .option("--pattern <regex>", "pattern of allowed arguments, matched as a whole (repeatable)", collectOption)
    .option("--fixed <argument>", "argument that always precedes those of the caller (repeatable)", collectOption)
    .option("--env <name>", "variable that callers may set (repeatable)", collectOption)
    .option("--mount <path>", "further path that it may read (repeatable)", collectOption)
    .addOption(
      new Option("--cwd-policy <how>", "how its working directory is chosen").choices(["withinRoot", "fixed", "none"]),
    )
    .option("--cwd <directory>", "working directory for --cwd-policy fixed")
    .option("--timeout-ms <number>", "end the command after this time", wholeNumber)
    .option("--max-output-bytes <number>", "limit of stdout and stderr together", wholeNumber)
    .option("--network", "allow it to reach the network")
    .option("--description <text>", "description that callers read")
    .action(async (id: string, options: HostFileOptions & AddOptions, command: Command) => {
      (await catalogActions()).allowCommand(command, hostFiles(options), id, options);
    });

  withHostFiles(cmd.command("ls"))
    .description("list the commands of the catalog and the curated profiles")
    .action(async (options: HostFileOptions, command: Command) => {
      (await catalogActions()).listCommands(command, hostFiles(options));
    });

  withHostFiles(cmd.command("test <id> [args...]"))
    .description("show whether and how a command would run (put arguments that begin with a dash behind --)")
    .option("--cwd <directory>", "working directory that the caller asks for")
    .option("--env <name=value>", "variable that the caller sets (repeatable)", collectOption)
    .option("--stdin <text>", "standard input of the command")
    .option("--client <name>", "profile of policy.yaml to decide by")
    .option("--run", "run it in a host that is started for it; the call is recorded")
    .action(async (id: string, args: string[], options: HostFileOptions & TestOptions, command: Command) => {
      await (await catalogActions()).testCommand(command, hostFiles(options), id, args, options);
    });
}

function addRun(program: Command): void {
  withHostFiles(program.command("run <file>"))
    .description("send JSON-RPC messages of a file (- for standard input) to a new host and print the responses")
    .option("--client <name>", "profile of policy.yaml to decide by")
    .option("--timeout-ms <number>", "how long to wait for one response", milliseconds, 120_000)
    .option("--log-level <level>", "least severe messages that the host logs", "error")
    .action(async (file: string, options: HostFileOptions & HostRunOptions, command: Command) => {
      const { runMessages } = await import("../../runtime/host/config/talk.js");
      await runMessages(command, hostFiles(options), file, options);
    });
}

function milliseconds(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("it must be a whole number above 0.");
  return value;
}

const policyActions = () => import("../../runtime/host/config/policy-actions.js");

export function addHostPolicyCommands(policy: Command): void {
  withHostFiles(policy.command("show"))
    .description("print the host's policy.yaml (--json: as it is resolved on this machine)")
    .action(async (options: HostFileOptions, command: Command) => {
      (await policyActions()).showPolicy(command, hostFiles(options));
    });

  policy
    .command("schema")
    .description("print the JSON Schema of policy.yaml, for editors and checks")
    .action(async () => {
      const { policySchemaText } = await import("../../host/index.js");
      process.stdout.write(policySchemaText());
    });

  withHostFiles(policy.command("validate"))
    .description("validate the host's policy.yaml; exit 3 when it is not valid")
    .action(async (options: HostFileOptions, command: Command) => {
      (await policyActions()).validatePolicy(command, hostFiles(options));
    });

  withHostFiles(policy.command("edit"))
    .description("edit a copy of policy.yaml in $EDITOR; it replaces the old one only when it is valid")
    .action(async (options: HostFileOptions, command: Command) => {
      await (await policyActions()).editInEditor(command, hostFiles(options));
    });

  withHostFiles(policy.command("add-root <directory>"))
    .description("allow the agent to read this directory and everything below it")
    .option("--write", "allow it to write there as well")
    .action(async (directory: string, options: HostFileOptions & { write?: boolean }, command: Command) => {
      (await policyActions()).addRoot(command, hostFiles(options), directory, options.write === true);
    });

  withHostFiles(policy.command("add-write <directory>"))
    .description("allow the agent to write in this directory")
    .option("--no-recursive", "exclude the directories below it")
    .option("--only-replace", "allow it to replace existing files, not to create files")
    .option("--max-file-bytes <number>", "size limit of a file", wholeNumber)
    .action(async (directory: string, options: HostFileOptions & WriteRuleOptions, command: Command) => {
      (await policyActions()).addWrite(command, hostFiles(options), directory, options);
    });
}
