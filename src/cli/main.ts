#!/usr/bin/env node
// The command line. Data on stdout, everything else on stderr; every failure says what was wrong and what to do.

import { Command, CommanderError, Option } from "commander";
import { CliError, EXIT, type ExitCode } from "../lib/exit.js";
import { paintErr } from "../lib/print.js";
import { findDataDirectory } from "../runtime/find-data-directory.js";
import { VERSION } from "../runtime/version.js";
import { addExamples, EXAMPLES, EXIT_HELP, ROOT_EXAMPLES, text } from "./help.js";

interface Entry {
  readonly group: string;
  /** The commands that `load` adds, each with its line in the help of the program. */
  readonly summaries: Readonly<Record<string, string>>;
  load(): Promise<(program: Command) => void>;
}

/** In the order of the help. Commands are loaded lazily; most need only a few modules. */
const COMMANDS: readonly Entry[] = [
  {
    group: "Start:",
    summaries: { demo: "show a permit, a denial, an approval and a verified ledger in a minute" },
    load: async () => (await import("./commands/demo.js")).addDemo,
  },
  {
    group: "Start:",
    summaries: { serve: "serve applications, a module, or the demonstration tools" },
    load: async () => (await import("./commands/serve.js")).addServe,
  },
  {
    group: "Start:",
    summaries: { host: "serve the three hardened host tools on stdio" },
    load: async () => (await import("./commands/host.js")).addHost,
  },
  {
    group: "Start:",
    summaries: { import: "import the servers of an MCP client" },
    load: async () => (await import("./commands/import.js")).addImport,
  },
  {
    group: "Start:",
    summaries: { connect: "connect an MCP client to a gateway", disconnect: "restore the configuration of a client" },
    load: async () => (await import("./commands/connect.js")).addConnect,
  },
  {
    group: "Call tools:",
    summaries: {
      ls: "list the tools that may be called",
      call: "call a tool",
      catalog: "print schemas, tags and examples of tools",
    },
    load: async () => (await import("./commands/call.js")).addCallCommands,
  },
  {
    group: "Decide:",
    summaries: { policy: "check, explain, test, compare and suggest policies" },
    load: async () => (await import("./commands/policy.js")).addPolicyCommands,
  },
  {
    group: "Decide:",
    summaries: {
      approvals: "list and open calls that wait for approval",
      approve: "approve a call",
      deny: "deny a call with a reason",
    },
    load: async () => (await import("./commands/approvals.js")).addApprovalCommands,
  },
  {
    group: "Decide:",
    summaries: { pin: "review changed tool definitions of servers" },
    load: async () => (await import("./commands/pin.js")).addPinCommands,
  },
  {
    group: "Decide:",
    summaries: { lattice: "analyze which agent can reach what" },
    load: async () => (await import("./commands/lattice.js")).addLatticeCommands,
  },
  {
    group: "Audit:",
    summaries: { audit: "read, verify, prove, export and replay ledgers" },
    load: async () => (await import("./commands/audit.js")).addAuditCommands,
  },
  {
    group: "Applications:",
    summaries: { app: "list, change and apply applications" },
    load: async () => (await import("./commands/app.js")).addAppCommands,
  },
  {
    group: "Applications:",
    summaries: { key: "create, list, rotate and revoke API keys" },
    load: async () => (await import("./commands/key.js")).addKeyCommands,
  },
  {
    group: "Applications:",
    summaries: { secret: "store and list secrets of applications" },
    load: async () => (await import("./commands/secret.js")).addSecretCommands,
  },
  {
    group: "Applications:",
    summaries: { server: "show the state of servers" },
    load: async () => (await import("./commands/server.js")).addServerCommands,
  },
  {
    group: "Applications:",
    summaries: { export: "write applications to portcullis.yaml" },
    load: async () => (await import("./commands/export.js")).addExport,
  },
  {
    group: "Host:",
    summaries: { init: "write a first policy for the host" },
    load: async () => (await import("./commands/init.js")).addInit,
  },
  {
    group: "Host:",
    summaries: { cmd: "list and change the commands that the host permits" },
    load: async () => (await import("./commands/cmd.js")).addCmdCommands,
  },
  {
    group: "Host:",
    summaries: { run: "run a command as the host would" },
    load: async () => (await import("./commands/run.js")).addRun,
  },
  {
    group: "Operate:",
    summaries: { doctor: "check this machine, the data directory and the host" },
    load: async () => (await import("./commands/doctor.js")).addDoctor,
  },
  {
    group: "Operate:",
    summaries: { backup: "write or verify a backup", restore: "restore a backup" },
    load: async () => (await import("./commands/backup.js")).addBackupCommands,
  },
  {
    group: "Operate:",
    summaries: { rotate: "replace keys and tokens of the gateway" },
    load: async () => (await import("./commands/rotate.js")).addRotateCommands,
  },
  {
    group: "Operate:",
    summaries: { store: "show or lower the level of the store's tables" },
    load: async () => (await import("./commands/store.js")).addStoreCommands,
  },
  {
    group: "Operate:",
    summaries: { install: "install Portcullis for this user" },
    load: async () => (await import("./commands/install.js")).addInstall,
  },
  {
    group: "Operate:",
    summaries: { update: "update or roll back an installation" },
    load: async () => (await import("./commands/update.js")).addUpdate,
  },
  {
    group: "Develop:",
    summaries: { gen: "generate typed clients and servers from a manifest" },
    load: async () => (await import("./commands/gen.js")).addGen,
  },
  {
    group: "Develop:",
    summaries: { completion: "print a completion script for a shell" },
    load: async () => (await import("./commands/completion.js")).addCompletion,
  },
];

/** The whole program, or as much of it as this command needs. */
async function createProgram(name: string | undefined): Promise<Command> {
  const program = new Command("portcullis")
    .description(
      "A policy-first gateway for MCP: every tool call is authenticated, decided, recorded, and then executed.",
    )
    .version(VERSION)
    .addOption(new Option("--json", "print data as JSON"))
    .addOption(
      new Option(
        "--dir <directory>",
        "data directory (default: the nearest .portcullis upward, else that of the user)",
      ).env("PORTCULLIS_DIR"),
    )
    .showHelpAfterError("(portcullis --help lists the commands)")
    .exitOverride();
  const named = COMMANDS.find(({ summaries }) => name !== undefined && Object.hasOwn(summaries, name));
  if (named) {
    (await named.load())(program);
    for (const command of program.commands) addExamples(command, EXAMPLES);
  } else if (!isAskedForVersion(process.argv)) addSummaries(program);
  program.addHelpText("after", text(ROOT_EXAMPLES)).addHelpText("afterAll", EXIT_HELP);
  return program;
}

/** For the help of the program and for mistyped commands, which need no command's code. */
function addSummaries(program: Command): void {
  for (const { group, summaries } of COMMANDS) {
    for (const [name, summary] of Object.entries(summaries))
      program.command(name).description(summary).helpGroup(group);
  }
}

/** Prints what may follow these words; shells call it by the scripts of `portcullis completion`. */
async function complete(words: readonly string[]): Promise<ExitCode> {
  const before = words.slice(0, -1);
  const program = await createProgram(commandIn(["", "", ...before]));
  const [{ candidates }, { knownValues }] = await Promise.all([import("./complete.js"), import("./known-values.js")]);
  const directory = (): string => {
    const i = before.indexOf("--dir");
    return (i >= 0 ? before[i + 1] : undefined) ?? process.env.PORTCULLIS_DIR ?? findDataDirectory();
  };
  const found = await candidates(program, words, knownValues(directory));
  process.stdout.write(found.map((each) => `${each}\n`).join(""));
  return EXIT.ok;
}

function isAskedForVersion(argv: readonly string[]): boolean {
  return argv.includes("--version") || argv.includes("-V");
}

/** The first word that is not an option or an option's value; for `help NAME` the command that is asked about. */
function commandIn(argv: readonly string[]): string | undefined {
  const words = argv.slice(2);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    if (word === "--dir") i++;
    else if (word === "help" && words[i + 1] !== undefined) continue;
    else if (!word.startsWith("-")) return word;
  }
  return undefined;
}

async function main(argv: readonly string[]): Promise<ExitCode> {
  try {
    if (argv[2] === "__complete") return await complete(argv.slice(3));
    const program = await createProgram(commandIn(argv));
    await program.parseAsync(argv as string[]);
    return (process.exitCode as ExitCode | undefined) ?? EXIT.ok;
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help and version are no failures; everything else commander says is about how it was called.
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    }
    return complain(error, argv.includes("--json"));
  }
}

const SYSTEM_ERROR_HELP: Readonly<Record<string, string>> = {
  EADDRINUSE:
    "another process listens there, perhaps another gateway such as `npm start`: stop it, or choose free ports with --port 0 --admin-port 0",
  ECONNREFUSED: "no process listens there: start the gateway with `portcullis serve`, or check the address",
  EACCES: "run as a user who may use it, change its permissions, or for a port choose one above 1023",
  EPERM: "run as a user who may use it, or change its permissions",
  EROFS: "the file system is read-only: choose another path, or another data directory with --dir",
  ENOSPC: "the disk is full: free space, or choose another data directory with --dir",
  ENOENT: "check the path; the data directory is chosen with --dir or PORTCULLIS_DIR",
};
const MAX_CAUSES = 5;

/** The next step for an error of the operating system, however deep it is in the causes. */
function systemErrorHelp(error: unknown): string | undefined {
  let each = error;
  for (let i = 0; i < MAX_CAUSES && each instanceof Error; i++) {
    const { code = "" } = each as NodeJS.ErrnoException;
    if (Object.hasOwn(SYSTEM_ERROR_HELP, code)) return SYSTEM_ERROR_HELP[code];
    each = each.cause;
  }
  return undefined;
}

/** On stderr, as everything that is no data: for people, or as one line of JSON where that was asked for. */
function complain(error: unknown, asJson: boolean): ExitCode {
  const { message, code } = error as Error & { code?: string };
  const exitCode =
    error instanceof CliError ? error.exitCode : code === "POLICY_INVALID" ? EXIT.invalidPolicy : EXIT.error;
  const help = (error instanceof CliError ? error.help : undefined) ?? systemErrorHelp(error);
  if (asJson) process.stderr.write(`${JSON.stringify({ error: { message, help, exit_code: exitCode } })}\n`);
  else process.stderr.write(`${paintErr.red("error:")} ${message}\n${help === undefined ? "" : `${help}\n`}`);
  return exitCode;
}

process.exitCode = await main(process.argv);
