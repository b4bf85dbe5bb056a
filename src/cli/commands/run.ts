import { InvalidArgumentError, type Command } from "commander";
import { type HostFileOptions, hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import type { HostRunOptions } from "../../runtime/host/config/run.js";

export function addRun(program: Command): void {
  withHostFiles(program.command("run <file>"))
    .description("send raw JSON-RPC to a host started for it and print the answers; - reads stdin")
    .option("--client <name>", "as this client")
    .option("--timeout-ms <number>", "for one answer", milliseconds, 120_000)
    .option("--log-level <level>", "how much the host says on stderr", "error")
    .action(async (file: string, options: HostFileOptions & HostRunOptions, command: Command) => {
      const { runMessages } = await import("../../runtime/host/config/run.js");
      await runMessages(command, hostFiles(options), file, options);
    });
}

function milliseconds(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("it must be a whole number above 0.");
  return value;
}
