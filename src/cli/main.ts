#!/usr/bin/env node
// The command line. Data on stdout, everything else on stderr; every failure says what was wrong and what to do.

import { Command, CommanderError, Option } from "commander";
import { CliError, EXIT, type ExitCode } from "./exit.js";
import { paintErr } from "./print.js";
import { DEFAULT_STATE_DIR } from "./state.js";
import { VERSION } from "./version.js";

interface Entry {
  readonly names: readonly string[];
  load(): Promise<(program: Command) => void>;
}

/** In the order of the help. A command's code is read when it is called for: most need little of the house. */
const COMMANDS: readonly Entry[] = [
  { names: ["serve"], load: async () => (await import("./commands/serve.js")).addServe },
  { names: ["host"], load: async () => (await import("./commands/host.js")).addHost },
  { names: ["demo"], load: async () => (await import("./commands/demo.js")).addDemo },
  { names: ["ls", "call", "catalog"], load: async () => (await import("./commands/call.js")).addCallCommands },
  { names: ["import"], load: async () => (await import("./commands/import.js")).addImport },
  { names: ["connect", "disconnect"], load: async () => (await import("./commands/connect.js")).addConnect },
  { names: ["export"], load: async () => (await import("./commands/export.js")).addExport },
  { names: ["app"], load: async () => (await import("./commands/app.js")).addAppCommands },
  { names: ["key"], load: async () => (await import("./commands/key.js")).addKeyCommands },
  { names: ["secret"], load: async () => (await import("./commands/secret.js")).addSecretCommands },
  { names: ["server"], load: async () => (await import("./commands/server.js")).addServerCommands },
  { names: ["pin"], load: async () => (await import("./commands/pin.js")).addPinCommands },
  { names: ["policy"], load: async () => (await import("./commands/policy.js")).addPolicyCommands },
  { names: ["init"], load: async () => (await import("./commands/init.js")).addInit },
  { names: ["cmd"], load: async () => (await import("./commands/cmd.js")).addCmdCommands },
  { names: ["run"], load: async () => (await import("./commands/run.js")).addRun },
  {
    names: ["approvals", "approve", "deny"],
    load: async () => (await import("./commands/approvals.js")).addApprovalCommands,
  },
  { names: ["audit"], load: async () => (await import("./commands/audit.js")).addAuditCommands },
  { names: ["backup", "restore"], load: async () => (await import("./commands/backup.js")).addBackupCommands },
  { names: ["rotate"], load: async () => (await import("./commands/rotate.js")).addRotateCommands },
  { names: ["store"], load: async () => (await import("./commands/store.js")).addStoreCommands },
  { names: ["lattice"], load: async () => (await import("./commands/lattice.js")).addLatticeCommands },
  { names: ["gen"], load: async () => (await import("./commands/gen.js")).addGen },
  { names: ["doctor"], load: async () => (await import("./commands/doctor.js")).addDoctor },
  { names: ["install"], load: async () => (await import("./commands/install.js")).addInstall },
  { names: ["update"], load: async () => (await import("./commands/update.js")).addUpdate },
  { names: ["completion"], load: async () => (await import("./commands/completion.js")).addCompletion },
];

/** The whole program, or as much of it as this command needs. */
async function createProgram(name: string | undefined): Promise<Command> {
  const program = new Command("portcullis")
    .description("Makes it safe to give agents tools: every call is identified, decided, recorded, and only then run.")
    .version(VERSION)
    .addOption(new Option("--json", "print data as JSON"))
    .addOption(new Option("--dir <folder>", "the working folder").env("PORTCULLIS_DIR").default(DEFAULT_STATE_DIR))
    .showHelpAfterError("(portcullis --help shows what there is)")
    .exitOverride();
  const named = COMMANDS.filter(({ names }) => name !== undefined && name !== "completion" && names.includes(name));
  // The version is asked for by scripts, and needs none of them.
  const needed = named.length > 0 ? named : name === undefined && isAskedForVersion(process.argv) ? [] : COMMANDS;
  for (const { load } of needed) (await load())(program);
  return program;
}

function isAskedForVersion(argv: readonly string[]): boolean {
  return argv.includes("--version") || argv.includes("-V");
}

/** The first word that is no option, and no option's value. */
function commandIn(argv: readonly string[]): string | undefined {
  const words = argv.slice(2);
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    if (word === "--dir") i++;
    else if (!word.startsWith("-")) return word;
  }
  return undefined;
}

async function main(argv: readonly string[]): Promise<ExitCode> {
  try {
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
