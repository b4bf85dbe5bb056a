import type { Command } from "commander";
import type { Storage } from "../../storage/index.js";
import { CliError, EXIT } from "../exit.js";
import { outFor } from "../options.js";
import { table } from "../print.js";
import { secretValue } from "../store/ask.js";
import {
  allPages,
  noApplication,
  operator,
  pageAfter,
  sealerFor,
  type StoreOptions,
  withStore,
  withStoreOptions,
} from "../store/open.js";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;

export function addSecretCommands(program: Command): void {
  const secret = program
    .command("secret")
    .description("an application's secrets, for ${secret:NAME}; never shown again");

  withStoreOptions(secret.command("set <app> <name>"))
    .description("store one; the value is typed, or comes from a pipe, and is never an argument")
    .action((app: string, name: string, options: StoreOptions, command: Command) => {
      if (!NAME.test(name)) {
        throw new CliError("a secret's name has letters, digits, dots, - and _", EXIT.usage);
      }
      return withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const sealer = sealerFor(command, options);
        const sealed = sealer.seal({ kind: "secret", app, name }, await secretValue(name));
        await storage.secrets.put(app, name, sealed, operator());
        outFor(command).data({ app, name }, () => `stored ${name} for ${app}`);
      });
    });

  withStoreOptions(secret.command("ls <app>"))
    .description("their names")
    .action((app: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const all = await namesOf(storage, app);
        outFor(command).data(
          all.map(({ name, updatedAt }) => ({ name, updated_at: new Date(updatedAt).toISOString() })),
          () =>
            all.length === 0
              ? "there are none"
              : table(
                  ["name", "set"],
                  all.map(({ name, updatedAt }) => [name, new Date(updatedAt).toISOString()]),
                ),
        );
      }),
    );

  withStoreOptions(secret.command("rm <app> <name>"))
    .description("remove one")
    .action((app: string, name: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.secrets.remove(app, name, operator()))) {
          throw new CliError(`application \`${app}\` has no secret \`${name}\``);
        }
        outFor(command).data({ removed: name }, () => `removed ${name}`);
      }),
    );

  withStoreOptions(secret.command("reseal <app>"))
    .description("seal again what was sealed with an older key, after a new one was put first")
    .action((app: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const sealer = sealerFor(command, options);
        const resealed: string[] = [];
        for (const { name } of await namesOf(storage, app)) {
          const found = await storage.secrets.get(app, name);
          if (!found || !sealer.isOld(found.sealed)) continue;
          const as = { kind: "secret", app, name } as const;
          await storage.secrets.put(app, name, sealer.seal(as, sealer.open(as, found.sealed)), operator());
          resealed.push(name);
        }
        outFor(command).data({ resealed }, () => `sealed ${resealed.length} again`);
      }),
    );
}

function namesOf(storage: Storage, app: string) {
  return allPages((after) => storage.secrets.list(app, pageAfter(after)));
}
