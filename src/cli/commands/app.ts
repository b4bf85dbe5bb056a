import { readFileSync } from "node:fs";
import { type Command, Option } from "commander";
import type { ApplyOptions } from "../../integrations/declared/apply.js";
import { type ChangedApplication, changeApplication, remarks } from "../../integrations/declared/change.js";
import { changeText, differences, fieldPath, valueOf, withField } from "../../integrations/declared/difference.js";
import type { DeclaredExportOptions } from "../../integrations/declared/export.js";
import { CliError, EXIT } from "../../lib/exit.js";
import { type Out, paint, tableOf } from "../../lib/print.js";
import type { JsonObject } from "../../mcp/index.js";
import { parserOf } from "../../runtime/config.js";
import { otherDataDirectories, otherDirectoriesHelp, statePaths } from "../../runtime/data-directory.js";
import type { LoginOptions } from "../../runtime/oauth/login.js";
import { agreed, outFor, shared } from "../../runtime/options.js";
import {
  allPages,
  noApplication,
  operator,
  pageAfter,
  type StoreOptions,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";
import { type Application, hideCredentials } from "../../storage/index.js";

export function addAppCommands(program: Command): void {
  addExport(program);
  const app = program
    .command("app")
    .description("list, change and apply applications: their servers, policies, keys and limits");

  withStoreOptions(app.command("ls"))
    .description("list the applications")
    .action((options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const all = await allPages((after) => storage.applications.list(pageAfter(after)));
        outFor(command).data(all.map(summary), () =>
          tableOf(all, noneText(command), {
            id: ({ id }) => id,
            revision: ({ revision }) => String(revision),
            servers: ({ document }) => Object.keys(document.servers ?? {}).join(", "),
            changed: ({ updatedAt }) => new Date(updatedAt).toISOString(),
            description: ({ document }) => document.description ?? "",
          }),
        );
      }),
    );

  withStoreOptions(app.command("show <app>"))
    .description("show an application; credentials are hidden")
    .action((id: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const found = await storage.applications.get(id);
        if (!found) throw noApplication(id);
        showApplication(outFor(command), found);
      }),
    );

  withStoreOptions(app.command("add <app>"))
    .description("create an application without servers and policies")
    .option("--description <text>", "text that describes the application")
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
      "set one field, such as servers.s3.command or /routes/community.aws.s3; the value is JSON, text, or - for standard input",
    )
    .option("--unset", "remove the field")
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
          const changed = await changeApplication(storage, id, (document) =>
            withField(document, fieldPath(path), fresh),
          );
          report(outFor(command), changed);
          const known = await remarks(changed.before);
          for (const each of await remarks(changed.after)) if (!known.includes(each)) outFor(command).note(each);
        });
      },
    );

  withStoreOptions(app.command("rm <app>"))
    .description("remove an application with its keys, secrets, pins and values")
    .option("-y, --yes", "do not ask for confirmation")
    .action((id: string, options: StoreOptions & { yes?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        if (!(await storage.applications.get(id))) throw noApplication(id);
        await agreed(`Remove ${id} with everything that is its own?`, options.yes);
        await storage.applications.remove(id, operator());
        outFor(command).data({ removed: id }, () => `removed ${id}`);
      }),
    );

  withStoreOptions(app.command("login <app> <server>"))
    .description("log in to a server that needs OAuth, for the application or for one of its users")
    .option("--user <name>", "user whose token it is, where each user has one")
    .option("--scope <scope...>", "scopes to request instead of those that the server names")
    .option("--port <number>", "port that the browser returns to; 0 lets the system choose", parserOf("port"), 0)
    .option("--timeout <seconds>", "how long to wait for the login", Number, 300)
    .option("--public-url <url>", "public URL of the gateway, which describes this client")
    .option("--allow-private <host...>", "private hosts, HOST or HOST:PORT, that may be the authorization server")
    .action(async (id: string, server: string, options: LoginOptions, command: Command) => {
      const { login } = await import("../../runtime/oauth/login.js");
      await login(command, id, server, options);
    });

  withStoreOptions(app.command("logout <app> <server>"))
    .description("remove the token from the store; it is not revoked at its issuer")
    .option("--user <name>", "user whose token it is")
    .action(async (id: string, server: string, options: LoginOptions, command: Command) => {
      const { logout } = await import("../../runtime/oauth/login.js");
      await logout(command, id, server, options);
    });

  withStoreOptions(app.command("apply <file>"))
    .description("apply a portcullis.yaml to the store; the difference is shown first")
    .option("-y, --yes", "do not ask for confirmation")
    .addOption(new Option("--dry-run", "show the difference and change nothing").conflicts("yes"))
    .option("--prune", "remove applications that the file does not name")
    .action(async (file: string, options: StoreOptions & ApplyOptions, command: Command) => {
      // The reader of the file brings the host along; the other commands do without it.
      const { applyFile } = await import("../../integrations/declared/apply.js");
      await applyFile(command, file, options);
    });
}

function noneText(command: Command): string {
  const { dir } = statePaths(shared(command).dir);
  const others = otherDataDirectories(dir).length === 0 ? "" : `; ${otherDirectoriesHelp(dir)}`;
  return `no applications are stored in ${dir}: create one with \`portcullis app add NAME\`${others}`;
}

function report(out: Out, { before, after }: ChangedApplication): void {
  const changes = differences(before.document as JsonObject, after.document as JsonObject);
  out.data(summary(after), () =>
    changes.length === 0 ? "nothing changed" : changes.map((each) => changeText(each)).join("\n"),
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

function addExport(program: Command): void {
  withStoreOptions(program.command("export"))
    .description("write applications as portcullis.yaml, without secrets; `app apply` reads it")
    .option("--app <name...>", "applications to export (default: all)")
    .option("--out <directory>", "directory to write portcullis.yaml and the policies to")
    .option("--force", "overwrite existing files")
    .action(async (options: DeclaredExportOptions, command: Command) => {
      const { exportApplications } = await import("../../integrations/declared/export.js");
      await exportApplications(command, options);
    });
}
