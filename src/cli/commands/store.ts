import { join } from "node:path";
import type { Command } from "commander";
import { CliError } from "../../lib/exit.js";
import { outFor, shared } from "../../runtime/options.js";
import { statePaths } from "../../runtime/data-directory.js";
import { agreed } from "../../runtime/store/ask.js";
import { backUpBeforeMigration, type StoreOptions, withStore, withStoreOptions } from "../../runtime/store/open.js";

/** Gateways that were heard of so recently are running. */
const ALIVE_MS = 20_000;

export function addStoreCommands(program: Command): void {
  const store = program
    .command("store")
    .description("the level of the store's tables, and the way back to the level before");

  withStoreOptions(store.command("level"))
    .description("the level of the tables; an older store is brought up to date by it, as by every command")
    .action((options: StoreOptions, command: Command) =>
      withStore(command, options, async ({ dumps: { level }, kind }) =>
        outFor(command).data({ kind, level }, () => `${kind}, level ${level}`),
      ),
    );

  withStoreOptions(store.command("downgrade"))
    .description("lead the tables back by one level, for the version before; stop all gateways first")
    .option("-y, --yes", "do not ask")
    .action((options: StoreOptions & { yes?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        const running = await storage.replicas.list(ALIVE_MS);
        if (running.length > 0) {
          const names = running.map(({ id }) => id).join(", ");
          throw new CliError(`gateways use the store: ${names}`, undefined, "stop them and wait 20 seconds");
        }
        await agreed("Lead the store back by one level? What only the newer level has is removed.", options.yes);
        const folder = join(statePaths(shared(command).dir).dir, "backups");
        const backup = await backUpBeforeMigration(folder, storage.dumps.write, storage.dumps.level);
        const level = await storage.dumps.downgrade();
        outFor(command).data({ level, backup }, () =>
          [
            `the store has level ${level}; install the version before now, this one would lead it forward again`,
            `a copy of level ${level + 1} is in ${backup}`,
          ].join("\n"),
        );
      }),
    );
}
