import type { Command } from "commander";
import type { OperationResult } from "../../admin/index.js";
import { type ObserveOptions, type ObserveResult, observeServer } from "../../integrations/clients/observe.js";
import { changeText } from "../../integrations/declared/difference.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { paint, tableOf } from "../../lib/print.js";
import { askAdmin, withAdmin } from "../../runtime/admin-client.js";
import { outFor } from "../../runtime/options.js";
import { problemOf, type ServerFacts, serverFactsText, stateWord } from "../../runtime/server-facts.js";
import { profileLines } from "../../runtime/server-sandbox.js";
import { sandboxOf } from "../../runtime/servers.js";
import {
  LOCAL_APP,
  noApplication,
  operator,
  type StoreOptions,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";
import { visible } from "../../telemetry/index.js";
import { type Difference, PinKeeper } from "../../upstream/index.js";

export function addServerCommands(program: Command): void {
  addPinCommands(program);
  const server = program.command("server").description("show the state of a running gateway's servers");
  addObserveCommand(server);
  withAdmin(server.command("ls [app]"))
    .description("list the servers that are in use")
    .action(async (app: string | undefined, { admin }: { admin?: string }, command: Command) => {
      const known = (await factsOf(command, admin)).filter(isInUse);
      const servers = known.filter((each) => app === undefined || each.app === app);
      outFor(command).data(servers, () =>
        tableOf(servers, "no server is in use: an application's servers are started by its first caller", {
          app: ({ app }) => app,
          server: (each) => each.server,
          state: stateWord,
          tools: ({ tools }) => String(tools),
          calls: ({ calls }) => String(calls),
          failures: ({ failures }) => String(failures),
          restarts: ({ restarts }) => String(restarts),
          "last problem": problemOf,
        }),
      );
    });
  withAdmin(server.command("show <app> [server]"))
    .description(
      "show a server, and why it does not start; known secrets are hidden; with one application its name may be left out",
    )
    .action(async (first: string, second: string | undefined, { admin }: { admin?: string }, command: Command) => {
      const servers = await factsOf(command, admin);
      const name = second ?? first;
      const apps = [...new Set(servers.map(({ app }) => app))];
      if (second === undefined && apps.length > 1) {
        throw new CliError("several applications: name one", EXIT.usage, `known: ${apps.join(", ")}`);
      }
      const app = second === undefined ? (apps[0] ?? LOCAL_APP) : first;
      const found = servers.find((each) => isInUse(each) && each.app === app && each.server === name);
      if (!found) {
        throw new CliError(
          `server ${name} of application ${app} is not in use`,
          EXIT.error,
          "`portcullis server ls` lists those that are; an application's servers are started by its first caller",
        );
      }
      outFor(command).data(found, () => serverFactsText(found));
    });
}

function addObserveCommand(server: Command): void {
  const several = (value: string, before: readonly string[] = []): string[] => [...before, value];
  withStoreOptions(withAdmin(server.command("observe <app> <server>")))
    .description("record what a server touches; then propose the narrowest sandbox profile for it")
    .option("--read <path>", "let it read this path too; may be repeated", several)
    .option("--write <path>", "let it write this path too; may be repeated", several)
    .option("--host <name>", "let it reach this host too; may be repeated", several)
    .option("--accept", "put the proposed profile in force and end the observation")
    .action(async (app: string, name: string, options: ObserveOptions, command: Command) => {
      const result = await observeServer(command, app, name, options);
      outFor(command).data(result, () => observationText(app, name, result));
    });
}

function observationText(app: string, name: string, result: ObserveResult): string {
  if (result.state === "started") {
    return [
      `server ${app}/${name} is observed from its next start, in this profile:`,
      ...profileLines(sandboxOf({ sandbox: result.sandbox }).profile).map((line) => `  ${visible(line)}`),
      `call its tools, then run \`portcullis server observe ${app} ${name}\` again`,
    ].join("\n");
  }
  const { state, changes, refusedPaths, refusedHosts } = result;
  return [
    changes.length === 0 ? "it used all of its profile: nothing changes" : paint.bold("the profile becomes narrower:"),
    ...changes.map((change) => `  ${changeText(change)}`),
    ...refusedPaths.map(
      ({ path, isWritten }) => `  refused ${visible(path)}: --${isWritten ? "write" : "read"} opens it`,
    ),
    ...refusedHosts.map((host) => `  refused ${visible(host)}: --host opens it`),
    state === "accepted"
      ? "in force from its next start; the observation has ended"
      : "run it again with --accept to put this in force",
  ].join("\n");
}

async function factsOf(command: Command, admin: string | undefined): Promise<readonly ServerFacts[]> {
  const { servers } = (await askAdmin(command, admin, "/v1/servers")) as OperationResult<"listServers">;
  return servers;
}

function isInUse({ replica }: ServerFacts): boolean {
  return replica !== "";
}

/** Enough of a hash to name one difference among a server's few. */
const SHOWN = 12;
const HASH = /^[0-9a-f]{12,64}$/;

function addPinCommands(program: Command): void {
  const pin = program.command("pin").description("review changed tools, prompts and instructions of servers");

  withStoreOptions(pin.command("ls <app> <server>"))
    .description("list changed definitions that are pending review; callers do not see them until they are accepted")
    .action((app: string, server: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(app))) throw noApplication(app);
        const waiting = await new PinKeeper(storage.pins).differences(app, server);
        outFor(command).data(
          waiting.map(({ kind, name, hash, isNew, changes }) => ({ kind, name, hash, new: isNew, changes })),
          () => (waiting.length === 0 ? "no definition is pending review" : waiting.map(shown).join("\n\n")),
        );
      }),
    );

  withStoreOptions(pin.command("accept <app> <server> <hash>"))
    .description("accept the definition with this hash, as `pin ls` prints it")
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
          throw new CliError("the server changed it again meanwhile: review it again");
        }
        outFor(command).data({ accepted: one.hash, kind: one.kind, name: one.name }, () => `accepted ${nameOf(one)}`);
      });
    });

  withStoreOptions(pin.command("clear <app> <server>"))
    .description("remove the pins of a server; its next list is accepted like a first one")
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
