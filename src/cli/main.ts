#!/usr/bin/env node
// The command line. Data on stdout, everything else on stderr; every failure says what was wrong and what to do.

import { Command, CommanderError, Option } from "commander";
import { CliError, EXIT, type ExitCode } from "../lib/exit.js";
import { paintErr } from "../lib/print.js";
import { findDataDirectory } from "../runtime/data-directory.js";
import { VERSION } from "../runtime/environment.js";
import { addCommand, COMMANDS } from "./commands.js";
import { addExamples, EXIT_HELP, examplesText, ROOT_EXAMPLES } from "./help.js";

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
  if (name !== undefined && (await addCommand(program, name))) {
    for (const command of program.commands) addExamples(command);
  } else if (!isAskedForVersion(process.argv)) addSummaries(program);
  program.addHelpText("after", examplesText(ROOT_EXAMPLES)).addHelpText("afterAll", EXIT_HELP);
  return program;
}

/** For the help of the program and for mistyped commands, which need no command's code. */
function addSummaries(program: Command): void {
  for (const [group, commands] of Object.entries(COMMANDS)) {
    for (const [name, summary] of Object.entries(commands)) program.command(name).description(summary).helpGroup(group);
  }
}

/** Prints what may follow these words; shells call it by the scripts of `portcullis completion`. */
async function complete(words: readonly string[]): Promise<ExitCode> {
  const before = words.slice(0, -1);
  const program = await createProgram(commandIn(["", "", ...before]));
  const { completions, knownValues } = await import("./complete.js");
  const directory = (): string => {
    const i = before.indexOf("--dir");
    return (i >= 0 ? before[i + 1] : undefined) ?? process.env.PORTCULLIS_DIR ?? findDataDirectory();
  };
  const found = await completions(program, words, knownValues(directory));
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
  EACCES: "run as a user with access to it, change its permissions, or for a port choose one above 1023",
  EPERM: "run as a user with access to it, or change its permissions",
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

/** Prints an error on stderr, with `--json` as one line of JSON, and returns the exit code. */
function complain(error: unknown, asJson: boolean): ExitCode {
  const { message, code } = error as Error & { code?: string };
  const exitCode =
    error instanceof CliError ? error.exitCode : code === "POLICY_INVALID" ? EXIT.invalidPolicy : EXIT.error;
  const help = (error instanceof CliError ? error.help : undefined) ?? systemErrorHelp(error);
  if (asJson) process.stderr.write(`${JSON.stringify({ error: { message, help, exit_code: exitCode } })}\n`);
  else process.stderr.write(`${paintErr.red("error:")} ${message}\n${help === undefined ? "" : `${help}\n`}`);
  return exitCode;
}

/** A reader that ended, such as `head`, needs no more output. It ends neither a command nor a gateway. */
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

process.exitCode = await main(process.argv);
