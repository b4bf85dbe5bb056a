import { type Command, Option } from "commander";
import type { ImportOptions } from "../../integrations/clients/import.js";
import { CLIENTS } from "../../integrations/clients/places.js";
import { withStoreOptions } from "../../runtime/store/open.js";

export function addImport(program: Command): void {
  withStoreOptions(program.command("import"))
    .description("take over the servers of a client: the difference first, secrets into the store")
    .requiredOption("--from <client>", `${CLIENTS.join(", ")}, or a file (also of MetaMCP, or an .mcpb bundle)`)
    .option("--app <name>", "the application they go to", "local")
    .option("--only <server...>", "only these")
    .option("-y, --yes", "without asking")
    .addOption(new Option("--dry-run", "only show the difference").conflicts("yes"))
    .action(async (options: ImportOptions, command: Command) => {
      const { importServers } = await import("../../integrations/clients/import.js");
      await importServers(command, options);
    });
}
