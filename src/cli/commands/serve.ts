import type { Command } from "commander";
import { addSettings, settingsOf } from "../../runtime/config.js";
import { rememberDataDirectory } from "../../runtime/data-directory.js";
import { environment, hideCommandLine } from "../../runtime/environment.js";
import { outFor, shared } from "../../runtime/options.js";

export function addServe(program: Command): void {
  const command = program
    .command("serve [module]")
    .description("serve applications, the tools that a module exports, or the demonstration tools")
    .option("--config <file>", "file with the section gateway (default: portcullis.yaml in the data directory)");
  command.options.at(-1)?.helpGroup("Listen:");
  addSettings(command).action(async (module: string | undefined, flags: { config?: string }) => {
    // Loaded only here: help needs neither the gateway nor the sandbox.
    const { closeProcess } = await import("../../host/index.js");
    closeProcess();
    hideCommandLine();
    const { dir } = shared(command);
    const env = environment();
    const { readGatewaySettings } = await import("../../integrations/declared/file.js");
    const config = flags.config ?? env.PORTCULLIS_CONFIG;
    const settings = settingsOf(command, env, readGatewaySettings(dir, config, env));
    rememberDataDirectory(dir);
    const { serve } = await import("../../runtime/serve.js");
    await serve(dir, module, { ...settings, config }, outFor(command));
  });
}
