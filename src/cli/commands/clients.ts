import { type Command, Option } from "commander";
import type { ConnectClientOptions, DisconnectOptions } from "../../integrations/clients/connect.js";
import type { ImportOptions } from "../../integrations/clients/import.js";
import { CLIENTS, CONNECTABLE } from "../../integrations/clients/places.js";
import { withStoreOptions } from "../../runtime/store/open.js";

export function addClientCommands(program: Command): void {
  addImport(program);
  addConnect(program);
}

function addImport(program: Command): void {
  withStoreOptions(program.command("import"))
    .description("import the servers of an MCP client; secrets go to the store, and the difference is shown first")
    .requiredOption(
      "--from <client>",
      `${CLIENTS.join(", ")}, or a file, such as an export of MetaMCP or an .mcpb bundle`,
    )
    .option("--app <name>", "application of the servers", "local")
    .option("--only <server...>", "servers to import (default: all)")
    .option("-y, --yes", "do not ask for confirmation")
    .addOption(new Option("--dry-run", "show the difference and change nothing").conflicts("yes"))
    .action(async (options: ImportOptions, command: Command) => {
      const { importServers } = await import("../../integrations/clients/import.js");
      await importServers(command, options);
    });
}

function addConnect(program: Command): void {
  withStoreOptions(program.command("connect <client>"))
    .description(`configure a client to use Portcullis instead of its servers: ${CONNECTABLE.join(", ")}`)
    .option("--app <name>", "application of the client", "local")
    .option("--url <url>", "URL of a running gateway (default: the client starts one)")
    .option("--key-env <name>", "with --url: variable with the client's key")
    .option("--project", "change the configuration of the project instead of the user's")
    .option("-y, --yes", "do not ask for confirmation")
    .addOption(new Option("--dry-run", "show the difference and change nothing").conflicts("yes"))
    .action(async (client: string, options: ConnectClientOptions, command: Command) => {
      const { connectClient } = await import("../../integrations/clients/connect.js");
      await connectClient(command, client, options);
    });

  withStoreOptions(program.command("disconnect <client>"))
    .description("restore the configuration of a client")
    .option("-y, --yes", "do not ask for confirmation")
    .action(async (client: string, options: DisconnectOptions, command: Command) => {
      const { disconnectClient } = await import("../../integrations/clients/connect.js");
      await disconnectClient(command, client, options);
    });
}
