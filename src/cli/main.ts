#!/usr/bin/env node
// The command line. Data on stdout, everything else on stderr; every failure says what was wrong and what to do.

import { Command, CommanderError, Option } from "commander";
import { addAppCommands } from "./commands/app.js";
import { addAuditCommands } from "./commands/audit.js";
import { addApprovalCommands } from "./commands/approvals.js";
import { addCallCommands } from "./commands/call.js";
import { addCmdCommands } from "./commands/cmd.js";
import { addCompletion } from "./commands/completion.js";
import { addConnect } from "./commands/connect.js";
import { addDemo } from "./commands/demo.js";
import { addDoctor } from "./commands/doctor.js";
import { addExport } from "./commands/export.js";
import { addGen } from "./commands/gen.js";
import { addHost } from "./commands/host.js";
import { addImport } from "./commands/import.js";
import { addInstall } from "./commands/install.js";
import { addInit } from "./commands/init.js";
import { addKeyCommands } from "./commands/key.js";
import { addLatticeCommands } from "./commands/lattice.js";
import { addPinCommands } from "./commands/pin.js";
import { addPolicyCommands } from "./commands/policy.js";
import { addRun } from "./commands/run.js";
import { addSecretCommands } from "./commands/secret.js";
import { addServe } from "./commands/serve.js";
import { addUpdate } from "./commands/update.js";
import { CliError, EXIT, type ExitCode } from "./exit.js";
import { paintErr } from "./print.js";
import { DEFAULT_STATE_DIR } from "./state.js";
import { VERSION } from "./version.js";

export function createProgram(): Command {
  const program = new Command("portcullis")
    .description("Makes it safe to give agents tools: every call is identified, decided, recorded, and only then run.")
    .version(VERSION)
    .addOption(new Option("--json", "print data as JSON"))
    .addOption(new Option("--dir <folder>", "the working folder").env("PORTCULLIS_DIR").default(DEFAULT_STATE_DIR))
    .showHelpAfterError("(portcullis --help shows what there is)")
    .exitOverride();
  addServe(program);
  addHost(program);
  addDemo(program);
  addCallCommands(program);
  addImport(program);
  addConnect(program);
  addExport(program);
  addAppCommands(program);
  addKeyCommands(program);
  addSecretCommands(program);
  addPinCommands(program);
  addPolicyCommands(program);
  addInit(program);
  addCmdCommands(program);
  addRun(program);
  addApprovalCommands(program);
  addAuditCommands(program);
  addLatticeCommands(program);
  addGen(program);
  addDoctor(program);
  addInstall(program);
  addUpdate(program);
  addCompletion(program);
  return program;
}

async function main(argv: readonly string[]): Promise<ExitCode> {
  try {
    await createProgram().parseAsync(argv as string[]);
    return (process.exitCode as ExitCode | undefined) ?? EXIT.ok;
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help and version are no failures; everything else commander says is about how it was called.
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    }
    return complain(error);
  }
}

function complain(error: unknown): ExitCode {
  if (error instanceof CliError) {
    process.stderr.write(`${paintErr.red("error:")} ${error.message}\n`);
    if (error.help !== undefined) process.stderr.write(`${error.help}\n`);
    return error.exitCode;
  }
  const { message, code } = error as Error & { code?: string };
  process.stderr.write(`${paintErr.red("error:")} ${message}\n`);
  return code === "POLICY_INVALID" ? EXIT.invalidPolicy : EXIT.error;
}

process.exitCode = await main(process.argv);
