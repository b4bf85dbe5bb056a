// `portcullis cmd …`: the host's catalog of commands.

import { type Command, Option } from "commander";
import type { AddOptions, TestOptions } from "../../runtime/host/config/cmd-actions.js";
import { collectOption, type HostFileOptions, hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import { wholeNumber } from "../../runtime/host/config/numbers.js";

const actions = () => import("../../runtime/host/config/cmd-actions.js");

export function addCmdCommands(program: Command): void {
  const cmd = program.command("cmd").description("the commands that the host may run");

  withHostFiles(cmd.command("add <id>"))
    .description("add a command to the catalog: a curated profile, or a program with the arguments it may get")
    .option("--profile <name>", "a curated wrapper (the id itself, when it is one and no --exec is given)")
    .option("--exec <path>", "the program")
    .option("--allow <argument>", "a literal argument that is allowed (may be given several times)", collectOption)
    .option("--pattern <regex>", "allow arguments that match as a whole (several times)", collectOption)
    .option("--fixed <argument>", "put before the caller's arguments, always (several times)", collectOption)
    .option("--env <name>", "a variable that callers may set (several times)", collectOption)
    .option("--mount <path>", "one more path that it may read (several times)", collectOption)
    .addOption(new Option("--cwd-policy <how>", "where it runs").choices(["withinRoot", "fixed", "none"]))
    .option("--cwd <folder>", "the folder for --cwd-policy fixed")
    .option("--timeout-ms <number>", "it is ended after this time", wholeNumber)
    .option("--max-output-bytes <number>", "stdout and stderr together", wholeNumber)
    .option("--network", "it may reach the network")
    .option("--description <text>", "what it is for; shown to callers")
    .action(async (id: string, options: HostFileOptions & AddOptions, command: Command) => {
      (await actions()).addCommand(command, hostFiles(options), id, options);
    });

  withHostFiles(cmd.command("ls"))
    .description("what is in the catalog, and which curated profiles there are")
    .action(async (options: HostFileOptions, command: Command) => {
      (await actions()).listCommands(command, hostFiles(options));
    });

  withHostFiles(cmd.command("test <id> [args...]"))
    .description("would this be run, and how? (arguments that begin with a dash go behind --)")
    .option("--cwd <folder>", "where the caller wants it to run")
    .option("--env <name=value>", "a variable the caller sets (may be given several times)", collectOption)
    .option("--stdin <text>", "what it gets to read")
    .option("--client <name>", "decide by this client's profile")
    .option("--run", "run it for real, in a host started for it; it is on record like any call")
    .action(async (id: string, args: string[], options: HostFileOptions & TestOptions, command: Command) => {
      await (await actions()).testCommand(command, hostFiles(options), id, args, options);
    });
}
