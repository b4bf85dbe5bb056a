// From an entry of an application's document to a connection: references resolved, target and credentials made.

import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { deferredUpstream, matcher, type ObserveRequest } from "../gateway/index.js";
import type { SandboxMode, ServerProfile, ServerSandbox } from "../host/index.js";
import { type ByteBudget, type JsonObject, timeShareOf } from "../mcp/index.js";
import type { Application, ApplicationDocument, ServerEntry, Storage } from "../storage/index.js";
import {
  allowanceFor,
  createDialer,
  createUpstream,
  type DialTarget,
  type Upstream,
  type UpstreamTarget,
} from "../upstream/index.js";
import { VERSION } from "./environment.js";

/**
 * Puts secrets and variables where a text refers to them, and says which values those are. Throws with the name of
 * what is missing.
 */
export type ResolveText = (app: string, text: string, onSecret?: (value: string) => void) => Promise<string>;

/** Credentials for a server that wants OAuth. */
export type OAuthFor = (
  application: Application,
  server: string,
  entry: ServerEntry,
  user: string | undefined,
) => NonNullable<Parameters<typeof createUpstream>[0]["credentials"]>;

interface ServerConnectOptions {
  readonly resolve: ResolveText;
  /** Hosts and ranges beyond the public network that the operator named. */
  readonly allow: readonly string[];
  readonly oauth: OAuthFor | undefined;
  /** The gateway's own files: hidden from stdio servers, or shown read-only. */
  readonly files: () => Promise<GatewayFiles>;
  /** Directory in which each stdio server has one for what it adds to the home directory. */
  readonly stores: string;
  readonly observe: (app: string, server: string, ...request: Parameters<ObserveRequest>) => void;
  /** Seconds; for processes that are started by their first call, where their entry does not say. */
  readonly idleStop: number | undefined;
  /** Seconds. */
  readonly discoveryTimeout: number | undefined;
  /** Charged with the unfinished messages of an application's servers. */
  readonly budget: (app: string) => ByteBudget;
}

/** As long as an application is kept open that is not used. */
const IDLE_STOP_S = 30 * 60;

export function serverConnector(options: ServerConnectOptions) {
  return (application: Application, server: string, entry: ServerEntry, user: string | undefined): Upstream => {
    const secrets = new Set<string>();
    const make = async (): Promise<Upstream> => {
      const text = (value: string): Promise<string> =>
        options.resolve(application.id, value, (secret) => secrets.add(secret));
      const target = await targetOf(entry, text, {
        ...(await options.files()),
        store: join(options.stores, encodeURIComponent(application.id), encodeURIComponent(server)),
      });
      const headers = await resolved(entry.headers ?? {}, text);
      const bearer = entry.auth?.type === "bearer" ? await text(entry.auth.token ?? "") : undefined;
      if (bearer !== undefined) headers.authorization = `Bearer ${bearer}`;
      const credentials =
        entry.auth?.type === "oauth" ? options.oauth?.(application, server, entry, user) : { headers: () => headers };
      // What the operator wrote into the document is what the operator named; what a key registered is not.
      const dialer = createDialer({
        ofServer: true,
        allow: [
          ...options.allow,
          ...(entry.registeredBy === undefined ? namedIn(target) : namedByOperator(application.document)),
        ],
      });
      return createUpstream({
        name: server,
        target: entry.openapi === undefined || !("url" in target) ? target : apiTarget(target.url, entry.openapi),
        clientInfo: { name: "portcullis", version: VERSION },
        ...(entry.revision === undefined ? {} : { revision: entry.revision }),
        // Callers are asked through us; what a caller cannot do is refused there.
        clientCapabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} },
        ...(credentials ? { credentials } : {}),
        timeouts: {
          idleMs: idleMsOf(entry, (options.idleStop ?? IDLE_STOP_S) * 1_000),
          ...(options.discoveryTimeout === undefined ? {} : { discoverMs: options.discoveryTimeout * 1_000 }),
        },
        budget: options.budget(application.id),
        share: timeShareOf(application.id),
        dialer,
      });
    };
    return deferredUpstream(
      server,
      make,
      (text) => without(secrets, text),
      (...request) => options.observe(application.id, server, ...request),
    );
  };
}

function apiTarget(url: string, { document, include = ["*"], exclude = [], names = {} }: OpenApiEntry): UpstreamTarget {
  const [isChosen, isExcluded] = [matcher(include), matcher(exclude)];
  const isIncluded = (each: readonly string[]): boolean => each.some(isChosen) && !each.some(isExcluded);
  return { transport: "http", url, openapi: { document, choice: { names, isIncluded } } };
}

type OpenApiEntry = NonNullable<ServerEntry["openapi"]>;

/** Connections to a URL stay: they are cheap, and bring the news of changes. */
function idleMsOf({ command, start, idleStopMs }: ServerEntry, defaultMs: number): number {
  if (command === undefined) return 0;
  return idleStopMs ?? (start === "eager" ? 0 : defaultMs);
}

/** Shorter parts of a secret are not hidden. */
const MIN_PART = 4;

/** A server may say on stderr what it was given. */
function without(secrets: ReadonlySet<string>, text: string): string {
  let shown = text;
  // The longest first: one may be part of another.
  for (const secret of [...secrets].sort((a, b) => b.length - a.length)) {
    if (secret === "") continue;
    // Of what was written only the end is kept: it may begin in the middle of one.
    for (let cut = 1; cut <= secret.length - MIN_PART; cut++) {
      if (shown.startsWith(secret.slice(cut))) shown = `[secret]${shown.slice(secret.length - cut)}`;
    }
    shown = shown.replaceAll(secret, "[secret]");
  }
  return shown;
}

async function resolved(
  values: Readonly<Record<string, string>>,
  text: (value: string) => Promise<string>,
): Promise<Record<string, string>> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(values)) out[name] = await text(value);
  return out;
}

async function targetOf(
  entry: ServerEntry,
  text: (value: string) => Promise<string>,
  files: Omit<ServerSandbox, "mode">,
): Promise<UpstreamTarget> {
  if (entry.command !== undefined) {
    return {
      transport: "stdio",
      command: await text(entry.command),
      args: await Promise.all((entry.args ?? []).map(text)),
      env: await resolved(entry.env ?? {}, text),
      sandbox: { ...sandboxOf(entry), ...files },
      ...(entry.cwd === undefined ? {} : { cwd: await text(entry.cwd) }),
    };
  }
  const url = new URL(await text(entry.url ?? ""));
  const transport = entry.transport ?? byScheme(url.protocol);
  if (transport === "tcp") return { transport, host: url.hostname, port: Number(url.port) };
  return { transport, url: url.href };
}

const MEGABYTE = 1_000_000;
const DEFAULT_MEMORY_MB = 1_024;
const DEFAULT_PROCESSORS = 2;
const DEFAULT_PROCESSES = 256;

/** What an entry asks for, with the defaults of what it does not say. */
export function sandboxOf({ sandbox = "preferred" }: ServerEntry): { mode: SandboxMode; profile?: ServerProfile } {
  if (typeof sandbox === "string") return { mode: sandbox };
  const {
    mode = "required",
    read = [],
    write = [],
    network = "off",
    memory,
    cpu,
    processes,
    observe = false,
  } = sandbox;
  const memoryBytes = (memory ?? DEFAULT_MEMORY_MB) * MEGABYTE;
  const limits = { memoryBytes, processors: cpu ?? DEFAULT_PROCESSORS, processes: processes ?? DEFAULT_PROCESSES };
  return { mode, profile: { read, write, network, ...limits, observe } };
}

function byScheme(protocol: string): NonNullable<ServerEntry["transport"]> {
  switch (protocol) {
    case "ws:":
    case "wss:":
      return "websocket";
    case "tcp:":
      return "tcp";
    default:
      return "http";
  }
}

/** Hosts and ports of the servers that the operator wrote into a document; those behind references are not known here. */
export function namedByOperator({ servers = {} }: ApplicationDocument): string[] {
  return Object.values(servers).flatMap(({ url, registeredBy }) =>
    url === undefined || registeredBy !== undefined || !URL.canParse(url) ? [] : [allowanceFor(new URL(url))],
  );
}

/** Where the connection to a server goes that has a URL without references. */
export function dialTargetOf({ url = "" }: ServerEntry): DialTarget {
  const { hostname, port, protocol } = new URL(url);
  const tls = protocol === "https:" || protocol === "wss:";
  return { host: hostname, port: Number(port) || (tls ? 443 : 80), tls };
}

/** A server may be at a private or loopback address, at the port that the operator wrote there. */
function namedIn(target: UpstreamTarget): string[] {
  switch (target.transport) {
    case "stdio":
      return [];
    case "tcp":
      return [`${target.host}:${target.port}`];
    default:
      return [allowanceFor(new URL(target.url))];
  }
}

export type GatewayFiles = Pick<ServerSandbox, "hidden" | "readOnly">;

/** A replica that registered this recently may still run. */
const SEEN_MS = 24 * 3_600_000;
const MAX_HIDDEN = 256;
/** From a ledger up to its data directory: a worker's is two below. */
const MAX_LEVELS = 3;

/** What a replica says of itself to those on the same machine. */
export function filesDetail({ hidden }: GatewayFiles): JsonObject {
  return { host: hostname(), files: [...hidden] };
}

/** Read each time a server starts: replicas come and go. */
export async function hiddenFiles(
  own: GatewayFiles,
  storage: Pick<Storage, "replicas" | "ledgers">,
): Promise<GatewayFiles> {
  const [replicas, ledgers] = await Promise.all([storage.replicas.list(SEEN_MS), storage.ledgers.list()]);
  const here = `${hostname()}:`;
  const live = replicas.flatMap(({ detail }) => (detail.host === hostname() ? texts(detail.files) : []));
  const known = ledgers.flatMap(({ place }) => (place.startsWith(here) ? [gatewayOf(place.slice(here.length))] : []));
  const others = [...new Set([...live, ...known])].filter((path) => !own.hidden.includes(path) && existsSync(path));
  return { ...own, hidden: [...own.hidden, ...others.slice(0, MAX_HIDDEN)] };
}

/** The data directory of a ledger, or the ledger itself where it is outside one. */
function gatewayOf(ledger: string): string {
  let at = ledger;
  for (let level = 0; level < MAX_LEVELS; level++) {
    at = dirname(at);
    if (existsSync(join(at, "operator.token"))) return at;
  }
  return ledger;
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}
