import type { Command } from "commander";
import { collectOption, hostFiles, withHostFiles } from "../../runtime/host/config/files.js";
import type { InitOptions } from "../../runtime/host/config/init.js";

export function addInit(program: Command): void {
  const init = program.command("init").description("write a first configuration");
  withHostFiles(init.command("host"))
    .description("a first policy for `portcullis host`, and what your client needs to start it")
    .option("--read <folder>", "a folder that may be read (may be given several times)", collectOption)
    .option("--write <folder>", "a folder that may be written to (may be given several times)", collectOption)
    .option("--yes", "ask nothing: read this folder, write nowhere, unless said otherwise")
    .option("--force", "replace a policy that is there")
    .action(async (options: InitOptions, command: Command) => {
      const { initHost } = await import("../../runtime/host/config/init.js");
      await initHost(command, hostFiles(options), options);
    });
}
