import { type Command, Option } from "commander";
import type { ConnectClientOptions, DisconnectOptions } from "../../integrations/clients/connect.js";
import { CONNECTABLE } from "../../integrations/clients/places.js";
import { withStoreOptions } from "../../runtime/store/open.js";

export function addConnect(program: Command): void {
  withStoreOptions(program.command("connect <client>"))
    .description(`let a client ask Portcullis instead of its servers: ${CONNECTABLE.join(", ")}`)
    .option("--app <name>", "the application it belongs to", "local")
    .option("--url <url>", "a gateway that is running, instead of starting one")
    .option("--key-env <name>", "with --url: the variable that holds the client's key")
    .option("--project", "in the project's configuration instead of the user's")
    .option("-y, --yes", "without asking")
    .addOption(new Option("--dry-run", "only show the difference").conflicts("yes"))
    .action(async (client: string, options: ConnectClientOptions, command: Command) => {
      const { connectClient } = await import("../../integrations/clients/connect.js");
      await connectClient(command, client, options);
    });

  withStoreOptions(program.command("disconnect <client>"))
    .description("put a client's configuration back as it was")
    .option("-y, --yes", "without asking")
    .action(async (client: string, options: DisconnectOptions, command: Command) => {
      const { disconnectClient } = await import("../../integrations/clients/connect.js");
      await disconnectClient(command, client, options);
    });
}
