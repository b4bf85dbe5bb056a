import type { Command } from "commander";
import { CliError, EXIT } from "../../lib/exit.js";
import { tableOf } from "../../lib/print.js";
import { agreed, outFor, secretValue } from "../../runtime/options.js";
import {
  allPages,
  noApplication,
  operator,
  pageAfter,
  type StoreOptions,
  sealerFor,
  sealKeySource,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";
import { isSharedKey, resealAll, sealedValues } from "../../runtime/store/sealer.js";
import { createSealer, loadSealKeys, type Storage } from "../../storage/index.js";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;

export function addSecretCommands(program: Command): void {
  const secret = program
    .command("secret")
    .description("store and list secrets of applications; documents refer to them as ${secret:NAME}");

  withStoreOptions(secret.command("set <app> <name>"))
    .description("store a secret; the value is typed or read from standard input, never an argument")
    .action((app: string, name: string, options: StoreOptions, command: Command) => {
      if (!NAME.test(name)) {
        throw new CliError("invalid name of a secret: expected letters, digits, dots, - and _", EXIT.usage);
      }
      return withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const sealer = await sealerFor(storage, command, options);
        const sealed = sealer.seal({ kind: "secret", app, name }, await secretValue(name));
        await storage.secrets.put(app, name, sealed, operator());
        outFor(command).data({ app, name }, () => `stored ${name} for ${app}`);
      });
    });

  withStoreOptions(secret.command("ls <app>"))
    .description("list the names of an application's secrets")
    .action((app: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const all = await namesOf(storage, app);
        outFor(command).data(
          all.map(({ name, updatedAt }) => ({ name, updated_at: new Date(updatedAt).toISOString() })),
          () =>
            tableOf(all, "no secrets", {
              name: ({ name }) => name,
              set: ({ updatedAt }) => new Date(updatedAt).toISOString(),
            }),
        );
      }),
    );

  withStoreOptions(secret.command("rm <app> <name>"))
    .description("remove a secret")
    .action((app: string, name: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.secrets.remove(app, name, operator()))) {
          throw new CliError(`application \`${app}\` has no secret \`${name}\``);
        }
        outFor(command).data({ removed: name }, () => `removed ${name}`);
      }),
    );

  withStoreOptions(secret.command("reseal [app]"))
    .description("seal values again with the current seal key, of one application or of all")
    .action((app: string | undefined, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (app !== undefined && !(await storage.applications.get(app))) throw noApplication(app);
        const resealed = await resealAll(storage, await sealerFor(storage, command, options), app);
        outFor(command).data({ resealed }, () => `sealed ${resealed.length} again`);
      }),
    );

  withStoreOptions(secret.command("reset-seal"))
    .description("remove the values of a lost seal key, and nothing else")
    .option("-y, --yes", "do not ask for confirmation")
    .action((options: StoreOptions & { yes?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        const out = outFor(command);
        // Creates a key where there is none.
        const sealer = createSealer(loadSealKeys(sealKeySource(command, options)));
        const lost = (await sealedValues(storage)).filter(({ sealed }) => !sealer.knows(sealed));
        const titles = lost.filter((value) => !isSharedKey(value)).map(({ title }) => title);
        if (lost.length === 0)
          return out.data({ lost: [] }, () => "the seal key opens everything; nothing was changed");
        out.note(
          `sealed with a key that is not here:\n${titles.map((title) => `  ${title}`).join("\n") || "  nothing of yours"}`,
        );
        await agreed(`Remove these ${titles.length} values? They cannot be opened without the lost key.`, options.yes);
        for (const value of lost) await value.remove(operator());
        await storage.feed.announce({
          topic: "store",
          action: "reset",
          name: `seal, ${lost.length} values`,
          by: operator(),
        });
        out.data({ lost: titles }, () =>
          [
            `removed ${titles.length}; start the gateways again, then set each value again:`,
            "  portcullis secret set APP NAME",
            "  portcullis app login APP SERVER",
          ].join("\n"),
        );
      }),
    );
}

function namesOf(storage: Storage, app: string) {
  return allPages((after) => storage.secrets.list(app, pageAfter(after)));
}
