import { type Command, Option } from "commander";
import type { ImportOptions } from "../clients/import.js";
import { CLIENTS } from "../clients/places.js";
import { withStoreOptions } from "../store/open.js";

export function addImport(program: Command): void {
  withStoreOptions(program.command("import"))
    .description("take over the servers of a client: the difference first, secrets into the store")
    .requiredOption("--from <client>", `${CLIENTS.join(", ")}, or a file`)
    .option("--app <name>", "the application they go to", "local")
    .option("--only <server...>", "only these")
    .option("-y, --yes", "without asking")
    .addOption(new Option("--dry-run", "only show the difference").conflicts("yes"))
    .action(async (options: ImportOptions, command: Command) => {
      const { importServers } = await import("../clients/import.js");
      await importServers(command, options);
    });
}
