// What servers say about themselves, held to what was accepted: looking at a difference, and accepting exactly that.

import type { Command } from "commander";
import { visible } from "../../telemetry/index.js";
import { type Difference, PinKeeper } from "../../upstream/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { outFor } from "../../runtime/options.js";
import { paint } from "../../lib/print.js";
import { noApplication, operator, type StoreOptions, withStore, withStoreOptions } from "../../runtime/store/open.js";

/** Enough of a hash to name one difference among a server's few. */
const SHOWN = 12;
const HASH = /^[0-9a-f]{12,64}$/;

export function addPinCommands(program: Command): void {
  const pin = program
    .command("pin")
    .description("what downstream servers changed about their tools, prompts and instructions");

  withStoreOptions(pin.command("ls <app> <server>"))
    .description("the differences that wait for an operator; until then nobody sees what has changed")
    .action((app: string, server: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const waiting = await new PinKeeper(storage.pins).differences(app, server);
        outFor(command).data(
          waiting.map(({ kind, name, hash, isNew, changes }) => ({ kind, name, hash, new: isNew, changes })),
          () => (waiting.length === 0 ? "nothing waits" : waiting.map(shown).join("\n\n")),
        );
      }),
    );

  withStoreOptions(pin.command("accept <app> <server> <hash>"))
    .description("accept the difference with this hash, as `pin ls` showed it")
    .action((app: string, server: string, hash: string, options: StoreOptions, command: Command) => {
      if (!HASH.test(hash)) {
        throw new CliError(`a hash has at least ${SHOWN} of the digits that \`pin ls\` shows`, EXIT.usage);
      }
      return withStore(command, options, async (storage) => {
        const keeper = new PinKeeper(storage.pins);
        const found = (await keeper.differences(app, server)).filter((each) => each.hash.startsWith(hash));
        const [one] = found;
        if (one === undefined || found.length > 1) {
          throw new CliError(
            found.length > 1 ? `more than one difference begins with ${hash}` : `no difference ${hash} waits`,
            undefined,
            `portcullis pin ls ${app} ${server} shows what waits now`,
          );
        }
        const id = { app, server, kind: one.kind, name: one.name };
        if (!(await keeper.acceptDifference(id, one.hash, operator()))) {
          throw new CliError("the server has said something else meanwhile; look at it again");
        }
        outFor(command).data({ accepted: one.hash, kind: one.kind, name: one.name }, () => `accepted ${nameOf(one)}`);
      });
    });

  withStoreOptions(pin.command("clear <app> <server>"))
    .description("forget what was accepted of a server; what it lists next is seen for the first time")
    .action((app: string, server: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const count = await storage.pins.clear(app, server, operator());
        outFor(command).data({ removed: count }, () => `removed ${count} pins of ${server}`);
      }),
    );
}

/** Names come from a server: quoted, so that none can pass for a line of ours. */
function nameOf({ kind, name }: Difference): string {
  return `${kind} ${visible(JSON.stringify(name))}`;
}

function shown(difference: Difference): string {
  const { hash, isNew, text } = difference;
  const title = `${nameOf(difference)} ${isNew ? "is new" : "has changed"}, ${hash.slice(0, SHOWN)}`;
  return `${paint.bold(title)}\n${text}`;
}
