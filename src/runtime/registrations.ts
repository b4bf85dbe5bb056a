// Registrations of an application through the admin API, by keys with `admin.read` and `admin.write`. A key is not the
// operator: it can add servers that the gateway connects to by URL, and what they offer waits for the operator's review.

import type { Registrar, Registrations } from "../admin/index.js";
import type { ApiKeyCache } from "../auth/index.js";
import type { Applications } from "../gateway/index.js";
import type { Ledger } from "../ledger/index.js";
import { Fault, type JsonObject, type JsonValue, pathText, storeUnavailable } from "../mcp/index.js";
import {
  type Application,
  type ApplicationDocument,
  applicationProblems,
  hideCredentials,
  type ServerEntry,
  type Storage,
} from "../storage/index.js";
import { createDialer } from "../upstream/index.js";
import { dialTargetOf, namedByOperator } from "./servers.js";

interface RegistrationOptions {
  readonly storage: Pick<Storage, "applications" | "pins" | "leases">;
  readonly applications: Pick<Applications, "get">;
  readonly ledger: Pick<Ledger, "append">;
  /** Private hosts and ranges that the operator named for every server. */
  readonly allow: readonly string[];
  /** Servers of one application that keys registered; 32 unless given. */
  readonly maxServers?: number;
}

/** What a key may say of a server. Every other field is for the operator, because it widens what the server may do. */
const FIELDS: ReadonlySet<string> = new Set(["url", "transport", "timeoutMs", "resourceTtlMs", "disabled"]);
/** Set by the gateway in each entry that a key registered. */
const OWN_FIELDS: ReadonlySet<string> = new Set([...FIELDS, "pin", "registeredBy"]);
const PIN = "always-ask";
const REFERENCE = /\$\{/;
const MAX_SERVERS = 32;
const MAX_TOOLS = 1_000;
const MAX_TRIES = 5;
/** Changes of one key, counted by all workers and replicas together. */
const CHANGES = { tokens: 30, periodMs: 60_000, burst: 10 };

/** Whose key this is, when it has `admin.read` or `admin.write`. */
export async function registrarOf(keys: ApiKeyCache, token: string): Promise<Registrar | undefined> {
  if (token === "") return undefined;
  // A revocation may have been missed.
  if (!keys.isFresh) throw storeUnavailable();
  const { key, rights } = (await keys.find(token)) ?? {};
  if (!key || !rights?.adminRead) return undefined;
  return { app: key.app, key: key.id, name: key.name, agent: key.agent, mayWrite: rights.adminWrite };
}

export function registrationsOf(options: RegistrationOptions): Registrations {
  const { storage, applications, ledger, allow, maxServers = MAX_SERVERS } = options;

  const change = async (by: Registrar, server: string, action: Action, traceId: string): Promise<Application> => {
    const lease = await storage.leases.lease(`registrations:${by.key}`, 1, CHANGES);
    if (lease.granted === 0) {
      throw new Fault("RateLimited", "too many registrations with this key", {
        rule: "registration.rate",
        extra: { retry_after_ms: lease.retryAfterMs },
      });
    }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { document, revision } = await applicationOf(storage, by.app);
      const next = await action(document);
      checkShape(next);
      const entry = next.servers?.[server];
      const detail: JsonObject = {
        ...whoOf(by),
        server,
        revision: revision + 1,
        trace_id: traceId,
        entry: (entry as unknown as JsonObject | undefined) ?? null,
      };
      // INVARIANT: durable before the change. No record, no effect.
      await record(ledger, { actor: actorOf(by), action: entry ? "registration.put" : "registration.remove", detail });
      // What was accepted was accepted of the server at the old address.
      if (entry?.url !== document.servers?.[server]?.url) await storage.pins.clear(by.app, server, actorOf(by));
      const put = await storage.applications.put(by.app, next, actorOf(by), revision);
      if (put) return put;
    }
    throw new Fault("Unavailable", "the application is being changed by other callers; try again");
  };

  return {
    async read(app) {
      const application = await applicationOf(storage, app);
      const served = await applications.get(app);
      const tools = served?.registeredTools ?? [];
      const { servers = {}, routes = {}, permissions = [], guardrails = [] } = application.document;
      const waiting: JsonObject[] = [];
      for (const server of Object.keys(servers)) {
        for (const { kind, name, status } of await storage.pins.states(app, server)) {
          if (status === "changed" && waiting.length < MAX_TOOLS) waiting.push({ server, kind, name });
        }
      }
      const shown = tools.slice(0, MAX_TOOLS).map(({ definition, server = null }) => ({ ...definition, server }));
      return {
        app,
        revision: application.revision,
        servers: hideCredentials(servers as unknown as JsonValue, ["servers"]),
        routes: routes as unknown as JsonObject,
        permissions: [...permissions],
        guardrails: guardrails as unknown as JsonValue,
        tools: shown as unknown as JsonValue,
        tools_total: tools.length,
        pending_review: waiting,
      };
    },

    async put(by, server, body, traceId) {
      const entry = { ...entryOf(body), pin: PIN, registeredBy: by.key } as ServerEntry;
      const { revision } = await change(
        by,
        server,
        async (document) => {
          checkOwned(document, server, "change");
          checkName(document, server);
          checkCount(document, server, maxServers);
          await createDialer({ allow: [...allow, ...namedByOperator(document)] }).check(dialTargetOf(entry));
          return { ...document, servers: { ...document.servers, [server]: entry } };
        },
        traceId,
      );
      return { app: by.app, server, revision, entry: entry as unknown as JsonObject };
    },

    async remove(by, server, traceId) {
      const without = async (document: ApplicationDocument): Promise<ApplicationDocument> => {
        if (!checkOwned(document, server, "remove")) throw notThere(server);
        const { [server]: _, ...servers } = document.servers ?? {};
        return { ...document, servers };
      };
      const { revision } = await change(by, server, without, traceId);
      return { app: by.app, server, revision };
    },
  };
}

type Action = (document: ApplicationDocument) => Promise<ApplicationDocument>;

async function applicationOf(storage: RegistrationOptions["storage"], app: string): Promise<Application> {
  const application = await storage.applications.get(app);
  if (application) return application;
  throw new Fault("ResourceNotFound", "there is no such application");
}

function checkShape(document: ApplicationDocument): void {
  const [problem] = applicationProblems(document);
  if (problem === undefined) return;
  throw new Fault("InvalidParams", `${pathText(problem.path)}: ${problem.message}`, {
    field: String(problem.path.at(-1) ?? ""),
  });
}

async function record(
  ledger: RegistrationOptions["ledger"],
  entry: { readonly actor: string; readonly action: string; readonly detail: JsonObject },
): Promise<void> {
  await ledger.append({ kind: "admin", ...entry }).catch((error: Error) => {
    throw new Fault("AuditFailure", `the registration did not take effect: ${error.message}`, { cause: error });
  });
}

function actorOf({ key }: Registrar): string {
  return `key:${key}`;
}

function whoOf({ app, key, name, agent }: Registrar): JsonObject {
  return { app, key, key_name: name, agent };
}

function entryOf(body: JsonObject): JsonObject {
  const foreign = Object.keys(body).find((field) => !FIELDS.has(field));
  if (foreign !== undefined) {
    throw new Fault("AuthorizationError", `field \`${foreign.slice(0, 64)}\` can only be set by the operator`, {
      rule: "registration.fields",
      field: foreign.slice(0, 64),
      suggestions: [`A key may set ${[...FIELDS].join(", ")}`],
    });
  }
  if (Object.values(body).some((value) => typeof value === "string" && REFERENCE.test(value))) {
    throw new Fault("AuthorizationError", "a key may not refer to secrets or variables", {
      rule: "registration.references",
      suggestions: ["Write the address without ${…}; the operator adds credentials"],
    });
  }
  if (typeof body.url !== "string" || !URL.canParse(body.url)) {
    throw new Fault("InvalidParams", "`url` must be the address of the server", { field: "url" });
  }
  return body;
}

/** True for a server that a key registered and the operator left as it was; undefined where there is none. */
function checkOwned({ servers = {} }: ApplicationDocument, server: string, verb: string): true | undefined {
  const entry = Object.hasOwn(servers, server) ? servers[server] : undefined;
  if (!entry) return undefined;
  const isOperators =
    entry.registeredBy === undefined || entry.pin !== PIN || Object.keys(entry).some((field) => !OWN_FIELDS.has(field));
  if (!isOperators) return true;
  throw new Fault("AuthorizationError", `server \`${server}\` belongs to the operator: a key cannot ${verb} it`, {
    rule: "registration.owner",
    suggestions: ["Ask the operator, or register it under another name"],
  });
}

/** INVARIANT: a name that the operator uses, or has a rule about, never comes to mean a server of a key's. */
function checkName(document: ApplicationDocument, server: string): void {
  const { servers = {}, routes = {}, guardrails = [] } = document;
  const used = [
    ...Object.entries(servers).flatMap(([name, entry]) => (name === server ? [] : [entry.prefix ?? name])),
    ...Object.keys(routes),
    ...guardrails.flatMap(({ call }) => call ?? []),
  ];
  if (server !== "core" && !used.some((name) => name === server || name.startsWith(`${server}.`))) return;
  throw new Fault("AuthorizationError", `the name \`${server}\` is the operator's`, {
    rule: "registration.name",
    suggestions: ["Choose a name that begins no name of the application's servers, routes and guardrails"],
  });
}

function checkCount({ servers = {} }: ApplicationDocument, server: string, max: number): void {
  const others = Object.entries(servers).filter(([name, entry]) => name !== server && entry.registeredBy !== undefined);
  if (others.length < max) return;
  throw new Fault("RateLimited", `an application has at most ${max} servers that keys registered`, {
    rule: "registration.count",
    retryable: false,
    suggestions: ["Remove one that is not used"],
  });
}

function notThere(server: string): Fault {
  return new Fault("ResourceNotFound", `the application has no server \`${server}\``);
}
