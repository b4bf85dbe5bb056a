import type { Command } from "commander";
import { stringify } from "yaml";
import { suggestFlow } from "../../policy/index.js";
import { outFor } from "../../runtime/options.js";
import { type ServedOptions, servedBy, withServedOptions } from "../../runtime/served.js";

export function addFlowCommands(program: Command): void {
  const flow = program.command("flow").description("label what results carry and what calls do");
  withServedOptions(flow.command("suggest"))
    .description("print labels of information flow to begin with, for review")
    .action(async (options: ServedOptions, command: Command) => {
      const { app, tools } = await servedBy(command, options);
      const labels = suggestFlow(tools);
      outFor(command).note(`labels for ${tools.length} tools of ${app}: review them, then put them into its document`);
      outFor(command).data({ flow: labels }, () => stringify({ flow: labels }).trimEnd());
    });
}
