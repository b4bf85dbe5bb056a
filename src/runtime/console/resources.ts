// Applications, servers, pins, keys and secrets as the console shows and changes them. Values that look like credentials
// are sealed in the store, never kept in a document and never shown.

import type { OperationHandlers, OperationInput, OperationResult } from "../../admin/index.js";
import { createKey, PermissionInvalid } from "../../auth/index.js";
import { Fault, isJsonObject, type JsonObject, type JsonValue, pathText } from "../../mcp/index.js";
import {
  type ApiKey,
  type Application,
  type ApplicationDocument,
  applicationProblems,
  hideCredentials,
  type Pin,
  replaceCredentials,
  type ServerEntry,
} from "../../storage/index.js";
import { visible } from "../../telemetry/index.js";
import { PinKeeper } from "../../upstream/index.js";
import { allPages, pageAfter } from "../store/open.js";
import { pageOfDecisions } from "./decisions.js";
import { appNames, type ConsoleParts, invalid, iso, ledgersOf, notFound, servedApp, toolsOf } from "./parts.js";

const HIDDEN = "[hidden]";
const MAX_LIMIT = 1_000;
const DEFAULT_LIMIT = 100;

async function stored({ storage }: ConsoleParts, app: string): Promise<Application> {
  const found = await storage.applications.get(app);
  if (found) return found;
  throw notFound("there is no such application in the store");
}

/** Changes a document; another change in between is not overwritten. */
async function change(
  parts: ConsoleParts,
  app: string,
  actor: string,
  next: (document: ApplicationDocument) => ApplicationDocument | Promise<ApplicationDocument>,
): Promise<void> {
  const { document, revision } = await stored(parts, app);
  const changed = await next(document);
  const [problem] = applicationProblems(changed);
  if (problem) throw invalid(`${pathText(problem.path)}: ${problem.message}`);
  const put = await parts.storage.applications.put(app, changed, actor, revision);
  if (!put) throw new Fault("InvalidRequest", "the application was changed meanwhile: look at it again");
}

function keyView(key: ApiKey) {
  const { id, app, agent, name, prefix, permissions, limits } = key;
  return {
    id,
    app,
    agent: visible(agent),
    name: visible(name),
    prefix,
    permissions,
    ...(limits.perMinute === undefined ? {} : { per_minute: limits.perMinute }),
    ...(limits.perHour === undefined ? {} : { per_hour: limits.perHour }),
    created_at: iso(key.createdAt),
    ...(key.expiresAt === undefined ? {} : { expires_at: iso(key.expiresAt) }),
    ...(key.revokedAt === undefined ? {} : { revoked_at: iso(key.revokedAt) }),
    ...(key.lastUsedAt === undefined ? {} : { last_used_at: iso(key.lastUsedAt) }),
  };
}

const isActive = ({ revokedAt, expiresAt }: ApiKey): boolean =>
  revokedAt === undefined && (expiresAt === undefined || expiresAt > Date.now());

function limitsOf({ limits = {} }: ApplicationDocument): OperationResult<"getApplication">["limits"] {
  return (["app", "agent", "tool"] as const).flatMap((per) =>
    Object.entries(limits[per] ?? {}).flatMap(([name, max]) => (typeof max === "number" ? [{ per, name, max }] : [])),
  );
}

async function membersOf(parts: ConsoleParts, app: string, keys: readonly ApiKey[]) {
  const { records } = await pageOfDecisions(ledgersOf(parts), (record) => record.app === app, 1_000);
  const lastCall = new Map<string, string>();
  for (const { record } of records) if (!lastCall.has(record.agent)) lastCall.set(record.agent, record.ts);
  const names = new Set([...lastCall.keys(), ...keys.filter(isActive).map(({ agent }) => agent)]);
  return [...names].sort().map((agent) => {
    const last = lastCall.get(agent);
    return {
      agent: visible(agent),
      keys: keys.filter((key) => key.agent === agent && isActive(key)).length,
      ...(last === undefined ? {} : { last_call: last }),
    };
  });
}

const NAME_CHARS = /[^A-Za-z0-9_]+/g;

/** Puts what looks like a credential into the store and a reference in its place, as `portcullis import` does. */
async function sealed(
  { storage, sealer }: ConsoleParts,
  app: string,
  server: string,
  entry: JsonObject,
  actor: string,
): Promise<JsonObject> {
  const values = new Map<string, string>();
  const result = replaceCredentials(entry, ["servers", server], (_path, name, value) => {
    if (value === HIDDEN) throw invalid("a hidden value cannot be stored: write the value or ${secret:NAME}");
    const base = `${server}_${name}`
      .replace(NAME_CHARS, "_")
      .replace(/^(?=\d)/, "_")
      .slice(0, 120);
    let unique = base;
    for (let n = 2; values.has(unique) && values.get(unique) !== value; n++) unique = `${base}_${n}`;
    values.set(unique, value);
    return `\${secret:${unique}}`;
  });
  for (const [name, value] of values) {
    await storage.secrets.put(app, name, sealer.seal({ kind: "secret", app, name }, value), actor);
  }
  return result as JsonObject;
}

const TRANSPORTS: Readonly<Record<string, string>> = { "streamable-http": "http", ws: "websocket" };

/** An entry of a client's `mcpServers` names the transport `type`. */
function entryOf(given: OperationInput<"putServer">["entry"]): JsonObject {
  const { type, ...entry } = given as JsonObject;
  if (type === undefined || type === "stdio") return entry;
  return { ...entry, transport: TRANSPORTS[String(type)] ?? type };
}

function laidOut(definition: string): string {
  return visible(JSON.stringify(JSON.parse(definition), null, 2)).replaceAll("\\u000a", "\n");
}

/** Text values stand as they are, so that a changed description reads like text; everything else as JSON. */
function partText(value: JsonValue | undefined): string | undefined {
  if (value === undefined) return undefined;
  return typeof value === "string" ? visible(value) : visible(JSON.stringify(value));
}

async function pendingOf({ storage }: ConsoleParts, app: string, server: string) {
  const differences = await new PinKeeper(storage.pins).differences(app, server);
  const pending: OperationResult<"getServer">["pending"][number][] = [];
  for (const { kind, name, hash, isNew, changes } of differences) {
    const pin = await storage.pins.get({ app, server, kind, name });
    if (pin === undefined || pin.hash !== hash) continue;
    const before = pin.accepted?.definition;
    pending.push({
      kind,
      name: visible(name),
      hash,
      is_new: isNew,
      ...(before === undefined || before === "" ? {} : { before: laidOut(before) }),
      after: laidOut(pin.definition),
      changes: changes.map(({ path, before: was, after: is }) => {
        const [old, now] = [partText(was), partText(is)];
        return {
          path: path.map(visible),
          ...(old === undefined ? {} : { before: old }),
          ...(now === undefined ? {} : { after: now }),
        };
      }),
    });
  }
  return pending;
}

async function serverDetail(parts: ConsoleParts, app: string, server: string, rows: readonly ServerRowLike[]) {
  const served = await servedApp(parts, app);
  const entry = served.application.document.servers?.[server];
  const isOwn = parts.inProcess?.app === app && !entry;
  if (!entry && !isOwn && !served.upstreams.has(server)) throw notFound("the application has no such server");
  const pins = new Map<string, Pin>();
  for (const pin of await allPages((after) => parts.storage.pins.list(app, server, pageAfter(after)))) {
    if (pin.kind === "tool") pins.set(pin.name, pin);
  }
  const definitions = new Map(served.registeredTools.map(({ definition }) => [definition.name, definition]));
  const prefix = `${entry?.prefix ?? server}.`;
  const tools = (await toolsOf(served)).filter((tool) => tool.server === server);
  return {
    app,
    server,
    entry: hideCredentials((entry ?? {}) as unknown as JsonValue, ["servers", server]) as JsonObject,
    processes: rows.filter((each) => each.app === app && each.server === server),
    tools: tools.map(({ name, description, inputSchema, readOnly, noGuardrailRequired }) => {
      const pin = pins.get(name) ?? pins.get(name.startsWith(prefix) ? name.slice(prefix.length) : name);
      const hints = definitions.get(name)?.annotations;
      const accepted = pin?.status === "accepted" ? pin.hash : pin?.accepted?.hash;
      return {
        name: visible(name),
        ...(description === undefined ? {} : { description: visible(description) }),
        ...(hints === undefined ? {} : { hints: hints as unknown as JsonObject }),
        input_schema: inputSchema as JsonValue,
        read_only: readOnly ?? false,
        needs_guardrail: noGuardrailRequired === false,
        ...(accepted === undefined ? {} : { pin: accepted }),
      };
    }),
    pending: await pendingOf(parts, app, server),
    left_out: served.left
      .filter((each) => each.server === server)
      .map(({ name, why }) => ({ name: visible(name), reason: visible(why) })),
  };
}

/** With how many definitions wait for review, and with the servers that no process uses now. */
async function withIdle({ storage }: ConsoleParts, rows: readonly ServerRowLike[]): Promise<ServerRowLike[]> {
  const found = [...rows];
  const { items } = await storage.applications.list({ limit: MAX_LIMIT });
  for (const { id: app, document } of items) {
    for (const [server, { url, transport, disabled }] of Object.entries(document.servers ?? {})) {
      if (found.some((each) => each.app === app && each.server === server)) continue;
      found.push({
        replica: "",
        app,
        server,
        state: disabled ? "stopped" : "idle",
        circuit: "closed",
        transport: transport ?? (url === undefined ? "stdio" : "http"),
        tools: 0,
        in_flight: 0,
        queued: 0,
        restarts: 0,
        calls: 0,
        failures: 0,
        pending_pins: 0,
      });
    }
  }
  const pending = new Map<string, number>();
  for (const { app, server } of found) {
    const key = JSON.stringify([app, server]);
    if (pending.has(key)) continue;
    pending.set(key, (await storage.pins.states(app, server)).filter(({ status }) => status === "changed").length);
  }
  return found.map((each) => ({ ...each, pending_pins: pending.get(JSON.stringify([each.app, each.server])) ?? 0 }));
}

type ServerRowLike = OperationResult<"listServers">["servers"][number];

/** What a server wrote is for operators alone. */
function forOthers({ stderr: _, last_error: last, ...rest }: ServerRowLike): ServerRowLike {
  return last === undefined ? rest : { ...rest, last_error: { at: last.at, message: last.message } };
}

export function resourceHandlers(
  parts: ConsoleParts,
  serverRows: () => Promise<readonly ServerRowLike[]>,
): OperationHandlers {
  const { storage, sealer } = parts;
  const keysOf = (app: string): Promise<ApiKey[]> =>
    allPages((after) => storage.keys.list({ app }, pageAfter(after)), MAX_LIMIT);
  const secretsOf = async (app: string) =>
    (await allPages((after) => storage.secrets.list(app, pageAfter(after)), MAX_LIMIT)).map(({ name, updatedAt }) => ({
      name,
      updated_at: iso(updatedAt),
    }));
  return {
    listApplications: async (_input, { by }) => {
      const refused = new Map(parts.applications.refused.map(({ app, reason }) => [app, reason]));
      const names = (await appNames(parts)).filter((app) => by.app === undefined || by.app === app);
      const applications: OperationResult<"listApplications">["applications"][number][] = [];
      for (const app of names) {
        const found = await storage.applications.get(app);
        const { description, servers = {}, policies = {} } = found?.document ?? {};
        const reason = refused.get(app);
        applications.push({
          app,
          ...(description === undefined ? {} : { description }),
          servers: Object.keys(servers).length + (parts.inProcess?.app === app ? 1 : 0),
          keys: (await keysOf(app)).filter(isActive).length,
          policies: Object.keys(policies),
          ...(reason === undefined ? {} : { refused: reason }),
          revision: found?.revision ?? 0,
          ...(found === undefined ? {} : { updated_at: iso(found.updatedAt) }),
        });
      }
      return { applications };
    },

    getApplication: async ({ app }) => {
      if (!(await appNames(parts)).includes(app)) throw notFound("there is no such application");
      const document = (await storage.applications.get(app))?.document ?? {};
      const keys = await keysOf(app);
      const reason = parts.applications.refused.find((each) => each.app === app)?.reason;
      return {
        app,
        ...(document.description === undefined ? {} : { description: document.description }),
        document: hideCredentials(document as unknown as JsonValue) as JsonObject,
        members: await membersOf(parts, app, keys),
        limits: limitsOf(document),
        keys: keys.map(keyView),
        secrets: await secretsOf(app),
        ...(reason === undefined ? {} : { refused: reason }),
      };
    },

    listServers: async ({ app }, { by }) => {
      const rows = await withIdle(parts, await serverRows());
      const theirs = rows.filter((each) => app === undefined || each.app === app);
      return { servers: by.roles.includes("operator") ? theirs : theirs.map(forOthers) };
    },

    getServer: async ({ app, server }, { by }) => {
      const detail = await serverDetail(parts, app, server, await serverRows());
      if (by.roles.includes("operator")) return detail;
      return { ...detail, processes: detail.processes.map(forOthers) };
    },

    putServer: async ({ app, server, entry: given }, { actor }) => {
      await stored(parts, app);
      const bare = entryOf(given);
      if (!isJsonObject(bare)) throw invalid("the entry of a server is an object");
      const [problem] = applicationProblems({ servers: { [server]: bare } });
      if (problem) throw invalid(`${pathText(problem.path)}: ${problem.message}`);
      const entry = (await sealed(parts, app, server, bare, actor)) as unknown as ServerEntry;
      await change(parts, app, actor, async (document) => {
        // What was accepted was accepted of the server that was there.
        const before = document.servers?.[server];
        if (
          before &&
          JSON.stringify([before.command, before.args, before.url]) !==
            JSON.stringify([entry.command, entry.args, entry.url])
        ) {
          await storage.pins.clear(app, server, actor);
        }
        return { ...document, servers: { ...document.servers, [server]: entry } };
      });
      return { ok: true };
    },

    removeServer: async ({ app, server }, { actor }) => {
      await change(parts, app, actor, (document) => {
        const { [server]: found, ...servers } = document.servers ?? {};
        if (!found) throw notFound("the application has no such server");
        return { ...document, servers };
      });
      return { ok: true };
    },

    acceptPin: async ({ app, server, kind, name, hash }, { actor }) => {
      // Names are shown with their invisible characters escaped: the hash says which one is meant.
      const found = (await new PinKeeper(storage.pins).differences(app, server)).find(
        (each) => each.kind === kind && visible(each.name) === name && each.hash === hash,
      );
      const id = { app, server, kind, name: found?.name ?? name };
      if (!found || !(await new PinKeeper(storage.pins).acceptDifference(id, hash, actor))) {
        throw new Fault("InvalidRequest", "the server offers another definition by now: review it again");
      }
      return { ok: true };
    },

    listKeys: async ({ app, active, cursor, limit = DEFAULT_LIMIT }) => {
      const filter = { activeOnly: active === "1", ...(app === undefined ? {} : { app }) };
      const page = await storage.keys.list(filter, { limit, ...(cursor === undefined ? {} : { after: cursor }) });
      return { items: page.items.map(keyView), ...(page.next === undefined ? {} : { next: page.next }) };
    },

    createKey: async ({ app, name, agent, permissions, per_minute, per_hour, expires_at }, { actor }) => {
      await stored(parts, app);
      const expiresAt = expires_at === undefined ? undefined : Date.parse(expires_at);
      if (expiresAt !== undefined && !(expiresAt > Date.now()))
        throw invalid("`expires_at` is not a time in the future");
      const request = {
        app,
        name,
        permissions,
        limits: {
          ...(per_minute === undefined ? {} : { perMinute: per_minute }),
          ...(per_hour === undefined ? {} : { perHour: per_hour }),
        },
        ...(agent === undefined ? {} : { agent }),
        ...(expiresAt === undefined ? {} : { expiresAt }),
      };
      try {
        const { key, token } = await createKey(storage.keys, request, actor);
        return { token, key: keyView(key) };
      } catch (error) {
        if (error instanceof PermissionInvalid) throw invalid(error.message);
        throw error;
      }
    },

    revokeKey: async ({ id }, { actor }) => {
      if (!(await storage.keys.revoke(id, actor))) throw notFound("there is no such key in force");
      return { ok: true };
    },

    listSecrets: async ({ app }) => ({ secrets: await secretsOf(app) }),

    putSecret: async ({ app, name, value }, { actor }) => {
      await stored(parts, app);
      await storage.secrets.put(app, name, sealer.seal({ kind: "secret", app, name }, value), actor);
      return { ok: true };
    },

    removeSecret: async ({ app, name }, { actor }) => {
      if (!(await storage.secrets.remove(app, name, actor))) throw notFound("there is no such secret");
      return { ok: true };
    },
  };
}
