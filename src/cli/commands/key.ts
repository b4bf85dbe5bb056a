import type { Command } from "commander";
import { createKey, PERMISSION_FORMS } from "../../auth/index.js";
import { expiry, firstKeyNote, type KeyOptions, keyRequest } from "../../integrations/declared/key-requests.js";
import { CliError } from "../../lib/exit.js";
import { tableOf } from "../../lib/print.js";
import { outFor } from "../../runtime/options.js";
import {
  allPages,
  ensureLocalApplication,
  LOCAL_APP,
  noApplication,
  operator,
  pageAfter,
  type StoreOptions,
  withStore,
  withStoreOptions,
} from "../../runtime/store/open.js";
import type { ApiKey } from "../../storage/index.js";

interface RotateOptions extends StoreOptions {
  keep?: string;
  expires?: string;
}

export function addKeyCommands(program: Command): void {
  const key = program.command("key").description("create, list, rotate and revoke API keys");

  withStoreOptions(key.command("add <app>"))
    .description("create an API key; it is printed once and only its hash is stored")
    .requiredOption("--name <name>", "name of the key; permissions that the application declares for this name apply")
    .option("--agent <agent>", "agent that uses it (default: the name)")
    .option("--allow <permission...>", PERMISSION_FORMS)
    .option("--per-minute <n>", "limit of calls in a minute")
    .option("--per-hour <n>", "limit of calls in an hour")
    .option("--expires <when>", "when it expires: a date, or a time from now such as 12h or 90d")
    .action((app: string, options: KeyOptions, command: Command) =>
      withStore(
        command,
        options,
        async (storage) => {
          const request = await keyRequest(storage, app, options);
          if (app === LOCAL_APP) await ensureLocalApplication(storage, operator());
          const { hasCredentials: hadKeys } = await storage.access.get();
          const { key: made, token } = await createKey(storage.keys, request, operator());
          const out = outFor(command);
          out.note(`key ${made.id} for ${made.app}/${made.agent}: it is shown now and never again`);
          if (!hadKeys) out.note(await firstKeyNote(storage));
          out.data({ token, key: shown(made) }, () => token);
        },
        // Only this application exists without having been created.
        { create: app === LOCAL_APP },
      ),
    );

  withStoreOptions(key.command("ls [app]"))
    .description("list the API keys of one application or of all")
    .option("--active", "list only keys that are valid now")
    .action((app: string | undefined, options: StoreOptions & { active?: boolean }, command: Command) =>
      withStore(command, options, async (storage) => {
        const mustExist = app !== undefined && app !== LOCAL_APP;
        if (mustExist && !(await storage.applications.get(app))) throw noApplication(app);
        const filter = { activeOnly: options.active === true, ...(app === undefined ? {} : { app }) };
        const keys = await allPages((after) => storage.keys.list(filter, pageAfter(after)));
        outFor(command).data(keys.map(shown), () =>
          tableOf(keys, "no API keys", {
            id: ({ id }) => id,
            who: ({ app, agent }) => `${app}/${agent}`,
            name: ({ name }) => name,
            may: ({ permissions }) => permissions.join(", "),
            state: stateOf,
            "last used": ({ lastUsedAt: at }) => (at === undefined ? "never" : new Date(at).toISOString()),
          }),
        );
      }),
    );

  withStoreOptions(key.command("rotate <id>"))
    .description("create a key with the same agent, permissions and limits, and revoke this one, at once or later")
    .option("--keep <duration>", "how long the old key stays valid: 30m, 12h, 7d")
    .option("--expires <when>", "when the new key expires: a date, or a time from now such as 90d")
    .action((id: string, options: RotateOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const old = await storage.keys.get(idIn(id));
        if (!old || old.revokedAt !== undefined) {
          throw new CliError(
            old ? `key ${old.id} is revoked` : `there is no key ${idIn(id)}`,
            undefined,
            "portcullis key ls",
          );
        }
        const { app, agent, name, permissions, limits } = old;
        const until = options.keep === undefined ? undefined : expiry(options.keep);
        const expiresAt = options.expires === undefined ? undefined : expiry(options.expires);
        const request = { app, agent, name, permissions, limits, ...(expiresAt === undefined ? {} : { expiresAt }) };
        const { key: made, token } = await createKey(storage.keys, request, operator());
        if (until === undefined) await storage.keys.revoke(old.id, operator());
        else {
          const sooner = Math.min(until, old.expiresAt ?? until);
          await storage.keys.change(old.id, { permissions, limits, expiresAt: sooner }, operator());
        }
        const out = outFor(command);
        const end = until === undefined ? "is revoked" : `works until ${new Date(until).toISOString()}`;
        out.note(`key ${made.id} for ${app}/${agent}: it is shown now and never again; ${old.id} ${end}`);
        out.data({ token, key: shown(made), old: old.id }, () => token);
      }),
    );

  withStoreOptions(key.command("revoke <id>"))
    .description("revoke a key at once, at every gateway")
    .action((id: string, options: StoreOptions, command: Command) =>
      withStore(command, options, async (storage) => {
        const wanted = idIn(id);
        if (!(await storage.keys.revoke(wanted, operator()))) {
          const known = await storage.keys.get(wanted);
          throw new CliError(known ? `key ${wanted} was revoked before` : `there is no key ${wanted}`);
        }
        outFor(command).data({ revoked: wanted }, () => `revoked ${wanted}`);
      }),
    );
}

/** A whole key may be pasted: its first two parts are its id. */
function idIn(text: string): string {
  return text.split("_").slice(0, 2).join("_");
}

function stateOf({ revokedAt, expiresAt }: ApiKey): string {
  if (revokedAt !== undefined) return "revoked";
  if (expiresAt === undefined) return "in force";
  return expiresAt <= Date.now() ? "expired" : `until ${new Date(expiresAt).toISOString()}`;
}

/** Everything but the hash. */
function shown(key: ApiKey): object {
  const time = (at: number | undefined): string | null => (at === undefined ? null : new Date(at).toISOString());
  const { id, app, agent, name, permissions, limits } = key;
  return {
    id,
    app,
    agent,
    name,
    permissions,
    limits,
    created_at: time(key.createdAt),
    expires_at: time(key.expiresAt),
    revoked_at: time(key.revokedAt),
    last_used_at: time(key.lastUsedAt),
  };
}
