import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import type { ApplyOptions } from "../../integrations/declared/command.js";
import { isJsonObject, type JsonObject } from "../../mcp/index.js";
import type { Application, ApplicationDocument, Storage } from "../../storage/index.js";
import { changeText, differences } from "../../integrations/declared/difference.js";
import { clearCredentials, hideCredentials } from "../../storage/index.js";
import { CliError, EXIT } from "../../lib/exit.js";
import type { LoginOptions } from "../../runtime/oauth/login.js";
import { otherDataDirectories, otherDirectoriesHelp } from "../../runtime/find-data-directory.js";
import { outFor, portNumber, shared } from "../../runtime/options.js";
import { type Out, paint, table } from "../../lib/print.js";
import { statePaths } from "../../runtime/data-directory.js";
import { agreed } from "../../runtime/store/ask.js";
import { pathOf, valueOf, withField } from "../../runtime/store/edit.js";
import {
  allPages,
  noApplication,
  operator,
  pageAfter,
  type StoreOptions,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";

/** Somebody else may change the document between reading and writing it. */
const MAX_TRIES = 5;
const MAX_PROBLEMS = 50;

export function addAppCommands(program: Command): void {
  const app = program.command("app").description("applications: who is served, with which servers, rules and limits");

  withStoreOptions(app.command("ls"))
    .description("list them")
    .action((options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const all = await allPages((after) => storage.applications.list(pageAfter(after)));
        outFor(command).data(all.map(summary), () =>
          all.length === 0
            ? noneText(command)
            : table(
                ["id", "revision", "servers", "changed", "description"],
                all.map(({ id, revision, document, updatedAt }) => [
                  id,
                  String(revision),
                  Object.keys(document.servers ?? {}).join(", "),
                  new Date(updatedAt).toISOString(),
                  document.description ?? "",
                ]),
              ),
        );
      }),
    );

  withStoreOptions(app.command("show <app>"))
    .description("one of them; credentials are not shown")
    .action((id: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const found = await storage.applications.get(id);
        if (!found) throw noApplication(id);
        showApplication(outFor(command), found);
      }),
    );

  withStoreOptions(app.command("add <app>"))
    .description("make one, with nothing in it")
    .option("--description <text>", "for people")
    .action((id: string, options: StoreOptions & { description?: string }, command: Command) =>
      withStore(
        command,
        options,
        async (storage) => {
          const { description } = options;
          const document = description === undefined ? {} : { description };
          const made = await storage.applications.put(id, document, operator(), 0);
          if (!made)
            throw new CliError(`there is an application \`${id}\` already`, EXIT.error, "change it with app set");
          showApplication(outFor(command), made);
        },
        { create: true },
      ),
    );

  withStoreOptions(app.command("set <app> <path> [value]"))
    .description(
      "change one field: servers.s3.command, or /routes/community.aws.s3; the value is JSON or text, - is stdin",
    )
    .option("--unset", "take the field away")
    .action(
      (
        id: string,
        path: string,
        value: string | undefined,
        options: StoreOptions & { unset?: boolean },
        command: Command,
      ) => {
        if ((value === undefined) === (options.unset !== true)) {
          throw new CliError("give a value, or --unset and no value", EXIT.usage);
        }
        const fresh = value === undefined ? undefined : valueOf(value === "-" ? readFileSync(0, "utf8") : value);
        return withStore(command, options, async (storage) => {
          const changed = await change(storage, id, (document) => withField(document, pathOf(path), fresh));
          report(outFor(command), changed);
          const known = await remarks(changed.before);
          for (const each of await remarks(changed.after)) if (!known.includes(each)) outFor(command).note(each);
        });
      },
    );

  withStoreOptions(app.command("rm <app>"))
    .description("remove one, with its keys, secrets, pins and values")
    .option("-y, --yes", "without asking")
    .action((id: string, options: StoreOptions & { yes?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(id))) throw noApplication(id);
        await agreed(`Remove ${id} with everything that is its own?`, options.yes);
        await storage.applications.remove(id, operator());
        outFor(command).data({ removed: id }, () => `removed ${id}`);
      }),
    );

  withStoreOptions(app.command("login <app> <server>"))
    .description("log in at a server that wants OAuth, for the application or one of its users")
    .option("--user <name>", "for this user, where each has their own token")
    .option("--scope <scope...>", "ask for these instead of what the server says")
    .option("--port <number>", "where the browser comes back to (0 lets the system choose)", portNumber, 0)
    .option("--timeout <seconds>", "how long to wait for the person", Number, 300)
    .option("--public-url <url>", "the gateway's public address, which describes this client")
    .option("--allow-private <host...>", "private hosts, HOST or HOST:PORT, that the authorization server may be at")
    .action(async (id: string, server: string, options: LoginOptions, command: Command) => {
      const { login } = await import("../../runtime/oauth/login.js");
      await login(command, id, server, options);
    });

  withStoreOptions(app.command("logout <app> <server>"))
    .description("forget the token; its issuer is not told")
    .option("--user <name>", "of this user")
    .action(async (id: string, server: string, options: LoginOptions, command: Command) => {
      const { logout } = await import("../../runtime/oauth/login.js");
      await logout(command, id, server, options);
    });

  withStoreOptions(app.command("apply <file>"))
    .description("make the store what a portcullis.yaml says; the difference is shown first")
    .option("-y, --yes", "without asking")
    .addOption(new Option("--dry-run", "only show the difference").conflicts("yes"))
    .option("--prune", "remove applications that the file does not name")
    .action(async (file: string, options: StoreOptions & ApplyOptions, command: Command) => {
      // The reader of the file brings the host along; the other commands do without it.
      const { applyFile } = await import("../../integrations/declared/command.js");
      await applyFile(command, file, options);
    });
}

function noneText(command: Command): string {
  const { dir } = statePaths(shared(command).dir);
  const others = otherDataDirectories(dir).length === 0 ? "" : `; ${otherDirectoriesHelp(dir)}`;
  return `no applications are stored in ${dir}: create one with \`portcullis app add NAME\`${others}`;
}

interface Changed {
  readonly before: Application;
  readonly after: Application;
}

async function change(storage: Storage, id: string, edit: (document: JsonObject) => JsonObject): Promise<Changed> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const before = await storage.applications.get(id);
    if (!before) throw noApplication(id);
    const document = edit(before.document as JsonObject) as ApplicationDocument;
    await refuseRules(id, before.document, document);
    const after = await storage.applications.put(id, document, operator(), before.revision);
    if (after) return { before, after };
  }
  throw new CliError(`application \`${id}\` keeps being changed by somebody else; try again`);
}

/** Rules that no gateway could load are not stored: those that run would go on by the old ones, and others by none. */
async function refuseRules(id: string, before: ApplicationDocument, { policies }: ApplicationDocument): Promise<void> {
  if (!isTexts(policies) || JSON.stringify(policies) === JSON.stringify(before.policies)) return;
  // Cedar takes a while to load; the other fields do without it.
  const [{ rulesProblems, sourcesOf }, { describeProblem }] = await Promise.all([
    import("../../integrations/declared/rules.js"),
    import("../../policy/index.js"),
  ]);
  const problems = rulesProblems(sourcesOf(policies));
  if (problems.length === 0) return;
  const help = problems.slice(0, MAX_PROBLEMS).map(describeProblem).join("\n");
  const message = `the rules of application \`${id}\` are not right; nothing was changed`;
  throw new CliError(message, EXIT.invalidPolicy, help);
}

/** The store says what else is wrong with them. */
function isTexts(policies: unknown): policies is Record<string, string> {
  return isJsonObject(policies) && Object.values(policies).every((text) => typeof text === "string");
}

/** What is stored as it is, and should be looked at. */
async function remarks({ id, document }: Application): Promise<string[]> {
  const remark =
    document.filesystem === undefined && document.linux === undefined
      ? undefined
      : (await import("../../integrations/declared/folders.js")).unusableHere(id, document);
  return [...clearCredentials(id, document as JsonObject), ...(remark === undefined ? [] : [remark])];
}

function report(out: Out, { before, after }: Changed): void {
  const changes = differences(before.document as JsonObject, after.document as JsonObject);
  out.data(summary(after), () =>
    changes.length === 0 ? "nothing was different" : changes.map((each) => changeText(each)).join("\n"),
  );
}

function summary({ id, revision, document, createdAt, updatedAt }: Application): JsonObject {
  return {
    id,
    revision,
    created_at: new Date(createdAt).toISOString(),
    updated_at: new Date(updatedAt).toISOString(),
    document: hideCredentials(document as JsonObject),
  };
}

function showApplication(out: Out, application: Application): void {
  const shown = summary(application);
  const { app, agent, tool } = application.document.limits ?? {};
  // The document alone reads as if the number held for all replicas together.
  const note = [app, agent, tool].some((limit) => limit?.concurrent !== undefined)
    ? "\nconcurrent is counted by each replica and worker for itself"
    : "";
  out.data(
    shown,
    () =>
      `${paint.bold(application.id)} · revision ${application.revision}\n${JSON.stringify(shown.document, null, 2)}${note}`,
  );
}
